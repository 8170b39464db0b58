package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"shardis/coordinator/internal/handover"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Handing over. While the slots are held and drained no client's write to them
// is under way, so what the log names up to now is all there is to copy:
//
//	hold → drained → ROLE offset X → tail read up to X → copy what it named
//	  → again, until nothing named exists → WAIT → remove the mover's user → switch
//
// Between the switch and the first client on the target nothing of the mover
// can execute any more, since its user is gone. All of it must fit a budget;
// when it does not, the hold is released, nothing has changed for anybody, and
// it is tried again later with fewer slots.

const (
	holdBudget   = 500 * time.Millisecond  // from the hold being published to the switch
	holdLongest  = 1400 * time.Millisecond // proxies end a hold by themselves after 1.5 s
	replicasWait = 200 * time.Millisecond
	holdFirst    = time.Second // pause after a hold that failed
	holdMost     = 16 * time.Second
)

var (
	// errBudget: the last copies took too long; the hold was released.
	errBudget = errors.New("the last copies did not fit the time slots may be held")
	// errBig: a big key was written just before the hold. It is known now, and
	// the next time catching up sees to it.
	errBig = errors.New("a big key was written right before the hold")
	// errReplicas: a target's replicas did not confirm in time.
	errReplicas = errors.New("the target's replicas are behind")
)

// finish catches up and hands over until all slots of the attempt are gone.
func (a *attempt) finish(ctx context.Context) error {
	delay, size := holdFirst, 0 // size 0: all slots at once
	for {
		if err := a.op.enter(ctx, a.w, topo.MoveCatchingUp, nil); err != nil {
			return err
		}
		if err := a.catchUp(ctx); err != nil {
			return err
		}
		if err := a.park(ctx); err != nil {
			return err
		}
		part := firstSlots(a.slots(), size)
		if len(part) == 0 {
			return nil
		}
		if err := a.op.enter(ctx, a.w, topo.MoveHandingOver, nil); err != nil {
			return err
		}
		err := a.handOver(ctx, part)
		switch {
		case err == nil:
			delay = holdFirst
			if len(a.slots()) == 0 {
				return nil
			}
		case errors.Is(err, errBig):
			continue
		case errors.Is(err, errBudget):
			size = max(1, part.Len()/2)
			a.reprice(part)
		case errors.Is(err, handover.ErrNotDrained), errors.Is(err, store.ErrConflict), errors.Is(err, errReplicas):
		default:
			return err
		}
		if err != nil {
			a.r.log.Warn("hand-over put off", "operation", a.op.id, "slots", part.String(), "took", delay, "err", err)
			if err := a.putOff(ctx, err, delay); err != nil {
				return err
			}
			delay = min(2*delay, holdMost)
		}
		if a.fenced {
			if err := a.renew(ctx); err != nil {
				return err
			}
		}
	}
}

// firstSlots is the first n slots of a set, all when n is 0.
func firstSlots(all topo.SlotSet, n int) topo.SlotSet {
	if n == 0 || n >= all.Len() {
		return all
	}
	return topo.SlotSetOf(all.Slots()[:n])
}

// without is the slots of s that are not in other.
func without(s, other topo.SlotSet) topo.SlotSet {
	return topo.SlotSetOf(slices.DeleteFunc(s.Slots(), other.Contains))
}

// putOff shows why slots were not handed over and waits.
func (a *attempt) putOff(ctx context.Context, cause error, delay time.Duration) error {
	err := a.op.update(ctx, func(op *topo.Operation) {
		for _, i := range a.w.moves {
			op.Moves[i].Reason = cause.Error()
		}
	}, nil)
	if err != nil {
		return err
	}
	return sleep(ctx, delay)
}

// renew lets the mover write again after its user was removed for a switch
// that did not come about, or that was for part of the slots.
func (a *attempt) renew(ctx context.Context) error {
	t, _ := a.r.hand.Topology()
	if err := a.openTargets(ctx, t); err != nil {
		return again("connect to targets again: %w", err)
	}
	a.copier.targets, a.fenced = a.targets, false
	return nil
}

