package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Operations on groups and nodes. Every step is stored before it is acted on
// and can be done twice, so that a new leader begins again with the first one;
// the change of the topology and the operation's own record are one
// transaction, which says whether it was reached.
//
//	add:     check → attach → sync → users → join (topology + succeeded)
//	remove:  leave (topology) → clear nodes → succeeded, secret deleted
const (
	stepCheck  = "checking nodes"
	stepAttach = "attaching replicas"
	stepSync   = "waiting until replicas are in sync"
	stepUsers  = "giving nodes their users"
	stepJoin   = "joining"
	stepClear  = "clearing nodes"

	syncPoll      = 100 * time.Millisecond
	syncPatience  = 60 * time.Second // without any transfer under way
	nodePatience  = 15 * time.Second // of one step for a node that does not answer
	leavePatience = 30 * time.Second // until every proxy let go of a group
)

// cancellable reports whether an operation on a group has changed nothing yet
// that would have to be undone.
func cancellable(op *topo.Operation) bool {
	switch op.Step {
	case "", stepCheck, stepAttach, stepSync:
		return op.Kind == topo.OpAddGroup || op.Kind == topo.OpAddNode
	}
	return false
}

// refusal is why an operation failed for good. Other errors mean: try again.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

var errCancelled = errors.New("cancelled")

// groupWork is one running operation on a group or node.
type groupWork struct {
	*leading
	op     *topo.Operation
	group  string
	addrs  []string // of the request
	master string   // of the group
	run    string   // run id of the master of a new group
}

// runOnGroup takes an operation on a group to its end.
func (l *leading) runOnGroup(ctx context.Context, op *topo.Operation) error {
	w := &groupWork{leading: l, op: op, group: op.Request.Group}
	for _, n := range op.Request.Nodes {
		w.addrs = append(w.addrs, n.Addr)
	}
	adding := op.Kind == topo.OpAddGroup || op.Kind == topo.OpAddNode
	if adding {
		defer l.knowNodes(w.addrs, w.group)()
	}
	if op.State == topo.OpQueued {
		err := l.update(ctx, op.ID, func(op *topo.Operation) {
			op.State, op.StartedAt = topo.OpRunning, time.Now().UTC()
		}, nil)
		if err != nil {
			return err
		}
	}
	var err error
	if adding {
		err = w.add(ctx)
	} else {
		err = w.remove(ctx)
	}
	var no *refusal
	switch {
	case errors.Is(err, errCancelled):
		return w.undo(ctx, topo.OpCancelled, "cancelled")
	case errors.As(err, &no) && adding:
		return w.undo(ctx, topo.OpFailed, no.reason)
	case errors.As(err, &no):
		return w.finish(ctx, op.ID, topo.OpFailed, no.reason, nil)
	}
	return err
}

// knowNodes lets the pool find the login of nodes that are not in the topology
// yet, until the returned function is called.
func (l *leading) knowNodes(addrs []string, group string) (forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, addr := range addrs {
		l.joining[addr] = group
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, addr := range addrs {
			delete(l.joining, addr)
		}
	}
}

// enter stores that a step begins.
func (w *groupWork) enter(ctx context.Context, step string) error {
	if w.wish(w.op.ID) == topo.WishCancel && (step == stepAttach || step == stepSync || step == stepUsers) {
		return errCancelled
	}
	return w.update(ctx, w.op.ID, func(op *topo.Operation) {
		if op.Step != step {
			op.Step = step
			note(op, "%s", step)
		}
	}, nil)
}

