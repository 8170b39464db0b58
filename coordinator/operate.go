package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"shardis/coordinator/internal/planner"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Operations wait in one queue, in the order of their ids, which is that of
// their creation. An operation begins when no earlier unfinished one works on
// any of its groups, and a migration only after every earlier migration ended;
// a failover begins at once, a switchover beside a migration.
// Nothing of that is stored: a new leader looks at the unfinished ones and goes
// on; each knows from its record how far it came.

const (
	retryOperation = time.Second // after a failure that is not the operation's own
	maxNotes       = 100
	storeWithin    = 5 * time.Second
)

// watchOperations keeps ops and controls current.
func (l *leading) watchOperations(ctx context.Context) error {
	ops, controls, settings := l.st.Watch(ctx, store.PrefixOperations), l.st.Watch(ctx, store.PrefixControls), l.st.Watch(ctx, store.KeySettings)
	all := map[string]topo.Settings{}
	for {
		var batch store.Batch
		var more bool
		select {
		case batch, more = <-ops:
			if more {
				apply(l, l.ops, store.PrefixOperations, batch)
			}
		case batch, more = <-controls:
			if more {
				apply(l, l.controls, store.PrefixControls, batch)
			}
		case batch, more = <-settings:
			if more {
				apply(l, all, store.KeySettings, batch)
				l.mu.Lock()
				l.settings = all[""]
				l.mu.Unlock()
			}
		}
		if !more {
			return ctx.Err()
		}
		l.look()
	}
}

// apply brings one watched map up to date.
func apply[T any](l *leading, m map[string]T, prefix string, b store.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Reset {
		clear(m)
		l.heard[prefix] = true
	}
	for _, item := range b.Puts {
		var v T
		if err := item.Decode(&v); err != nil {
			l.log.Error("stored value is not readable", "key", item.Key, "err", err)
			continue
		}
		m[strings.TrimPrefix(item.Key, prefix)] = v
	}
	for _, key := range b.Deletes {
		delete(m, strings.TrimPrefix(key, prefix))
	}
}

// look wakes the scheduler.
func (l *leading) look() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// schedule begins operations as their turn comes.
func (l *leading) schedule(ctx context.Context) error {
	if err := l.hand.Wait(ctx); err != nil {
		return err
	}
	ended := make(chan error)
	count := 0
	defer func() {
		for ; count > 0; count-- {
			<-ended
		}
	}()
	for {
		for _, op := range l.startable() {
			opCtx, cancel := context.WithCancel(ctx)
			l.mu.Lock()
			l.running[op.ID] = cancel
			l.mu.Unlock()
			count++
			go func() { ended <- l.operate(opCtx, op) }()
		}
		select {
		case err := <-ended:
			count--
			if errors.Is(err, store.ErrNotLeader) {
				return err
			}
		case <-l.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startable lists the operations whose turn it is and that do not run yet.
func (l *leading) startable() []topo.Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var earlier, start []topo.Operation
	if !l.heard[store.PrefixOperations] || !l.heard[store.PrefixControls] {
		return nil // one without the other would run what was cancelled
	}
	for _, id := range slices.Sorted(maps.Keys(l.ops)) {
		op := l.ops[id]
		if op.State.Finished() {
			continue
		}
		blocked := slices.ContainsFunc(earlier, func(e topo.Operation) bool { return inTheWay(&e, &op) })
		cancelled := op.State == topo.OpQueued && l.controls[id].Wish == topo.WishCancel
		if _, runs := l.running[id]; !runs && (!blocked || cancelled) {
			start = append(start, op)
		}
		earlier = append(earlier, op)
	}
	return start
}

// inTheWay reports whether op has to wait until the earlier one ended.
func inTheWay(earlier, op *topo.Operation) bool {
	switch {
	case earlier.Kind == topo.OpMigrate && op.Kind == topo.OpMigrate:
		return true
	case op.Kind == topo.OpFailover && earlier.Kind != topo.OpFailover, op.Kind == topo.OpSwitchover && earlier.Kind == topo.OpMigrate:
		return false // a failover waits for nobody; a migration makes a new attempt with the new master
	}
	groups := groupsOf(op)
	return slices.ContainsFunc(groupsOf(earlier), func(id string) bool { return slices.Contains(groups, id) })
}

// operate takes one operation to its end.
func (l *leading) operate(ctx context.Context, op topo.Operation) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotLeader) {
			l.log.Warn("operation is interrupted, trying again", "operation", op.ID, "err", err)
			select {
			case <-time.After(retryOperation):
			case <-ctx.Done():
			}
		}
		l.mu.Lock()
		l.running[op.ID]()
		delete(l.running, op.ID)
		l.mu.Unlock()
		l.look()
	}()
	if op.State == topo.OpQueued && l.wish(op.ID) == topo.WishCancel {
		return l.finish(ctx, op.ID, topo.OpCancelled, "cancelled before it began", nil)
	}
	l.log.Info("operation runs", "operation", op.ID, "kind", string(op.Kind), "state", string(op.State))
	switch op.Kind {
	case topo.OpMigrate:
		err = l.runMigrate(ctx, &op)
	case topo.OpAddGroup, topo.OpAddNode, topo.OpRemoveGroup, topo.OpRemoveNode:
		err = l.runOnGroup(ctx, &op)
	case topo.OpSwitchover, topo.OpFailover:
		err = l.runOnMaster(ctx, &op)
	default:
		err = l.finish(ctx, op.ID, topo.OpFailed, fmt.Sprintf("kind %q is not known to this release", op.Kind), nil)
	}
	if err == nil {
		l.ended(ctx, op.ID)
	}
	return err
}

