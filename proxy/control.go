package proxy

// control decides which topology the engine runs.
//
// A topology is run only if it is of the same cluster and history as the one
// before and of a higher epoch, and only while it lists this proxy, with its
// own incarnation, as admitted: the nodes let nobody else in, and a proxy that
// is not listed is not waited for in a hand-over. A proxy that finds itself
// evicted, or gone, takes a fresh incarnation and registers anew; clients'
// commands wait meanwhile.
//
// The order of things for a new topology:
//
//	engine.Apply ─▶ loops run it ─▶ drained ─┐
//	      │                                  ├─▶ report (register.go)
//	cache written, synced ───────────────────┘
//
// Serving by it need not wait for the disk, only the report must: the leader
// acts on what was reported, and a crash before that leaves a proxy that
// restarts with an older topology and that nobody counted on.
//
// Invariant: reported epoch ≤ epoch on disk, and ≤ lowest epoch of any loop.
//
// A hold that its leader did not end in time is cancelled here: one
// transaction compares the topology's revision alone, so of several proxies
// and the leader exactly one succeeds. Never by a timer in the engine: a
// proxy that resumed on its own while the switch commits would lose writes.
//
// control is used by three goroutines: follow (run), registrar and admin port;
// mu guards what they share.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	cacheRetry  = time.Second // after the disk failed
	cancelRetry = 500 * time.Millisecond
	holdTimeout = 1500 * time.Millisecond // of a hold that names none
	// An incarnation that was evicted before this proxy ever saw itself
	// admitted is never admitted again: after so long try another, then wait
	// twice as long each time, up to the most.
	admissionFirst = 20 * time.Second
	admissionMost  = 5 * time.Minute
)

type control struct {
	cfg       *Config
	log       *slog.Logger
	folder    *folder
	engine    engine
	store     *store.Store
	startedAt time.Time
	wake      chan struct{} // poked, capacity 1, when the record may differ
	rates     rates

	mu          sync.Mutex
	id          identity
	topology    *topo.Topology // newest accepted; nil before the first
	rev         int64          // its etcd revision, 0 while known from the cache only
	acceptedAt  time.Time
	serving     bool       // the engine runs topology
	synced      topo.Epoch // newest epoch on disk
	overdue     time.Time  // when to cancel the hold of topology; zero: no hold, or not ours to cancel
	patience    time.Time  // when to try another incarnation; zero while admitted
	patienceFor time.Duration
	registered  bool      // the record stands under a live lease
	confirmed   time.Time // when etcd last said that topology is the newest
	draining    bool
	unreachable []topo.Unreachable
	refusedRev  int64 // last revision that was refused, to log it once
	addr, admin string
	applied     reported
}

// reported is the part of the record that hand-overs wait for.
type reported struct {
	epoch         topo.Epoch
	hold, drained string
}

func (c *control) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// load starts with the cached topology, if there is one.
func (c *control) load(cached *topo.Topology) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patienceFor = admissionFirst
	c.patience = time.Now().Add(c.patienceFor)
	if cached == nil {
		return
	}
	c.synced = cached.Epoch
	c.confirmed = time.Now()
	c.adopt(cached, 0)
}

// follow watches the topology until ctx ends.
func (c *control) follow(ctx context.Context) {
	batches := c.store.Watch(ctx, store.KeyTopology)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.nextDue())
		select {
		case batch, open := <-batches:
			if !open {
				return
			}
			c.take(latest(batch, batches))
		case <-timer.C:
			c.cancelOverdue(ctx)
			c.tryAnother()
		}
		c.save()
	}
}

// latest skips batches that are already superseded: only the newest matters.
func latest(batch store.Batch, batches <-chan store.Batch) store.Batch {
	for {
		select {
		case next, open := <-batches:
			if !open {
				return batch
			}
			batch = next
		default:
			return batch
		}
	}
}

