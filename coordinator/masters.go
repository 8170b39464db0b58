package coordinator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"shardis/coordinator/internal/failover"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Each group's master is judged ten times a second, by what the watchers saw
// last (internal/failover). What follows from a verdict is an operation, so that
// people see it, and a new leader goes on with it: see failover.go.

const (
	judgeEvery    = 100 * time.Millisecond
	suspectEvery  = 200 * time.Millisecond // between two looks at the nodes of a group whose master is suspect
	silentMaster  = time.Second            // it counts as one of many that are down at once
	automatically = "coordinator"          // who ordered what no person did
)

// masterView is what this leader remembers of a group's master beyond its last
// answer. Guarded by leading.mu.
type masterView struct {
	addr    string
	run     string    // the process it is taken for
	lineage string    // its replication id when it last answered as the master
	offset  int64     // of its log then
	heard   time.Time // when that was
	unmade  time.Time // since when it says that it is a replica
	verdict failover.Verdict
	busy    bool // accepting or remaking it is under way
}

// tendMasters judges the masters and begins what is to be done about them.
func (l *leading) tendMasters(ctx context.Context) error {
	if err := l.hand.Wait(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		t, _ := l.hand.Topology()
		cluster, groups := l.mastersNow(t)
		for _, g := range groups {
			v := failover.Judge(cluster, g)
			if !l.newVerdict(&g, v) {
				continue
			}
			switch v.Kind {
			case failover.Failover:
				if err := l.beginFailover(ctx, &g, v); errors.Is(err, store.ErrNotLeader) {
					return err
				} else if err != nil {
					l.log.Warn("can not begin a failover, trying again", "group", g.ID, "err", err)
				}
			case failover.Adopt, failover.Remake:
				l.setBusy(g.ID, true)
				running.Go(func() {
					defer l.setBusy(g.ID, false)
					if err := l.accept(ctx, g, v); err != nil && ctx.Err() == nil {
						l.log.Warn("can not accept a master, trying again", "group", g.ID, "node", g.Master, "err", err)
						select {
						case <-time.After(retryOperation):
						case <-ctx.Done():
						}
					}
				})
			}
		}
	}
}

func (l *leading) setBusy(group string, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.masters[group]; v != nil {
		v.busy = busy
	}
}

// newVerdict keeps the verdict, logs it when it is another one, and reports
// whether it is to be acted on.
func (l *leading) newVerdict(g *failover.Group, v failover.Verdict) bool {
	l.mu.Lock()
	view := l.masters[g.ID]
	before := view.verdict
	view.verdict = v
	act := !view.busy
	l.mu.Unlock()
	if v.Kind != before.Kind {
		switch {
		case v.Kind != failover.Fine:
			l.log.Warn("master is judged", "group", g.ID, "node", g.Master, "verdict", string(v.Kind), "reason", v.Reason, "to", v.To)
		case before.Kind != "":
			l.log.Info("master is fine again", "group", g.ID, "node", g.Master)
		}
	}
	return act
}

// mastersNow puts together what is known of all groups whose master may be
// judged: not those that get another one just now.
func (l *leading) mastersNow(t *topo.Topology) (failover.Cluster, []failover.Group) {
	now := time.Now()
	c := failover.Cluster{Now: now, Masters: len(t.Groups)}
	c.Admitted, c.Live, _ = l.hand.Votes("")
	changing := t.MasterChange()
	var groups []failover.Group
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard[store.PrefixOperations] || !l.heard[store.KeySettings] {
		return c, nil
	}
	c.Settings = l.settings
	for i := range t.Groups {
		if l.watchers[t.Groups[i].Master()] == nil {
			continue // nobody looks at it yet
		}
		g := l.groupNow(&t.Groups[i], now)
		if m := g.Nodes[slices.IndexFunc(g.Nodes, func(n failover.Node) bool { return n.Addr == g.Master })]; m.Silent >= silentMaster {
			c.Silent++
		}
		if changing != nil && changing.Group == g.ID || l.failingOver(g.ID) {
			continue
		}
		groups = append(groups, g)
	}
	for i := range groups {
		_, groups[i].Live, groups[i].Against = l.hand.Votes(groups[i].Master)
	}
	return c, groups
}

// failingOver reports whether an unfinished failover of the group is stored. mu
// is held.
func (l *leading) failingOver(group string) bool {
	for _, op := range l.ops {
		if op.Kind == topo.OpFailover && !op.State.Finished() && op.Request.Group == group {
			return true
		}
	}
	return false
}

// groupNow is what is known of one group. mu is held.
func (l *leading) groupNow(t *topo.Group, now time.Time) failover.Group {
	view := l.viewOf(t, now)
	g := failover.Group{ID: t.ID, Master: t.Master(), Run: cmp.Or(t.Run, view.run), Lineage: view.lineage, Offset: view.offset}
	for _, n := range t.Nodes {
		node := failover.Node{Addr: n.Addr, Zone: n.Zone}
		if w := l.watchers[n.Addr]; w != nil {
			node.Asked, node.Status, node.Refused = w.seen, w.status, w.refused
			if !w.status.Reachable {
				node.Silent = now.Sub(w.heard)
			}
		}
		g.Nodes = append(g.Nodes, node)
	}
	if !view.unmade.IsZero() {
		g.Unmade = now.Sub(view.unmade)
	}
	g.Failovers = l.failoversOf(t.ID)
	if s, ok := l.inSync[t.ID]; ok && s.Master == g.Master {
		g.InSync = s.Replicas
	}
	return g
}

