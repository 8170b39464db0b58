package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"shardis/coordinator/internal/failover"
	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// A group gets another master. Two ways lead to the same road:
//
//	failover    choose ─────────────────────────────┐
//	switchover  hold → drain → offsets are equal ───┤
//	                                                ▼
//	             the topology says promoting, and to whom   (stored, with the operation)
//	             → the old master lets in nobody            (as far as it can be reached)
//	             → the other replicas follow the new one    (the old one starves)
//	             → REPLICAOF NO ONE, its users are right
//	             → switch: one transaction: roles, hold, operation
//	             → the old master follows the new one       (now, or when it is back: repair)
//
// Every step can be done twice. A new leader finds the promotion in the topology
// and goes on with the first step behind it; before it, it begins anew. Up to the
// switch nobody writes to the new master, so another may be chosen when it fails
// meanwhile, and where none is left all stays as it was.
const (
	stepChoose   = "choosing a replica"
	stepDrain    = "holding and draining"
	stepPromote  = "promoting"
	stepFollow   = "old master follows"
	drainTries   = 5
	drainPause   = 500 * time.Millisecond
	fenceWithin  = 300 * time.Millisecond
	followWithin = 500 * time.Millisecond // for the other replicas, together
	promoteIn    = 2 * time.Second        // for one try at a replica
	promoteAll   = 10 * time.Second       // then all stays as it was
	usersWithin  = time.Second
	equalWithin  = 400 * time.Millisecond
	freshWithin  = 500 * time.Millisecond
	stableFor    = 50 * time.Millisecond // received bytes are executed by then
	stableWithin = 200 * time.Millisecond
	equalPoll    = time.Millisecond
)

// masterWork is one running switchover or failover.
type masterWork struct {
	*leading
	op    *topo.Operation
	group string
}

// runOnMaster takes a switchover or failover to its end.
func (l *leading) runOnMaster(ctx context.Context, op *topo.Operation) error {
	w := &masterWork{leading: l, op: op, group: op.Request.Group}
	err := w.run(ctx)
	var no *refusal
	if errors.As(err, &no) {
		return w.finish(ctx, op.ID, topo.OpFailed, no.reason, nil)
	}
	return err
}

func (w *masterWork) run(ctx context.Context) error {
	t, _ := w.hand.Topology()
	if c := t.MasterChange(); c != nil && c.Operation == w.op.ID {
		return w.carryOut(ctx)
	}
	g := t.Group(w.group)
	if g == nil {
		return refuse("group %s is not there any more", w.group)
	}
	if g.Master() != w.op.Master.From {
		return refuse("the master of group %s is %s meanwhile", w.group, g.Master())
	}
	step := stepChoose
	if w.op.Kind == topo.OpSwitchover {
		step = stepDrain
	}
	err := w.update(ctx, w.op.ID, func(op *topo.Operation) {
		op.State, op.StartedAt = topo.OpRunning, cmp.Or(op.StartedAt, time.Now().UTC())
		if op.Step != step {
			op.Step = step
			note(op, "%s", step)
		}
	}, nil)
	if err != nil {
		return err
	}
	w.reached(step, true)
	if w.op.Kind == topo.OpSwitchover {
		err = w.planned(ctx, g)
	} else {
		err = w.begin(ctx, g, "")
	}
	if err != nil {
		return err
	}
	return w.carryOut(ctx)
}

// reached is where tests end a leader.
func (w *masterWork) reached(step string, after bool) {
	if w.failstep != nil {
		w.failstep(step, after)
	}
}

