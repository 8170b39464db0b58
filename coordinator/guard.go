package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Strict durability: a master takes writes only while a replica follows it
// closely, and only such replicas are promoted. So whichever replica takes over,
// the old master stops by itself: at once when its replica is taken away, within
// guardLag and a second when it is cut off. Two facts must never disagree in the
// dangerous direction:
//
//	a replica is in insync/<group>  ⇒  its master refuses writes without one
//
// hence the order: the record goes before the setting, and comes after it.
const (
	guardEvery = 500 * time.Millisecond
	guardAfter = 10 * time.Second // in sync for so long before a replica counts
	guardLag   = 2                // seconds: min-replicas-max-lag
)

// tendGuards keeps both facts in step with the replicas.
func (l *leading) tendGuards(ctx context.Context) error {
	if err := l.hand.Wait(ctx); err != nil {
		return err
	}
	if err := l.loadInSync(ctx); err != nil {
		return err
	}
	good := map[string]time.Time{} // replica → since when it is in sync
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		t, _ := l.hand.Topology()
		for i := range t.Groups {
			if c := t.MasterChange(); c != nil && c.Group == t.Groups[i].ID {
				continue
			}
			err := l.guard(ctx, &t.Groups[i], good)
			if errors.Is(err, store.ErrNotLeader) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				l.log.Warn("durability can not be seen to", "group", t.Groups[i].ID, "err", err)
			}
		}
	}
}

func (l *leading) loadInSync(ctx context.Context) error {
	for {
		all, err := store.LoadAll[topo.InSync](ctx, l.st, store.PrefixInSync)
		if err == nil {
			l.mu.Lock()
			for _, s := range all {
				l.inSync[s.Group] = s
			}
			l.mu.Unlock()
			return nil
		}
		l.log.Warn("can not read which replicas were in sync, trying again", "err", err)
		select {
		case <-time.After(retryOperation):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// guard brings one group's record and setting in step.
func (l *leading) guard(ctx context.Context, g *topo.Group, good map[string]time.Time) error {
	now := time.Now()
	l.mu.Lock()
	strict := l.settings.Durability == topo.Strict && l.heard[store.KeySettings]
	record, known := l.inSync[g.ID]
	known = known && record.Master == g.Master()
	m := l.watchers[g.Master()]
	answers := m != nil && m.seen && m.status.Reachable && m.status.Role == topo.Master && (g.Run == "" || m.status.RunID == g.Run)
	var wanted []string
	for _, n := range g.Nodes {
		w := l.watchers[n.Addr]
		if n.Role == topo.Master || w == nil {
			continue
		}
		s := &w.status
		if !s.Reachable || !s.LinkUp || s.MasterAddr != g.Master() || s.LastIO > guardLag || s.Role != topo.Replica {
			delete(good, n.Addr)
			continue
		}
		if good[n.Addr].IsZero() {
			good[n.Addr] = now
		}
		if slices.Contains(record.Replicas, n.Addr) && known || now.Sub(good[n.Addr]) >= guardAfter {
			wanted = append(wanted, n.Addr)
		}
	}
	l.mu.Unlock()
	if !answers || (!strict && !known) {
		return nil
	}
	if !strict {
		wanted = nil
	}
	if known && slices.Equal(record.Replicas, wanted) || !known && len(wanted) == 0 {
		return nil
	}
	if len(wanted) > 0 { // the setting is there before the record
		if err := l.setGuard(ctx, g.Master(), 1); err != nil {
			return err
		}
	}
	if err := l.putInSync(ctx, topo.InSync{Format: topo.Format, Group: g.ID, Master: g.Master(), Replicas: wanted, At: now.UTC()}); err != nil {
		return err
	}
	if len(wanted) == 0 {
		return l.setGuard(ctx, g.Master(), 0)
	}
	return nil
}

func (l *leading) setGuard(ctx context.Context, addr string, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, observeWithin)
	defer cancel()
	admin, err := l.pool.Get(ctx, addr)
	if err != nil {
		return err
	}
	return guardNode(ctx, admin, replicas)
}

func guardNode(ctx context.Context, admin *node.Admin, replicas int) error {
	return admin.ConfigSet(ctx, "min-replicas-to-write", fmt.Sprint(replicas), "min-replicas-max-lag", fmt.Sprint(guardLag))
}

func (l *leading) putInSync(ctx context.Context, s topo.InSync) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	txn := l.lease.Begin().Exists(store.PrefixSecrets + s.Group)
	if len(s.Replicas) == 0 {
		txn.Delete(store.PrefixInSync + s.Group)
	} else {
		txn.Put(store.PrefixInSync+s.Group, s)
	}
	if _, err := txn.Commit(ctx); err != nil {
		return fmt.Errorf("store which replicas of group %s are in sync: %w", s.Group, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(s.Replicas) == 0 {
		delete(l.inSync, s.Group)
	} else {
		l.inSync[s.Group] = s
	}
	return nil
}

// guardNew lets a new master take writes although no replica follows it yet. It
// is guarded again once one has done so for a while.
func (w *masterWork) guardNew(ctx context.Context, c *topo.MasterChange, to *node.Admin) error {
	w.mu.Lock()
	_, guarded := w.inSync[c.Group]
	w.mu.Unlock()
	if !guarded {
		return nil
	}
	return guardNode(ctx, to, 0)
}

// endGuard takes the record of the old master's replicas away with the switch.
func (w *masterWork) endGuard(txn *store.Txn, c *topo.MasterChange) {
	txn.Delete(store.PrefixInSync + c.Group)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inSync, c.Group)
}