// viewOf brings the memory of a group's master up to date. mu is held.
func (l *leading) viewOf(g *topo.Group, now time.Time) *masterView {
	addr := g.Master()
	view := l.masters[g.ID]
	if view == nil || view.addr != addr {
		view = &masterView{addr: addr, heard: now}
		if s := l.known(g.ID, addr); s.Role == topo.Master { // as an earlier leader saw it
			view.run, view.lineage, view.offset, view.heard = s.RunID, s.ReplID, s.Offset, cmp.Or(s.SeenAt, now)
		}
		l.masters[g.ID] = view
	}
	w := l.watchers[addr]
	if w == nil || !w.seen || !w.status.Reachable {
		return view
	}
	s := &w.status
	view.run = cmp.Or(g.Run, view.run, s.RunID)
	if s.RunID != view.run {
		return view
	}
	if s.Role == topo.Master {
		view.lineage, view.offset, view.heard, view.unmade = s.ReplID, s.Offset, w.heard, time.Time{}
	} else if view.unmade.IsZero() {
		view.unmade = now
	}
	return view
}

// failoversOf lists when the group's automatic failovers ended well, oldest
// first. mu is held.
func (l *leading) failoversOf(group string) []time.Time {
	var ends []time.Time
	for _, op := range l.ops {
		if op.Kind == topo.OpFailover && op.State == topo.OpSucceeded && op.CreatedBy == automatically && op.Request.Group == group {
			ends = append(ends, op.FinishedAt)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends
}

// suspected reports whether a group's master is not fine: then its nodes are
// asked more often.
func (l *leading) suspected(addr string) bool {
	t, _ := l.hand.Topology()
	g := t.GroupOfNode(addr)
	if g == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	view := l.masters[g.ID]
	return view != nil && view.verdict.Kind != failover.Fine
}

// beginFailover stores the operation. The scheduler runs it.
func (l *leading) beginFailover(ctx context.Context, g *failover.Group, v failover.Verdict) error {
	now := time.Now().UTC()
	l.mu.Lock()
	last := l.masters[g.ID].heard
	l.mu.Unlock()
	op := topo.Operation{
		Format: topo.Format, ID: topo.NewID("op"), Kind: topo.OpFailover, State: topo.OpQueued,
		Request: &topo.GroupRequest{Group: g.ID}, Master: &topo.NewMaster{From: g.Master, Reason: v.Reason, Last: last.UTC()},
		CreatedBy: automatically, CreatedAt: now, UpdatedAt: now, Progress: topo.Progress{ETASeconds: -1},
	}
	return l.store(ctx, &op, nil)
}

// store creates an operation and has it begun.
func (l *leading) store(ctx context.Context, op *topo.Operation, more func(*store.Txn)) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	key := store.PrefixOperations + op.ID
	txn := l.lease.Begin().Unchanged(key, 0).Put(key, op)
	if more != nil {
		more(txn)
	}
	if _, err := txn.Commit(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	if _, known := l.ops[op.ID]; !known {
		l.ops[op.ID] = *op
	}
	l.mu.Unlock()
	l.look()
	return nil
}

// accept takes the process at the master's address for the master, after making
// it one again where it is none, and keeps a record of it.
func (l *leading) accept(ctx context.Context, g failover.Group, v failover.Verdict) error {
	bounded, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	admin, err := l.pool.Get(bounded, g.Master)
	if err != nil {
		return err
	}
	if err := admin.Promote(bounded); err != nil {
		return err
	}
	s, err := admin.Status(bounded)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	op := topo.Operation{
		Format: topo.Format, ID: topo.NewID("op"), Kind: topo.OpFailover, State: topo.OpRunning, StartedAt: now,
		Request: &topo.GroupRequest{Group: g.ID}, Master: &topo.NewMaster{From: g.Master, To: g.Master, Reason: v.Reason},
		CreatedBy: automatically, CreatedAt: now, Progress: topo.Progress{ETASeconds: -1},
	}
	note(&op, "%s", v.Reason)
	if v.Kind == failover.Adopt {
		note(&op, "what was written since it last saved its data is gone")
	}
	finished(&op, topo.OpSucceeded, "")
	_, err = l.hand.Change(bounded, func(t *topo.Topology) {
		if group := t.Group(g.ID); group != nil && group.Master() == g.Master {
			group.Run = s.RunID
		}
	}, func(txn *store.Txn) { txn.Put(store.PrefixOperations+op.ID, op) })
	if err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.masters, g.ID)
	l.mu.Unlock()
	l.log.Warn("the process at a master's address is accepted", "group", g.ID, "node", g.Master, "reason", v.Reason, "count", s.KeyCount())
	return nil
}