// handOver makes part belong to the targets. On errBudget, a NotDrained or a
// conflict nothing has changed, but the mover may be fenced.
func (a *attempt) handOver(ctx context.Context, part topo.SlotSet) error {
	a.copier.pace = func(ctx context.Context, _ int) error { return ctx.Err() }
	held, err := a.hold(ctx, part)
	if err != nil {
		return err
	}
	defer func() { _ = held.Release(a.base) }()
	drained := time.Since(held.Since)
	if err := a.lastCopies(ctx, held, part); err != nil {
		return err
	}
	debts, err := a.confirm(ctx, held, part)
	if err != nil {
		return err
	}
	copied := time.Since(held.Since)
	if copied > a.budget(part) {
		return errBudget
	}
	if err := a.fence(ctx); err != nil {
		return again("remove the mover's user: %w", err)
	}
	if err := a.commit(held, part, debts); err != nil {
		return err
	}
	a.r.log.Info("slots switched", "operation", a.op.id, "attempt", a.id, "group", a.w.source, "slots", part.String(),
		"took", time.Since(held.Since), "drained", drained, "copied", copied)
	return nil
}

// hold gets the slots held and drained. Before that, others may have to catch
// up with the topology; copying goes on meanwhile.
func (a *attempt) hold(ctx context.Context, part topo.SlotSet) (*handover.Held, error) {
	type outcome struct {
		held *handover.Held
		err  error
	}
	got := make(chan outcome, 1)
	go func() {
		held, err := a.r.hand.Hold(ctx, part, a.id)
		got <- outcome{held, err}
	}()
	ticker := time.NewTicker(readyWithin)
	defer ticker.Stop()
	for {
		select {
		case o := <-got:
			return o.held, o.err
		case <-ticker.C:
		}
		if a.names.len() < 50 {
			continue
		}
		if err := a.copyRound(ctx); err != nil {
			if o := <-got; o.held != nil {
				_ = o.held.Release(a.base)
			}
			return nil, err
		}
	}
}

// budget is how long part may be held: longer where a person allowed a hot key.
func (a *attempt) budget(part topo.SlotSet) time.Duration {
	budget := holdBudget
	for _, k := range a.hotOf(part) {
		if a.op.allowed(k.name) {
			budget += k.price
		}
	}
	return min(budget, holdLongest)
}

// lastCopies brings the targets' copies of part up to date. The hold is
// released when that takes too long, but what is under way is waited for.
func (a *attempt) lastCopies(ctx context.Context, held *handover.Held, part topo.SlotSet) error {
	done := make(chan error, 1)
	go func() { done <- a.copyLast(ctx, part) }()
	timer := time.NewTimer(time.Until(held.Since.Add(a.budget(part))))
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		_ = held.Release(a.base)
		if err := <-done; err != nil {
			return err
		}
		return errBudget
	}
}

func (a *attempt) copyLast(ctx context.Context, part topo.SlotSet) error {
	if err := a.readLog(ctx); err != nil {
		return err
	}
	if err := a.copyHot(ctx, part); err != nil {
		return err
	}
	for {
		names := a.takeNames(part)
		if len(names) == 0 {
			return nil
		}
		found, big, err := a.copyNamed(ctx, names, false)
		if err != nil {
			return err
		}
		for _, k := range big {
			if k.price, err = a.price(k); err != nil {
				return err
			}
			if k.price > a.r.hotBudget/2 {
				a.names.put([]string{k.name}) // in pages, after the release
				a.pages[k.name] += 0
				return errBig
			}
			if _, _, err := a.copier.reread(ctx, a.src.master, k.db, []string{k.name}, true); err != nil {
				return again("copy changed keys: %w", err)
			}
		}
		// Expiry goes on naming keys; those that are only gone ask for no more.
		if found == 0 {
			return nil
		}
		if err := a.readLog(ctx); err != nil {
			return err
		}
	}
}

// readLog returns once everything the master has executed was named.
func (a *attempt) readLog(ctx context.Context) error {
	at, err := a.position()
	if err != nil {
		return err
	}
	if err := a.src.tail.Wait(ctx, at); err != nil {
		return again("read the replication log: %w", err)
	}
	return nil
}