// nextDue is how long follow may wait for a batch before something is due.
func (c *control) nextDue() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Hour
	for _, due := range []time.Time{c.overdue, c.patience} {
		if !due.IsZero() {
			wait = min(wait, max(0, time.Until(due)))
		}
	}
	if c.topology != nil && c.synced < c.topology.Epoch {
		wait = min(wait, cacheRetry)
	}
	return wait
}

// take looks at what etcd holds now.
func (c *control) take(batch store.Batch) {
	var item store.Item
	for _, put := range batch.Puts { // The watched prefix is a whole key, but be sure.
		if put.Key == store.KeyTopology {
			item = put
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if item.Rev == 0 {
		c.refuse(batch.Rev, errors.New("the topology is missing in etcd"))
		return
	}
	t, err := topo.DecodeTopology(item.Value)
	if err == nil {
		err = c.admissible(t)
	}
	if err != nil {
		c.refuse(item.Rev, err)
		return
	}
	c.confirmed = time.Now()
	if c.topology != nil && t.Epoch == c.topology.Epoch {
		c.rev = item.Rev
		return
	}
	c.adopt(t, item.Rev)
}

// admissible says whether t may follow the topology before it.
func (c *control) admissible(t *topo.Topology) error {
	switch now := c.topology; {
	case now == nil:
		return nil
	case t.Cluster != now.Cluster || t.History != now.History:
		return fmt.Errorf("the topology in etcd is of another history (cluster %s, history %s, here %s, %s): if that is meant, "+
			"stop this proxy, remove %s and start it", t.Cluster, t.History, now.Cluster, now.History, c.folder.dir)
	case t.Epoch < now.Epoch:
		return fmt.Errorf("the topology in etcd is of epoch %d, older than %d: was etcd restored from a backup?", t.Epoch, now.Epoch)
	}
	return nil
}

// refuse keeps the topology there is, and says so once.
func (c *control) refuse(rev int64, err error) {
	if rev == c.refusedRev {
		return
	}
	c.refusedRev = rev
	var epoch topo.Epoch
	if c.topology != nil {
		epoch = c.topology.Epoch
	}
	c.log.Error("topology refused, keeping the one before", "rev", rev, "epoch", epoch, "err", err)
}

// adopt makes t the newest topology and has the engine run it if it admits
// this proxy. mu is held.
func (c *control) adopt(t *topo.Topology, rev int64) {
	now := time.Now()
	c.topology, c.rev, c.acceptedAt, c.overdue = t, rev, now, time.Time{}
	member := t.Member(c.id.ID)
	mine := member != nil && member.Incarnation == c.id.Incarnation
	switch {
	case mine && member.State == topo.Admitted:
		c.engine.Apply(t)
		if !c.serving {
			c.log.Info("admitted", "epoch", t.Epoch, "user", c.id.user())
		}
		c.serving, c.patience, c.patienceFor = true, time.Time{}, admissionFirst
		if t.Hold != nil && t.Hold.Phase == topo.Holding {
			timeout := t.Hold.Timeout
			if timeout <= 0 {
				timeout = holdTimeout
			}
			c.overdue = now.Add(timeout)
		}
		if !c.id.Admitted {
			c.id.Admitted = true
			if err := c.folder.saveIdentity(c.id); err != nil {
				// Not remembered: after a restart it takes longer to notice an eviction.
				c.log.Error("identity can not be stored", "err", err)
			}
		}
	case mine: // evicting
		c.renew(c.id.ID, "evicted")
	case c.id.Admitted:
		c.renew(c.id.ID, "no longer a member")
	}
	c.poke()
}

// identity is who this proxy is now.
func (c *control) identity() identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// renew takes a fresh incarnation and password; an empty id asks for a fresh
// id too. Until it is admitted the engine runs no topology. mu is held.
func (c *control) renew(id, reason string) {
	former := c.id.user()
	c.engine.Apply(nil)
	c.serving, c.overdue = false, time.Time{}
	fresh, err := c.folder.renew(id)
	if err != nil {
		// The stored identity is one that the nodes refuse: after a restart
		// this happens again, which is harmless.
		c.log.Error("identity can not be stored", "err", err)
	}
	c.id, c.applied = fresh, reported{}
	c.patience = time.Now().Add(c.patienceFor)
	c.engine.SetCredentials(fresh.user(), fresh.Password)
	c.log.Warn("taking a new incarnation", "reason", reason, "from", former, "to", fresh.user())
	c.poke()
}

// tryAnother renews an incarnation that was not admitted for long although the
// cluster knows of it.
func (c *control) tryAnother() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.patience.IsZero() || time.Now().Before(c.patience) {
		return
	}
	if !c.registered {
		c.patience = time.Now().Add(c.patienceFor)
		return
	}
	c.patienceFor = min(2*c.patienceFor, admissionMost)
	c.renew(c.id.ID, "not admitted for long: does a coordinator run, and what does its log say of this proxy?")
}

// save brings the cache up to the newest topology.
func (c *control) save() {
	c.mu.Lock()
	t := c.topology
	current := t == nil || t.Epoch <= c.synced
	c.mu.Unlock()
	if current {
		return
	}
	if err := c.folder.saveTopology(c.cfg.Cluster, t, time.Now()); err != nil {
		c.log.Error("topology can not be stored: not reporting it as applied", "epoch", t.Epoch, "err", err)
		return
	}
	c.mu.Lock()
	c.synced = t.Epoch
	c.mu.Unlock()
	c.poke()
}

// cancelOverdue gives held slots back to their owners when the leader did not
// end the hold in time.
func (c *control) cancelOverdue(ctx context.Context) {
	c.mu.Lock()
	t, rev, due := c.topology, c.rev, c.overdue
	if due.IsZero() || time.Now().Before(due) {
		c.mu.Unlock()
		return
	}
	c.overdue = time.Now().Add(cancelRetry + rand.N(cancelRetry))
	c.mu.Unlock()
	if rev == 0 {
		return // Known from the cache only: etcd was not reached yet.
	}
	next, err := t.Next(func(n *topo.Topology) { n.Hold = nil })
	if err == nil {
		commit, stop := context.WithTimeout(ctx, time.Second)
		_, err = c.store.Begin().Unchanged(store.KeyTopology, rev).Put(store.KeyTopology, next).Commit(commit)
		stop()
	}
	switch {
	case err == nil:
		c.log.Warn("overdue hold cancelled", "epoch", next.Epoch, "hold", t.Hold.ID, "slots", t.Hold.Slots.String())
	case errors.Is(err, store.ErrConflict):
		c.log.Info("overdue hold was ended by another", "epoch", t.Epoch, "hold", t.Hold.ID)
	case ctx.Err() == nil:
		c.log.Warn("overdue hold can not be cancelled yet", "epoch", t.Epoch, "hold", t.Hold.ID, "err", err)
	}
}

// record is what to tell the cluster now. settled is false while the report of
// a drained hold is probably about to follow.
func (c *control) record() (record topo.ProxyRecord, credential topo.Credential, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	settled = true
	if t := c.topology; c.serving && c.synced >= t.Epoch && c.engine.Applied() == t.Epoch {
		c.applied = reported{epoch: t.Epoch}
		if t.Hold != nil {
			c.applied.hold = t.Hold.ID
			if c.engine.Drained() == t.Hold.ID {
				c.applied.drained = t.Hold.ID
			}
			settled = c.applied.drained != ""
		}
	}
	record = topo.ProxyRecord{
		Format: topo.Format, ID: c.id.ID, Incarnation: c.id.Incarnation,
		Addr: c.addr, Admin: c.admin, Zone: c.cfg.Zone, Version: c.cfg.Version,
		PID: os.Getpid(), StartedAt: c.startedAt,
		AppliedEpoch: c.applied.epoch, AppliedHold: c.applied.hold, DrainedHold: c.applied.drained,
		Draining: c.draining, Unreachable: c.unreachable,
	}
	credential = topo.Credential{Format: topo.Format, ID: c.id.ID, Incarnation: c.id.Incarnation, PasswordHash: c.id.passwordHash()}
	return record, credential, settled
}
