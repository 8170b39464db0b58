package proxy

// registrar keeps proxies/<id> current under a lease, and credentials/<id>.
//
// The record is on the path of every hand-over: the leader waits for
// applied_epoch and drained_hold of all proxies. So there is no queue and no
// interval between the engine's poke and the transaction. Each transaction
// compares the record's own revision, which is how a proxy notices that it
// lost the record, or that another has its id:
//
//	record is gone                        written again, under a live lease
//	record is of this process             its outcome was unknown: go on from it
//	same incarnation, at the start        of the process before: the locked
//	                                      folder says that it ended; take over
//	same incarnation, later               a clone of this proxy took over: a
//	                                      fresh incarnation at once
//	other incarnation                     a running proxy has the id, or one just
//	                                      ended: wait two leases; then a fresh id
//	                                      if ours was made up, else give up
//
// The lease only says who is probably there; nothing relies on it for safety.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	leaseTTL     = 10 * time.Second
	callTimeout  = 5 * time.Second  // one call to etcd
	verifyEvery  = 30 * time.Second // read the record back: somebody may have removed it
	closeTimeout = time.Second      // giving the lease back when leaving
	// Report that a hold was applied at once, or with the report that it
	// drained when that follows within so long: one transaction instead of two
	// before the leader may go on.
	settleTime = 5 * time.Millisecond

	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
	warnEvery  = 30 * time.Second
)

var (
	errIDTaken   = errors.New("another running proxy uses the same id")
	errEvicted   = errors.New("this incarnation was evicted")
	errLeaseGone = errors.New("the lease ended")
)

type registrar struct {
	*control
	wait time.Duration // how long an id may be taken; two leases, shorter in tests

	lease      *store.Lease
	endLease   context.CancelFunc
	rev        int64            // of the record as written by us, 0: register (again)
	last       topo.ProxyRecord // as written
	ever       bool             // registered before in this process
	takenSince time.Time
	retry      time.Duration
	warned     time.Time
}

// run works until ctx ends, and then takes the record away. It fails only
// when another proxy has the configured id.
func (r *registrar) run(ctx context.Context) error {
	r.retry = retryFirst
	defer r.leave()
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	for ctx.Err() == nil {
		err := r.bring(ctx)
		if errors.Is(err, errIDTaken) && r.cfg.ID != "" && time.Since(r.takenSince) > r.wait {
			return err
		}
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			r.lost(err)
			retry = time.After(r.retry)
			r.retry = min(2*r.retry, retryMost)
		} else {
			r.retry = retryFirst
		}
		var gone <-chan struct{}
		if r.lease != nil {
			gone = r.lease.Done()
		}
		select {
		case <-ctx.Done():
		case <-retry:
		case <-gone:
			r.dropLease()
			r.lost(errLeaseGone)
		case <-verify.C:
			r.verify(ctx)
		case <-r.wake:
		case <-r.engine.Changed():
		}
	}
	return nil
}

// lost marks the record as not ours for the moment.
func (r *registrar) lost(err error) {
	r.rev = 0
	r.mu.Lock()
	was := r.registered
	r.registered = false
	r.mu.Unlock()
	if was || time.Since(r.warned) > warnEvery {
		r.warned = time.Now()
		r.log.Warn("not registered, trying again", "err", err)
	}
}