// confirm makes sure, after the last copy, that everybody still is who they
// were and that the targets' replicas have the copies. It returns what the
// source will owe.
func (a *attempt) confirm(ctx context.Context, held *handover.Held, part topo.SlotSet) (map[int]topo.Purge, error) {
	if err := a.sameSource(); err != nil {
		return nil, err
	}
	debts := map[int]topo.Purge{}
	for i, t := range a.targets {
		slots := common(a.moves[i].Slots, part)
		if len(slots) == 0 {
			continue
		}
		replicas, offset, evicted, err := t.verify(ctx)
		if err != nil {
			return nil, again("target: %w", err)
		}
		if err := t.waitReplicas(ctx, replicas, max(time.Millisecond, min(replicasWait, a.budget(part)-time.Since(held.Since)))); err != nil {
			return nil, fmt.Errorf("%w: %w", errReplicas, err)
		}
		if evicted > 0 {
			a.r.log.Warn("target evicted keys while it was filled", "operation", a.op.id, "group", t.group, "count", evicted)
		}
		debts[i] = topo.Purge{
			Format: topo.Format, Group: a.w.source, Attempt: a.id, Slots: slots,
			Epoch: held.Topology().Epoch + 1, After: time.Now().UTC().Add(a.r.PurgeDelay),
			Target: t.group, Offset: offset,
		}
	}
	return debts, nil
}

// fence ends the mover: once it returned, nothing of it executes any more.
func (a *attempt) fence(ctx context.Context) error {
	a.fenced = true
	for _, t := range a.targets {
		t.close()
	}
	done := map[string]bool{}
	for _, t := range a.targets {
		if addr := t.conn.Addr(); !done[addr] {
			done[addr] = true
			admin, err := a.r.pool.Get(ctx, addr)
			if err != nil {
				return err
			}
			if _, err := admin.DeleteUser(ctx, a.user); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit is the switch: the owner, the debts and the operation's state change
// in one transaction.
func (a *attempt) commit(held *handover.Held, part topo.SlotSet, debts map[int]topo.Purge) error {
	a.r.failpoint(topo.MovePurging, false)
	_, err := held.Switch(a.base, func(t *topo.Topology) {
		for i, d := range debts {
			t.Assign(d.Slots, a.moves[i].To)
		}
	}, func(txn *store.Txn) {
		for _, d := range debts {
			txn.Put(purgeKey(&d), d)
		}
		if len(without(a.slots(), part)) == 0 {
			txn.Delete(store.PrefixAttempts + a.id)
		}
		a.op.put(txn, func(op *topo.Operation) {
			for i, d := range debts {
				hold := float64(time.Since(held.Since).Microseconds()) / 1000
				split(op, a.w.moves[i], d.Slots, func(m *topo.MoveProgress) {
					m.State, m.HoldMS, m.Reason = topo.MovePurging, hold, ""
				})
			}
		})
	})
	if err != nil {
		return err
	}
	a.r.failpoint(topo.MovePurging, true)
	if err := a.op.reload(a.base); err != nil {
		return err
	}
	a.leave(part)
	return nil
}

// leave forgets slots that are no more the attempt's business.
func (a *attempt) leave(slots topo.SlotSet) {
	a.names.leave(slots)
	for i := range a.moves {
		a.moves[i].Slots = without(a.moves[i].Slots, slots)
	}
	for name := range a.hot {
		if slots.Contains(a.route.scheme.SlotOf([]byte(name))) {
			delete(a.hot, name)
		}
	}
}

func common(a, b topo.SlotSet) topo.SlotSet {
	return topo.SlotSetOf(slices.DeleteFunc(a.Slots(), func(s topo.Slot) bool { return !b.Contains(s) }))
}

// split changes the part of move i that is about slots. When that is not all
// of it, the part becomes a move of its own at the end of the list, so that
// the places of others stay.
func split(op *topo.Operation, i int, slots topo.SlotSet, change func(*topo.MoveProgress)) {
	m := &op.Moves[i]
	rest := without(m.Slots, slots)
	if len(rest) == 0 {
		change(m)
		return
	}
	part := *m
	part.Slots = slots
	share := float64(slots.Len()) / float64(m.Slots.Len())
	part.KeysDone, part.KeysTotal, part.BytesDone = int64(share*float64(m.KeysDone)), int64(share*float64(m.KeysTotal)), int64(share*float64(m.BytesDone))
	m.Slots, m.KeysDone, m.KeysTotal, m.BytesDone = rest, m.KeysDone-part.KeysDone, m.KeysTotal-part.KeysTotal, m.BytesDone-part.BytesDone
	change(&part)
	op.Moves = append(op.Moves, part)
}
