package coordinator

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"syscall"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Each node is asked each second, by a goroutine of its own so that one that
// hangs delays no other. What it says is kept in memory, and written to
// observed/<group> when something in it changed that somebody would want to
// know, at most every two seconds: memory and rates wobble all the time, and
// every write stays in etcd's history until it is compacted.

const (
	observeEvery  = time.Second
	observeWithin = 2 * time.Second // then the node counts as not answering
	writeCheck    = 250 * time.Millisecond
	writeEvery    = 2 * time.Second
	repairEvery   = 10 * time.Second // of one node
	linkPatience  = 5 * time.Second  // with a replica that can not reach its master, before its login is set again
)

// watcher observes one node. Its fields are guarded by leading.mu.
type watcher struct {
	stop     context.CancelFunc
	ended    chan struct{}
	status   topo.NodeStatus
	seen     bool      // status is from this leadership
	heard    time.Time // when it last answered
	refused  bool      // the last time nobody listened at its port
	linkUp   time.Time // last seen with what its role needs
	repaired time.Time
}

// written is what observed/<group> holds.
type written struct {
	value topo.Observed
	at    time.Time
}

// observe watches the nodes of the topology.
func (l *leading) observe(ctx context.Context) error {
	if err := l.hand.Wait(ctx); err != nil {
		return err
	}
	if err := l.loadObserved(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(writeCheck)
	defer tick.Stop()
	for {
		t, _ := l.hand.Topology()
		l.mu.Lock()
		for addr, w := range l.watchers {
			if t.GroupOfNode(addr) == nil {
				w.stop()
				select {
				case <-w.ended:
					delete(l.watchers, addr)
				default:
				}
			}
		}
		for _, g := range t.Groups {
			for _, n := range g.Nodes {
				if l.watchers[n.Addr] != nil {
					continue
				}
				nodeCtx, stop := context.WithCancel(ctx)
				w := &watcher{stop: stop, ended: make(chan struct{}), linkUp: time.Now(), heard: time.Now(), status: l.known(g.ID, n.Addr)}
				l.watchers[n.Addr] = w
				running.Go(func() {
					defer close(w.ended)
					defer stop()
					l.watchNode(nodeCtx, n.Addr, w)
				})
			}
			l.viewOf(&g, time.Now()) // before what an earlier leader saw is overwritten
		}
		l.mu.Unlock()
		if err := l.writeObserved(ctx, t); errors.Is(err, store.ErrNotLeader) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// known is what was last known of a node, by this leader or the one before.
// mu is held.
func (l *leading) known(group, addr string) topo.NodeStatus {
	value := l.written[group].value
	if s := value.Node(addr); s != nil {
		return *s
	}
	return topo.NodeStatus{Addr: addr, Since: time.Now().UTC()}
}

// unobserved waits until no goroutine asks these nodes any more.
func (l *leading) unobserved(ctx context.Context, addrs []string) error {
	for _, addr := range addrs {
		l.mu.Lock()
		w := l.watchers[addr]
		if w != nil {
			w.stop()
		}
		l.mu.Unlock()
		if w == nil {
			continue
		}
		select {
		case <-w.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *leading) loadObserved(ctx context.Context) error {
	for {
		all, err := store.LoadAll[topo.Observed](ctx, l.st, store.PrefixObserved)
		if err == nil {
			l.mu.Lock()
			for _, o := range all {
				l.written[o.Group] = written{value: o}
			}
			l.mu.Unlock()
			return nil
		}
		l.log.Warn("can not read what was observed before, trying again", "err", err)
		select {
		case <-time.After(retryOperation):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchNode asks one node again and again.
func (l *leading) watchNode(ctx context.Context, addr string, w *watcher) {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	for {
		began := time.Now()
		s, err := l.ask(ctx, addr)
		if ctx.Err() != nil {
			return
		}
		l.counts.reconciled("servers", time.Since(began), err)
		s.Owes = !l.hand.Settled(addr)
		l.mu.Lock()
		before := w.status
		if err != nil { // what it said last stays, for people to see
			text := s.Error
			s = before
			s.Reachable, s.Error, s.Owes = false, text, true
		}
		s.Since = before.Since
		if s.Reachable != before.Reachable || s.Since.IsZero() {
			s.Since = time.Now().UTC()
		}
		restarted := before.RunID != "" && s.RunID != before.RunID
		w.status, w.seen, w.refused = s, true, errors.Is(err, syscall.ECONNREFUSED)
		if err == nil {
			w.heard = began
		}
		l.mu.Unlock()
		switch {
		case before.Reachable && err != nil:
			l.log.Warn("node does not answer", "node", addr, "err", err)
		case !before.Reachable && err == nil:
			l.log.Info("node answers", "node", addr, "role", string(s.Role))
		}
		if restarted {
			l.log.Warn("node restarted", "node", addr, "role", string(s.Role), "count", s.KeyCount())
		}
		if err == nil {
			l.repair(ctx, addr, w)
		}
		if err != nil || l.suspected(addr) {
			tick.Reset(suspectEvery)
		} else {
			tick.Reset(observeEvery)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *leading) ask(ctx context.Context, addr string) (topo.NodeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, observeWithin)
	defer cancel()
	admin, err := l.pool.Get(ctx, addr)
	if err != nil {
		return topo.NodeStatus{Addr: addr, Error: err.Error()}, err
	}
	return admin.Status(ctx)
}

// repair makes a replica follow its master again where that is safe: it came
// back as a master of its own, follows another node, or lost the login. What it
// holds is a copy, or was written by nobody that Shardis let in. A master that
// is none any more is left to people: who is right is not known.
func (l *leading) repair(ctx context.Context, addr string, w *watcher) {
	t, _ := l.hand.Topology()
	g := t.GroupOfNode(addr)
	if g == nil || g.Master() == addr {
		return
	}
	if c := t.MasterChange(); c != nil && c.Group == g.ID {
		return
	}
	master := g.Master()
	now := time.Now()
	l.mu.Lock()
	s := w.status
	follows := s.Role == topo.Replica && sameAddr(s.MasterAddr, master)
	if follows && s.LinkUp {
		w.linkUp = now
	}
	m := l.watchers[master]
	masterFine := m != nil && m.seen && m.status.Reachable && m.status.Role == topo.Master && !m.status.Loading
	due := masterFine && !s.Loading && now.Sub(w.repaired) >= repairEvery && (!follows || now.Sub(w.linkUp) >= linkPatience)
	if due {
		w.repaired = now
	}
	l.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, observeWithin)
	defer cancel()
	secret, err := l.groupSecret(ctx, g.ID)
	if err == nil {
		var admin *node.Admin
		if admin, err = l.pool.Get(ctx, addr); err == nil {
			err = admin.ReplicaOf(ctx, master, secret)
		}
	}
	l.log.Warn("replica did not follow its master and is told to", "node", addr, "group", g.ID, "role", string(s.Role),
		"from", s.MasterAddr, "to", master, "count", s.KeyCount(), "err", err)
}

// writeObserved writes the groups of which something relevant changed.
func (l *leading) writeObserved(ctx context.Context, t *topo.Topology) error {
	hidden := l.hiddenKeys()
	for _, g := range t.Groups {
		o, due := l.observed(&g, hidden[g.ID])
		if !due {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, storeWithin)
		// Exists: a group that was removed meanwhile must not leave this behind.
		_, err := l.lease.Begin().Exists(store.PrefixSecrets+g.ID).Put(store.PrefixObserved+g.ID, o).Commit(bounded)
		cancel()
		if err != nil {
			if !errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
				l.log.Warn("can not write what was observed", "group", g.ID, "err", err)
			}
			return err
		}
		l.mu.Lock()
		l.written[g.ID] = written{o, time.Now()}
		l.mu.Unlock()
	}
	return nil
}

// observed puts together what is known of a group, and says whether it is to
// be written now.
func (l *leading) observed(g *topo.Group, hidden int64) (topo.Observed, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := topo.Observed{Format: topo.Format, Group: g.ID, At: time.Now().UTC(), Hidden: hidden}
	var master *topo.NodeStatus
	for _, n := range g.Nodes {
		w := l.watchers[n.Addr]
		if w == nil || !w.seen {
			return o, false // not before every node was asked once
		}
		o.Nodes = append(o.Nodes, w.status)
		if n.Role == topo.Master {
			master = &w.status
		}
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n.Role == topo.Replica && n.Reachable && master != nil && master.Reachable {
			n.LagBytes = max(0, master.Offset-n.Offset)
		}
	}
	before := l.written[g.ID]
	return o, time.Since(before.at) >= writeEvery && relevant(&before.value, &o)
}

// hiddenKeys estimates, by group, the keys that are on its master but not its
// own: copies of slots that are coming, and what is left of slots that went.
func (l *leading) hiddenKeys() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	hidden := map[string]int64{}
	for _, op := range l.ops {
		if op.State.Finished() {
			continue
		}
		for _, m := range op.Moves {
			switch m.State {
			case topo.MoveCopying, topo.MoveCatchingUp, topo.MoveHandingOver, topo.MoveParked:
				hidden[m.To] += m.KeysDone
			case topo.MovePurging:
				hidden[m.From] += m.KeysDone
			}
		}
	}
	return hidden
}

// relevant reports whether somebody would want to know of the difference.
func relevant(a, b *topo.Observed) bool {
	if a.Group != b.Group || len(a.Nodes) != len(b.Nodes) || a.Hidden != b.Hidden {
		return true
	}
	for i := range a.Nodes {
		x, y := &a.Nodes[i], &b.Nodes[i]
		if x.Addr != y.Addr || x.Reachable != y.Reachable || x.Error != y.Error || x.Role != y.Role || x.MasterAddr != y.MasterAddr ||
			x.LinkUp != y.LinkUp || x.RunID != y.RunID || x.ReplID != y.ReplID || x.Loading != y.Loading || x.Version != y.Version ||
			x.MaxMemory != y.MaxMemory || x.Policy != y.Policy || x.Owes != y.Owes || !maps.Equal(x.Keys, y.Keys) {
			return true
		}
		if differ(float64(x.UsedMemory), float64(y.UsedMemory), 0.02, 256<<10) || differ(x.OpsPerSecond, y.OpsPerSecond, 0.1, 10) ||
			differ(float64(x.LagBytes), float64(y.LagBytes), 0.5, 4096) || differ(float64(x.Clients), float64(y.Clients), 0.1, 3) {
			return true
		}
	}
	return false
}

// differ compares what always wobbles: by more than a ratio, and by more than
// what would not be worth a line anyhow.
func differ(a, b, ratio, least float64) bool {
	d := math.Abs(a - b)
	return d > least && d > ratio*math.Max(a, b)
}

// status gives what is known of the nodes of a group, for metrics.
func (l *leading) nodeStatus() map[string]topo.NodeStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]topo.NodeStatus, len(l.watchers))
	for addr, w := range l.watchers {
		if w.seen {
			all[addr] = w.status
		}
	}
	return all
}