// add lets nodes join: a new group, or replicas of one that exists.
func (w *groupWork) add(ctx context.Context) error {
	t, _ := w.hand.Topology()
	if err := w.aim(t); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{{stepCheck, w.check}, {stepAttach, w.attach}, {stepSync, w.awaitSync}} {
		if err := w.enter(ctx, step.name); err != nil {
			return err
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	if err := w.enter(ctx, stepUsers); err != nil {
		return err
	}
	defer w.hand.Forget(w.addrs...)
	bounded, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	if err := w.hand.Prepare(bounded, w.addrs...); err != nil {
		return w.failed(ctx, err)
	}
	if err := w.enter(ctx, stepJoin); err != nil {
		return err
	}
	return w.join(ctx)
}

// aim finds the group's master, and makes sure the nodes are free.
func (w *groupWork) aim(t *topo.Topology) error {
	g := t.Group(w.group)
	switch {
	case w.op.Kind == topo.OpAddGroup && g != nil:
		return refuse("group %s exists already", w.group)
	case w.op.Kind == topo.OpAddNode && g == nil:
		return refuse("group %s is not there any more", w.group)
	}
	for _, addr := range w.addrs {
		if other := t.GroupOfNode(addr); other != nil {
			return refuse("node %s belongs to group %s already", addr, other.ID)
		}
	}
	if g == nil {
		g = &topo.Group{Nodes: w.op.Request.Nodes}
	}
	w.master = g.Master()
	return nil
}

// failed tells a node's refusal from what a new leadership or a restart of ours
// would cure.
func (w *groupWork) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) || errors.Is(err, node.ErrPoolClosed) {
		return err
	}
	return refuse("%v", err)
}

// check looks at the nodes once more, now as the leader: time has passed since
// they were given.
func (w *groupWork) check(ctx context.Context) error {
	for _, n := range w.op.Request.Nodes {
		bounded, cancel := context.WithTimeout(ctx, nodePatience)
		err := w.checkNode(bounded, n)
		cancel()
		if err != nil {
			return w.failed(ctx, err)
		}
	}
	return nil
}

func (w *groupWork) checkNode(ctx context.Context, n topo.Node) error {
	admin, err := w.pool.Get(ctx, n.Addr)
	if err != nil {
		return err
	}
	s, err := admin.Status(ctx)
	if err != nil {
		return err
	}
	follows := s.Role == topo.Replica && sameAddr(s.MasterAddr, w.master)
	if n.Role == topo.Master {
		w.run = s.RunID
	}
	switch {
	case s.Loading:
		return fmt.Errorf("node %s is loading its data", n.Addr)
	case n.Role == topo.Master && s.Role != topo.Master:
		return fmt.Errorf("node %s became a replica of %s", n.Addr, s.MasterAddr)
	case n.Role == topo.Replica && s.Role == topo.Replica && !follows:
		return fmt.Errorf("node %s became a replica of %s", n.Addr, s.MasterAddr)
	case !follows && s.KeyCount() > 0:
		return fmt.Errorf("node %s is not empty any more: it holds %d keys", n.Addr, s.KeyCount())
	}
	return nil
}

// attach makes the replicas follow the master.
func (w *groupWork) attach(ctx context.Context) error {
	secret, err := w.groupSecret(ctx, w.group)
	if err != nil {
		return err
	}
	for _, n := range w.op.Request.Nodes {
		if n.Role != topo.Replica {
			continue
		}
		admin, err := w.pool.Get(ctx, n.Addr)
		if err != nil {
			return w.failed(ctx, err)
		}
		if err := admin.ReplicaOf(ctx, w.master, secret); err != nil {
			return w.failed(ctx, err)
		}
	}
	return nil
}