// begin chooses a replica, not the one named, and has the topology say so.
func (w *masterWork) begin(ctx context.Context, g *topo.Group, not string) error {
	choice, loss, err := w.choose(ctx, g, not)
	if err != nil {
		return err
	}
	w.reached(stepPromote, false)
	_, err = w.hand.ChangeMaster(ctx, w.change(choice.Addr), func(txn *store.Txn) {
		w.put(ctx, txn, func(op *topo.Operation) {
			op.Step, op.Master.To, op.Master.LossBytes = stepPromote, choice.Addr, loss
			op.Master.LossSeconds = max(0, time.Since(op.Master.Last).Seconds())
			note(op, "%s: replica %s takes over; it lacks %d bytes of the log as last seen %.1f s ago, and what was written since",
				op.Master.Reason, choice.Addr, loss, op.Master.LossSeconds)
		})
	})
	if errors.Is(err, store.ErrConflict) {
		return refuse("the master of group %s changed meanwhile", w.group)
	}
	if err == nil {
		w.reached(stepPromote, true)
	}
	return err
}

func (w *masterWork) change(to string) topo.MasterChange {
	return topo.MasterChange{Group: w.group, From: w.op.Master.From, To: to, Operation: w.op.ID}
}

// put adds a change of the operation's record to a transaction of the topology.
func (w *masterWork) put(ctx context.Context, txn *store.Txn, change func(*topo.Operation)) {
	(&groupWork{leading: w.leading, op: w.op}).put(ctx, txn, change)
}

// choose asks all replicas once more, waits until what they received is
// executed, and picks one.
func (w *masterWork) choose(ctx context.Context, t *topo.Group, not string) (*failover.Node, int64, error) {
	w.mu.Lock()
	g := w.groupNow(t, time.Now())
	strict := w.settings.Durability == topo.Strict
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, freshWithin+stableWithin)
	defer cancel()
	var asking sync.WaitGroup
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Addr == g.Master {
			continue
		}
		asking.Go(func() { w.settled(ctx, n) })
	}
	asking.Wait()
	to := w.op.Master.To
	var silent time.Duration
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Addr == g.Master {
			silent = n.Silent
		}
		switch {
		case n.Addr == not && n.Addr != g.Master:
			n.Status.Reachable = false
		case n.Addr == to && not == "" && w.op.CreatedBy != automatically:
			if why := failover.Unfit(g, n, false); why != "" {
				return nil, 0, refuse("node %s %s", to, why)
			}
			return n, failover.Loss(g, n), nil
		case n.Status.Role == topo.Master && n.Addr == w.unmadeFor(&g):
			return n, failover.Loss(g, n), nil // somebody made it the master, and the old one its replica
		}
	}
	choice, why := failover.Choose(g, strict && w.op.CreatedBy == automatically, silent)
	if choice == nil {
		return nil, 0, refuse("%s", why)
	}
	return choice, failover.Loss(g, choice), nil
}

// unmadeFor is the node that the group's master says it follows.
func (w *masterWork) unmadeFor(g *failover.Group) string {
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Addr == g.Master && n.Status.Reachable && n.Status.Role == topo.Replica {
			return n.Status.MasterAddr
		}
	}
	return ""
}

// settled asks a replica until its offset stands still, for a little.
func (w *masterWork) settled(ctx context.Context, n *failover.Node) {
	deadline := time.Now().Add(stableWithin)
	for last := int64(-1); ; {
		s, err := w.ask(ctx, n.Addr)
		n.Asked, n.Status = true, s
		if err != nil || s.Offset == last || !s.LinkUp || time.Now().After(deadline) {
			return
		}
		last = s.Offset
		select {
		case <-time.After(stableFor):
		case <-ctx.Done():
			return
		}
	}
}

