// Package migrate runs the moves of an operation: it copies the keys of moving
// slots to their new group while clients go on writing, and hands the slots
// over in one transaction.
//
// The source stays the only owner, for reads and writes, until that
// transaction; proxies take no part before it. What was copied is never
// corrected by computing, only by copying again what the replication log says
// was written (docs/adr/0010-migration-by-recopy.md).
//
//	runner.go    an operation: which source is next, what people want
//	record.go    what is stored of it
//	check.go     what is looked at before anything is touched
//	attempt.go   one try at the moves of one source: prepare, copy, catch up
//	handover.go  hold, last copies, switch
//	copy.go      the fast path from node to node; pages.go for big keys
//	purge.go     removing copies from who does not own them
//	pace.go      throttle, pause
//
// Every state is stored before it is acted on. A new leader begins a new
// attempt for what was not switched, and goes forward with what was. To add a
// state: topo.MoveState, the order in attempt.go, what a new leader does with
// it (operation.next), and the crash test.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"shardis/coordinator/internal/handover"
	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	defaultPurgeDelay = 60 * time.Second
	defaultHotBudget  = 300 * time.Millisecond
	defaultHashRate   = 60 << 20
	maxAttempts       = 20 // in a row that brought nothing, then a move has failed
	backoffFirst      = 500 * time.Millisecond
	backoffMost       = 15 * time.Second
	settleWait        = 60 * time.Second // beyond the purge delay; then purging goes on behind the operation
)

// Runner runs operations of one leadership.
type Runner struct {
	st   *store.Store
	lead *store.Leadership
	hand *handover.Manager
	pool *node.Pool
	log  *slog.Logger

	// PurgeDelay is how long a source keeps what was moved away. New sets 60 s.
	PurgeDelay time.Duration
	// Failpoint, if set, is called before and after each state is stored.
	Failpoint func(state topo.MoveState, after bool)

	hotBudget time.Duration // how much of a hold big keys that change all the time may take
	hashRate  int64         // bytes a second of values of many allocations, see price
}

// New makes a runner. It starts nothing.
func New(st *store.Store, lead *store.Leadership, hand *handover.Manager, pool *node.Pool, log *slog.Logger) *Runner {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runner{st: st, lead: lead, hand: hand, pool: pool, log: log, PurgeDelay: defaultPurgeDelay, hotBudget: defaultHotBudget, hashRate: defaultHashRate}
}

var (
	// errCancelled: a person cancelled the operation.
	errCancelled = errors.New("the operation was cancelled")
	// errAgain: nothing is wrong for good, a new attempt may succeed.
	errAgain = errors.New("another attempt is needed")
)

// refusedError is a reason that another attempt would meet again.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func refuse(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// again wraps what ended an attempt but need not end the next.
func again(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errAgain, fmt.Errorf(format, args...))
}

// Run takes a migrate operation from whatever state it is in to its end. It
// returns early, with an error, only when ctx ends or the leadership is gone;
// an operation that fails is not an error of Run.
func (r *Runner) Run(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o, err := r.open(ctx, id)
	if err != nil || o.finished() {
		return err
	}
	defer o.close()
	if err := o.begin(ctx); err != nil {
		return err
	}
	if err := r.moveAll(ctx, o); err != nil {
		return err
	}
	if err := r.settle(ctx, o); err != nil {
		return err
	}
	return o.finish(ctx)
}