// bring writes the record as it should be now.
func (r *registrar) bring(ctx context.Context) error {
	record, credential, settled := r.record()
	if r.rev != 0 && reflect.DeepEqual(record, r.last) {
		return nil
	}
	if r.rev != 0 && !settled {
		r.settle(ctx)
		record, credential, _ = r.record()
	}
	if r.rev != 0 && credential.ID == r.last.ID && credential.Incarnation == r.last.Incarnation {
		err := r.update(ctx, record)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return r.enroll(ctx, record, credential)
}

// settle waits a moment for the drain to end.
func (r *registrar) settle(ctx context.Context) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for {
		select {
		case <-r.engine.Changed():
			if _, _, settled := r.record(); settled {
				return
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *registrar) update(ctx context.Context, record topo.ProxyRecord) error {
	call, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	key := store.PrefixProxies + record.ID
	rev, err := r.store.Begin().Unchanged(key, r.rev).PutLease(key, record, r.lease).Commit(call)
	if err != nil {
		return fmt.Errorf("update %s: %w", key, err)
	}
	r.rev, r.last = rev, record
	return nil
}

// enroll writes the record without relying on what was written before, and the
// credential where it is not there yet.
func (r *registrar) enroll(ctx context.Context, record topo.ProxyRecord, credential topo.Credential) error {
	if err := r.needLease(ctx); err != nil {
		return err
	}
	call, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	recordKey, credentialKey := store.PrefixProxies+record.ID, store.PrefixCredentials+record.ID
	there, rev, err := store.Load[topo.ProxyRecord](call, r.store, recordKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil && !r.own(there) && (there.Incarnation != record.Incarnation || r.ever) {
		return r.taken(there, record)
	}
	if err := r.notEvicted(call, record); err != nil {
		return err
	}
	known, credentialRev, err := store.Load[topo.Credential](call, r.store, credentialKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	txn := r.store.Begin().Unchanged(recordKey, rev).PutLease(recordKey, record, r.lease)
	if known != credential {
		txn.Unchanged(credentialKey, credentialRev).Put(credentialKey, credential)
	}
	newRev, err := txn.Commit(call)
	if err != nil {
		return fmt.Errorf("register as %s: %w", record.ID, err)
	}
	r.rev, r.last, r.ever, r.takenSince = newRev, record, true, time.Time{}
	r.mu.Lock()
	r.registered = true
	r.mu.Unlock()
	r.log.Info("registered", "id", record.ID, "incarnation", record.Incarnation)
	return nil
}

// notEvicted makes sure that the incarnation may still be admitted.
func (r *registrar) notEvicted(ctx context.Context, record topo.ProxyRecord) error {
	_, err := r.store.Get(ctx, store.PrefixEvicted+record.ID+"/"+record.Incarnation)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id.Incarnation == record.Incarnation {
		r.renew(r.id.ID, "evicted")
	}
	return errEvicted
}

// own reports whether this process wrote the record.
func (r *registrar) own(there topo.ProxyRecord) bool {
	return there.PID == os.Getpid() && there.StartedAt.Equal(r.startedAt)
}

// taken deals with a record of another process under our id.
func (r *registrar) taken(there, ours topo.ProxyRecord) error {
	if r.takenSince.IsZero() {
		r.takenSince = time.Now()
	}
	overlong := time.Since(r.takenSince) > r.wait
	r.mu.Lock()
	defer r.mu.Unlock()
	switch cloned := there.Incarnation == ours.Incarnation; {
	case r.cfg.ID == "" && (cloned || overlong):
		r.takenSince = time.Time{}
		r.renew("", "another running proxy at "+there.Addr+" has the same identity")
	case cloned:
		r.renew(r.cfg.ID, "another running proxy at "+there.Addr+" has the same identity")
	}
	return fmt.Errorf("%w %q (at %s, admin port %s): give each proxy its own id, or leave id empty", errIDTaken, ours.ID, there.Addr, there.Admin)
}

// verify reads the record back.
func (r *registrar) verify(ctx context.Context) {
	if r.rev == 0 {
		return
	}
	call, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	item, err := r.store.Get(call, store.PrefixProxies+r.last.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && item.Rev != r.rev {
		r.lost(errors.New("the record was removed or overwritten"))
	}
}

// needLease makes a lease if there is none. It must outlive ctx, to be given
// back, but making it must not.
func (r *registrar) needLease(ctx context.Context) error {
	if r.lease != nil {
		return nil
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, end)
	timer := time.AfterFunc(callTimeout, end)
	lease, err := r.store.NewLease(life, leaseTTL)
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if !unhook() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		end()
		return err
	}
	r.lease, r.endLease = lease, end
	return nil
}

// dropLease forgets a lease that ended.
func (r *registrar) dropLease() {
	if r.lease != nil {
		r.endLease()
		r.lease = nil
	}
}

// leave gives the lease back, and the record with it, so that nobody waits for
// this proxy.
func (r *registrar) leave() {
	if r.lease == nil {
		return
	}
	timer := time.AfterFunc(closeTimeout, r.endLease)
	defer timer.Stop()
	if err := r.lease.Close(); err != nil {
		r.log.Warn("the record can not be taken away, its lease will end by itself", "err", err)
	}
	r.dropLease()
}