// awaitSync waits until the replicas have what the master has. It is patient
// with a transfer under way, not with a replica that can not begin one.
func (w *groupWork) awaitSync(ctx context.Context) error {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	last := time.Now() // that something was seen to move
	for {
		behind, moving, err := w.behind(ctx)
		switch {
		case err == nil && behind == "":
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err == nil && moving:
			last = time.Now()
		case time.Since(last) > syncPatience:
			if err == nil {
				err = fmt.Errorf("%s does not get in sync with %s: can it reach it, and does the master accept its password?", behind, w.master)
			}
			return w.failed(ctx, err)
		}
		if w.wish(w.op.ID) == topo.WishCancel {
			return errCancelled
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// behind names a replica that is not in sync yet, and says whether it gets data
// just now.
func (w *groupWork) behind(ctx context.Context) (addr string, moving bool, err error) {
	for _, n := range w.op.Request.Nodes {
		if n.Role != topo.Replica {
			continue
		}
		admin, err := w.pool.Get(ctx, n.Addr)
		if err != nil {
			return n.Addr, false, err
		}
		role, err := admin.Role(ctx)
		if errors.Is(err, node.ErrNotReady) {
			return n.Addr, true, nil
		}
		if err != nil {
			return n.Addr, false, err
		}
		if !role.InSync() || !sameAddr(role.MasterAddr, w.master) {
			return n.Addr, role.Link == "sync", nil
		}
	}
	return "", false, nil
}

// join puts the nodes into the topology, and ends the operation with it.
func (w *groupWork) join(ctx context.Context) error {
	var refused error
	next, err := w.hand.Change(ctx, func(t *topo.Topology) {
		if refused = w.aim(t); refused != nil {
			return
		}
		if w.op.Kind == topo.OpAddGroup {
			t.Groups = append(t.Groups, topo.Group{ID: w.group, Nodes: w.op.Request.Nodes, Run: w.run})
			return
		}
		g := t.Group(w.group)
		g.Nodes = append(g.Nodes, w.op.Request.Nodes...)
	}, func(txn *store.Txn) {
		if refused != nil {
			txn.Unchanged(store.PrefixOperations+w.op.ID, 0) // it exists: nothing is written
			return
		}
		w.putFinished(ctx, txn)
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return err
	}
	w.log.Info("nodes joined", "group", w.group, "nodes", strings.Join(w.addrs, ","), "epoch", next.Epoch)
	return nil
}

// putFinished adds the successful end of the operation to a transaction.
func (w *groupWork) putFinished(ctx context.Context, txn *store.Txn) {
	w.put(ctx, txn, func(op *topo.Operation) { finished(op, topo.OpSucceeded, "") })
}

// put adds a change of the operation's record to a transaction of the topology.
func (w *groupWork) put(ctx context.Context, txn *store.Txn, change func(*topo.Operation)) {
	key := store.PrefixOperations + w.op.ID
	op, rev, err := store.Load[topo.Operation](ctx, w.st, key)
	if err != nil {
		txn.Unchanged(key, 0) // does not hold: nothing is written
		return
	}
	change(&op)
	txn.Unchanged(key, rev).Put(key, op)
}

// undo ends an operation that added nothing: what it made on the nodes goes,
// as far as they can be reached, and so does the secret of a new group.
func (w *groupWork) undo(ctx context.Context, state topo.OperationState, reason string) error {
	if err := w.hand.Retired(ctx, w.addrs...); err != nil {
		return err
	}
	left := w.clear(ctx)
	return w.update(ctx, w.op.ID, func(op *topo.Operation) {
		left.note(op)
		finished(op, state, reason)
	}, func(txn *store.Txn) {
		if w.op.Kind == topo.OpAddGroup {
			txn.Delete(store.PrefixSecrets + w.group)
		}
	})
}

// remove takes a group, or replicas, out of the topology, and then everything
// of ours off the nodes.
func (w *groupWork) remove(ctx context.Context) error {
	if err := w.leave(ctx); err != nil {
		return err
	}
	t, _ := w.hand.Topology()
	bounded, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	// Proxies that still use the nodes are let go first; one that does not
	// follow is fenced by the clearing.
	if err := w.hand.WaitApplied(bounded, t.Epoch); err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrNotLeader)) {
		return err
	}
	if err := w.hand.Retired(ctx, w.addrs...); err != nil {
		return err
	}
	if err := w.unobserved(ctx, w.addrs); err != nil {
		return err
	}
	left := w.clear(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.update(ctx, w.op.ID, func(op *topo.Operation) {
		left.note(op)
		finished(op, topo.OpSucceeded, "")
	}, func(txn *store.Txn) {
		if w.op.Kind == topo.OpRemoveGroup {
			txn.Delete(store.PrefixSecrets + w.group).Delete(store.PrefixObserved + w.group)
		}
	})
}

// leave takes the nodes out of the topology, unless that was done before.
func (w *groupWork) leave(ctx context.Context) error {
	debts, _, err := w.st.List(ctx, store.PrefixPurges+w.group+"/")
	if err != nil {
		return err
	}
	if w.op.Kind == topo.OpRemoveGroup && len(debts) > 0 {
		return refuse("group %s still holds keys of slots that moved away, which are being removed", w.group)
	}
	t, _ := w.hand.Topology()
	if w.left(t) {
		return nil
	}
	var refused error
	next, err := w.hand.Change(ctx, func(t *topo.Topology) { refused = w.takeOut(t) }, func(txn *store.Txn) {
		if refused != nil {
			txn.Unchanged(store.PrefixOperations+w.op.ID, 0) // it exists: nothing is written
			return
		}
		w.put(ctx, txn, func(op *topo.Operation) {
			op.Step = stepClear
			note(op, "left the topology")
		})
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return err
	}
	w.log.Info("nodes left", "group", w.group, "nodes", strings.Join(w.addrs, ","), "epoch", next.Epoch)
	return nil
}

// left reports whether none of the nodes is in the topology.
func (w *groupWork) left(t *topo.Topology) bool {
	for _, addr := range w.addrs {
		if t.GroupOfNode(addr) != nil {
			return false
		}
	}
	return true
}

// takeOut changes the topology, or says why that must not be.
func (w *groupWork) takeOut(t *topo.Topology) error {
	g := t.Group(w.group)
	if g == nil {
		return refuse("group %s is not there any more", w.group)
	}
	if w.op.Kind == topo.OpRemoveGroup {
		if n := t.SlotsOf(w.group).Len(); n > 0 {
			return refuse("group %s owns %d slots", w.group, n)
		}
		keep := t.Groups[:0]
		for _, other := range t.Groups {
			if other.ID != w.group {
				keep = append(keep, other)
			}
		}
		t.Groups = keep
		return nil
	}
	keep := g.Nodes[:0]
	for _, n := range g.Nodes {
		if n.Addr != w.addrs[0] {
			keep = append(keep, n)
		} else if n.Role == topo.Master {
			return refuse("node %s is the master of group %s", n.Addr, w.group)
		}
	}
	g.Nodes = keep
	return nil
}

// leftovers are the nodes that could not be cleared, with the reason.
type leftovers map[string]error

func (l leftovers) note(op *topo.Operation) {
	for addr, err := range l {
		note(op, "node %s could not be cleared: %v; users named shardis-* stay on it until it restarts or somebody removes them", addr, err)
	}
}

// clear removes every user of ours from the nodes, as their administrator: the
// leader's own goes, too. A removed replica stops following its master.
func (w *groupWork) clear(ctx context.Context) leftovers {
	left := leftovers{}
	secret, err := w.groupSecret(ctx, w.group)
	if errors.Is(err, store.ErrNotFound) {
		return left // an earlier leader was here
	}
	for _, addr := range w.addrs {
		w.pool.Drop(addr)
		if err == nil {
			err = w.clearNode(ctx, addr, secret)
		}
		if err != nil {
			left[addr] = err
			w.log.Warn("node could not be cleared", "node", addr, "group", w.group, "err", err)
		}
		err = nil
	}
	return left
}

func (w *groupWork) clearNode(ctx context.Context, addr string, secret topo.Secret) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	admin, err := node.Open(ctx, addr, secret, node.Named("shardis-bootstrap"))
	if err != nil {
		return err
	}
	defer admin.Close()
	// As with every connection of a leader: opened first, then checked.
	if err := w.lease.Check(ctx); err != nil {
		return err
	}
	if w.op.Kind == topo.OpRemoveNode {
		if err := admin.Promote(ctx); err != nil {
			return err
		}
	}
	users, err := admin.Users(ctx)
	if err != nil {
		return err
	}
	var ours []string
	for _, u := range users {
		if strings.HasPrefix(u, node.UserPrefix) {
			ours = append(ours, u)
		}
	}
	_, err = admin.DeleteUser(ctx, ours...)
	return err
}