// ended logs how an operation ended, and counts it.
func (l *leading) ended(ctx context.Context, id string) {
	op, _, err := store.Load[topo.Operation](ctx, l.st, store.PrefixOperations+id)
	if err != nil || !op.State.Finished() {
		return
	}
	l.mu.Lock()
	l.ops[id] = op // not later than the watch does: it must not be begun again
	l.mu.Unlock()
	took := time.Duration(0)
	if !op.StartedAt.IsZero() {
		took = op.FinishedAt.Sub(op.StartedAt)
	}
	l.counts.operation(&op, took)
	l.log.Info("operation ended", "operation", id, "kind", string(op.Kind), "state", string(op.State), "reason", op.Reason, "took", took)
}

// runMigrate hands the moves to the runner, after a last look at whether the
// plan still fits: other operations may have come before it.
func (l *leading) runMigrate(ctx context.Context, op *topo.Operation) error {
	if op.State == topo.OpQueued {
		plan := &topo.Plan{}
		for _, m := range op.Moves {
			plan.Moves = append(plan.Moves, m.Move)
		}
		t, _ := l.hand.Topology()
		if err := planner.Conflicts(plan, t); err != nil {
			return l.finish(ctx, op.ID, topo.OpFailed, "the plan no longer fits: "+err.Error(), nil)
		}
	}
	return l.runner.Run(ctx, op.ID)
}

func (l *leading) wish(id string) topo.Wish {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.controls[id].Wish
}

// update changes the record of an operation that is not the runner's, with
// more in the same transaction. It waits for etcd as long as it takes.
func (l *leading) update(ctx context.Context, id string, change func(*topo.Operation), more func(*store.Txn)) error {
	for {
		err := l.tryUpdate(ctx, id, change, more)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRefused) {
			return err
		}
		l.log.Warn("can not store an operation, trying again", "operation", id, "err", err)
		select {
		case <-time.After(retryOperation):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *leading) tryUpdate(ctx context.Context, id string, change func(*topo.Operation), more func(*store.Txn)) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	key := store.PrefixOperations + id
	op, rev, err := store.Load[topo.Operation](ctx, l.st, key)
	if err != nil {
		return err
	}
	change(&op)
	op.UpdatedAt = time.Now().UTC()
	txn := l.lease.Begin().Unchanged(key, rev).Put(key, op)
	if more != nil {
		more(txn)
	}
	_, err = txn.Commit(ctx)
	return err
}

// finish ends an operation.
func (l *leading) finish(ctx context.Context, id string, state topo.OperationState, reason string, more func(*store.Txn)) error {
	return l.update(ctx, id, func(op *topo.Operation) { finished(op, state, reason) }, more)
}

// finished fills in the end of an operation. Once it ended it stays so.
func finished(op *topo.Operation, state topo.OperationState, reason string) {
	if op.State.Finished() {
		return
	}
	now := time.Now().UTC()
	op.State, op.Reason, op.Step, op.FinishedAt, op.UpdatedAt = state, reason, "", now, now
	op.Progress.ETASeconds = 0
	if state == topo.OpSucceeded {
		op.Progress.Fraction = 1
	}
	for i := range op.Moves {
		if m := &op.Moves[i]; !m.State.Finished() {
			switch state {
			case topo.OpCancelled:
				m.State = topo.MoveCancelled
			case topo.OpFailed:
				m.State, m.Reason = topo.MoveFailed, reason
			}
		}
	}
	if reason != "" {
		note(op, "%s: %s", state, reason)
	} else {
		note(op, "%s", state)
	}
}

// note adds a line to an operation's log.
func note(op *topo.Operation, format string, args ...any) {
	op.Log = append(op.Log, topo.Note{At: time.Now().UTC(), Text: fmt.Sprintf(format, args...)})
	if extra := len(op.Log) - maxNotes; extra > 0 {
		op.Log = slices.Clone(op.Log[extra:])
	}
}