// planned holds and drains the group until its replica has all that its master
// has, and has the topology say that it takes over.
func (w *masterWork) planned(ctx context.Context, g *topo.Group) error {
	for try := 1; ; try++ {
		err := w.drain(ctx, g)
		var no *refusal
		if err == nil || ctx.Err() != nil || errors.As(err, &no) || errors.Is(err, store.ErrNotLeader) {
			return err
		}
		if try == drainTries {
			return refuse("gave up after %d tries: %v", try, err)
		}
		w.log.Info("switchover put off", "operation", w.op.ID, "group", w.group, "err", err)
		select {
		case <-time.After(drainPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		t, _ := w.hand.Topology()
		if g = t.Group(w.group); g == nil || g.Master() != w.op.Master.From {
			return refuse("the master of group %s changed meanwhile", w.group)
		}
	}
}

func (w *masterWork) drain(ctx context.Context, g *topo.Group) error {
	choice, _, err := w.choose(ctx, g, "")
	if err != nil {
		return err
	}
	if role := choice.Status; !role.LinkUp || role.MasterAddr != g.Master() {
		return fmt.Errorf("replica %s is not in sync", choice.Addr)
	}
	from, err := w.pool.Get(ctx, g.Master())
	if err != nil {
		return err
	}
	to, err := w.pool.Get(ctx, choice.Addr)
	if err != nil {
		return err
	}
	t, _ := w.hand.Topology()
	began := func(txn *store.Txn) {
		w.put(ctx, txn, func(op *topo.Operation) {
			op.Step, op.Master.To, op.Master.Last = stepPromote, choice.Addr, time.Now().UTC()
			note(op, "replica %s has all that %s has and takes over", choice.Addr, op.Master.From)
		})
	}
	slots := t.SlotsOf(w.group)
	if len(slots) == 0 {
		w.reached(stepPromote, false)
		if _, err = w.hand.ChangeMaster(ctx, w.change(choice.Addr), began); err == nil {
			w.reached(stepPromote, true)
		}
		return err
	}
	held, err := w.hand.Hold(ctx, slots, w.op.ID)
	if err != nil {
		return err
	}
	defer func() { _ = held.Release(ctx) }()
	if err := equal(ctx, from, to); err != nil {
		return err
	}
	w.reached(stepPromote, false)
	if err := held.Promote(ctx, w.change(choice.Addr), began); err != nil {
		return err
	}
	w.reached(stepPromote, true)
	return nil
}

// equal returns once the replica has what its master has now.
func equal(ctx context.Context, from, to *node.Admin) error {
	ctx, cancel := context.WithTimeout(ctx, equalWithin)
	defer cancel()
	master, err := from.Role(ctx)
	if err != nil {
		return err
	}
	if master.Role != topo.Master {
		return fmt.Errorf("node %s is not a master", from.Addr())
	}
	for {
		replica, err := to.Role(ctx)
		switch {
		case err != nil:
			return err
		case !replica.InSync() || replica.MasterAddr != from.Addr():
			return fmt.Errorf("replica %s is not in sync", to.Addr())
		case replica.Offset >= master.Offset:
			return nil
		}
		select {
		case <-time.After(equalPoll):
		case <-ctx.Done():
			return fmt.Errorf("replica %s is %d bytes behind after %s", to.Addr(), master.Offset-replica.Offset, equalWithin)
		}
	}
}

// carryOut takes a change of master that the topology names to its end.
func (w *masterWork) carryOut(ctx context.Context) error {
	deadline := time.Now().Add(promoteAll)
	since := time.Now()
	for {
		t, _ := w.hand.Topology()
		c := t.MasterChange()
		if c == nil || c.Operation != w.op.ID {
			return nil // ended, by a transaction whose answer was lost
		}
		g := t.Group(w.group)
		err := w.promote(ctx, g, c, since)
		if err == nil {
			w.settleOld(ctx, c)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) || errors.Is(err, node.ErrPoolClosed) {
			return err
		}
		w.log.Warn("a replica could not take over", "operation", w.op.ID, "group", w.group, "node", c.To, "err", err)
		again := w.begin(ctx, g, c.To) // another one, if there is one
		var no *refusal
		if again != nil && !errors.As(again, &no) {
			return again
		}
		if again != nil && time.Now().After(deadline) {
			return w.leaveAsItWas(ctx, err)
		}
		if again != nil {
			select {
			case <-time.After(drainPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// leaveAsItWas ends a change of master that no replica could take.
func (w *masterWork) leaveAsItWas(ctx context.Context, cause error) error {
	_, err := w.hand.EndMasterChange(ctx, w.op.ID, nil, func(txn *store.Txn) {
		w.put(ctx, txn, func(op *topo.Operation) { finished(op, topo.OpFailed, cause.Error()) })
	})
	return err
}

// promote makes c.To the master and switches.
func (w *masterWork) promote(ctx context.Context, g *topo.Group, c *topo.MasterChange, since time.Time) error {
	fenced, err := w.hand.AwaitSettled(ctx, c.From, fenceWithin)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, promoteIn)
	defer cancel()
	to, err := w.pool.Get(bounded, c.To)
	if err != nil {
		return err
	}
	secret, err := w.groupSecret(bounded, w.group)
	if err != nil {
		return err
	}
	w.follow(bounded, g, c, secret)
	if err := to.Promote(bounded); err != nil {
		return err
	}
	if err := w.guardNew(bounded, c, to); err != nil {
		return err
	}
	status, err := to.Status(bounded)
	if err != nil {
		return err
	}
	if ok, err := w.hand.AwaitSettled(ctx, c.To, usersWithin); err != nil || !ok {
		return cmp.Or(err, fmt.Errorf("the users of node %s are not as they should be", c.To))
	}
	w.reached(stepFollow, false)
	next, err := w.hand.EndMasterChange(ctx, w.op.ID, func(t *topo.Topology) {
		group := t.Group(c.Group)
		for i := range group.Nodes {
			switch group.Nodes[i].Addr {
			case c.From:
				group.Nodes[i].Role = topo.Replica
			case c.To:
				group.Nodes[i].Role = topo.Master
			}
		}
		group.Run = status.RunID
	}, func(txn *store.Txn) {
		w.put(ctx, txn, func(op *topo.Operation) {
			m := op.Master
			m.Fenced, m.Offset, m.HoldMS = fenced, status.Offset, float64(time.Since(since).Microseconds())/1000
			m.OutageSeconds = max(0, time.Since(m.Last).Seconds())
			if !fenced {
				note(op, "the old master %s could not be reached: writes that it still takes from proxies cut off with it are lost", c.From)
			}
			finished(op, topo.OpSucceeded, "")
		})
		w.endGuard(txn, c)
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	if watcher := w.watchers[c.To]; watcher != nil {
		watcher.status, watcher.heard = status, time.Now() // not what it was before
	}
	w.mu.Unlock()
	w.reached(stepFollow, true)
	w.log.Warn("group has another master", "operation", w.op.ID, "kind", string(w.op.Kind), "group", w.group, "from", c.From, "to", c.To,
		"epoch", next.Epoch, "took", time.Since(since))
	return nil
}

// follow has the other replicas follow the new master, before it is one: what
// the old one still executes reaches nobody from then on.
func (w *masterWork) follow(ctx context.Context, g *topo.Group, c *topo.MasterChange, secret topo.Secret) {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	var running sync.WaitGroup
	for _, n := range g.Nodes {
		if n.Addr == c.From || n.Addr == c.To {
			continue
		}
		running.Go(func() {
			admin, err := w.pool.Get(ctx, n.Addr)
			if err == nil {
				err = admin.ReplicaOf(ctx, c.To, secret)
			}
			if err != nil {
				w.log.Warn("replica can not be told its new master yet", "node", n.Addr, "group", c.Group, "err", err)
			}
		})
	}
	running.Wait()
}

// settleOld has the old master follow the new one at once, where it can be
// reached. Else repair does that when it is back.
func (w *masterWork) settleOld(ctx context.Context, c *topo.MasterChange) {
	w.mu.Lock()
	delete(w.masters, w.group)
	watcher := w.watchers[c.From]
	away := watcher == nil || !watcher.status.Reachable
	w.mu.Unlock()
	if away {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, observeWithin)
	defer cancel()
	secret, err := w.groupSecret(bounded, w.group)
	if err == nil {
		var admin *node.Admin
		if admin, err = w.pool.Get(bounded, c.From); err == nil {
			err = admin.ReplicaOf(bounded, c.To, secret)
		}
	}
	if err != nil {
		w.log.Info("the old master does not follow yet", "node", c.From, "group", w.group, "err", err)
	}
}