// moveAll makes attempts until no move is left that could be made.
func (r *Runner) moveAll(ctx context.Context, o *operation) error {
	tries, delay := 0, backoffFirst
	for {
		if o.wish() == topo.WishCancel {
			return r.giveUp(ctx, o, topo.MoveCancelled, errCancelled.Error())
		}
		w := o.next()
		if w == nil {
			if !o.parked() {
				return nil
			}
			if err := o.await(ctx, "waits for a person: a big key changes all the time, see the parked moves"); err != nil {
				return err
			}
			continue
		}
		var err error
		if w.source == "" {
			err = r.assign(ctx, o, w)
		} else {
			err = r.attempt(ctx, o, w)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var refused *refusedError
		switch {
		case err == nil:
			tries, delay = 0, backoffFirst
			continue
		case errors.Is(err, store.ErrNotLeader):
			return err
		case errors.Is(err, errCancelled):
			continue
		case errors.As(err, &refused):
			if err := r.giveUp(ctx, o, topo.MoveFailed, refused.reason, w.moves...); err != nil {
				return err
			}
			continue
		}
		if tries++; tries >= maxAttempts {
			if err := r.giveUp(ctx, o, topo.MoveFailed, fmt.Sprintf("gave up after %d attempts: %v", tries, err), w.moves...); err != nil {
				return err
			}
			tries, delay = 0, backoffFirst
			continue
		}
		r.log.Warn("attempt ended, trying again", "operation", o.id, "group", w.source, "took", delay, "err", err)
		if err := o.retry(ctx, w, err); err != nil {
			return err
		}
		if err := o.pause(ctx, delay); err != nil {
			return err
		}
		delay = min(2*delay, backoffMost)
	}
}

// assign gives slots without an owner to groups: one change of the topology,
// nothing to copy.
func (r *Runner) assign(ctx context.Context, o *operation, w *work) error {
	moves := o.moves(w.moves)
	t, _ := r.hand.Topology()
	for _, m := range moves {
		if t.Group(m.To) == nil {
			return refuse("group %s is not there any more", m.To)
		}
		for _, s := range m.Slots.Slots() {
			if owner := t.Owner(s); owner != "" {
				return refuse("slot %d belongs to group %s meanwhile", s, owner)
			}
		}
	}
	r.failpoint(topo.MoveDone, false)
	_, err := r.hand.Change(ctx, func(t *topo.Topology) {
		for _, m := range moves {
			t.Assign(m.Slots, m.To)
		}
	}, func(txn *store.Txn) {
		o.put(txn, func(op *topo.Operation) {
			for _, i := range w.moves {
				op.Moves[i].State, op.Moves[i].Reason = topo.MoveDone, ""
			}
		})
	})
	if err != nil {
		return again("assign slots: %w", err)
	}
	r.failpoint(topo.MoveDone, true)
	return o.reload(ctx)
}

// giveUp ends moves that were not switched: all of them, or those named. The
// source is still whole; what was copied is owed a purge, stored in the same
// transaction.
func (r *Runner) giveUp(ctx context.Context, o *operation, state topo.MoveState, reason string, only ...int) error {
	r.failpoint(state, false)
	err := o.update(ctx, func(op *topo.Operation) {
		if state == topo.MoveCancelled {
			op.State = topo.OpCancelling
		}
		for i := range op.Moves {
			m := &op.Moves[i]
			if m.State.Finished() || m.State == topo.MovePurging || len(only) > 0 && !contains(only, i) {
				continue
			}
			m.State, m.Reason = state, reason
		}
		addNote(op, string(state)+": "+reason)
	}, func(txn *store.Txn, before *topo.Operation) {
		for i, m := range before.Moves {
			if m.State.Finished() || m.State == topo.MovePurging || len(only) > 0 && !contains(only, i) || m.Attempt == "" {
				continue
			}
			p := topo.Purge{Format: topo.Format, Group: m.To, Attempt: m.Attempt, Slots: m.Slots}
			txn.Put(purgeKey(&p), p).Delete(store.PrefixAttempts + m.Attempt)
		}
	})
	if err == nil {
		r.failpoint(state, true)
	}
	return err
}

// settle waits until what the operation owes to its nodes is purged, but not
// for ever: a debt on a node that is away must not keep others waiting.
func (r *Runner) settle(ctx context.Context, o *operation) error {
	bounded, cancel := context.WithTimeout(ctx, r.PurgeDelay+settleWait)
	defer cancel()
	for batch := range r.st.Watch(bounded, store.PrefixPurges) {
		_ = batch // any change: look at all of them
		debts, err := store.LoadAll[topo.Purge](bounded, r.st, store.PrefixPurges)
		if err != nil {
			continue
		}
		left, err := o.settled(ctx, debts)
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return o.update(ctx, func(op *topo.Operation) {
		addNote(op, "purging takes long: it goes on after the operation's end")
	}, nil)
}

func (r *Runner) failpoint(state topo.MoveState, after bool) {
	if r.Failpoint != nil {
		r.Failpoint(state, after)
	}
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}
