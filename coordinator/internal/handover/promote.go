package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Changes of master.
//
// Problem. A hold is drained before anything is switched, because a request
// under way could still be executed by the old owner. Of a master that is dead,
// frozen or cut off no reply will come: a failover can not wait for a drain.
//
// Rule. A change of master (phase promoting) needs no drain: the leader's fence
// replaces it. Once the topology says so,
//
//   - proxies close their connections to the old master and tell their clients
//     that the outcome is unknown. They owe it no CLIENT KILL: what its buffers
//     hold is executed either before the new master leaves it, and then precedes
//     whatever waits, or on a node whose tail is discarded;
//   - the users of the old master are removed, and not put back before it
//     follows the new one: it lets in no proxy, not one that slept through all
//     this either. Where it can not be reached, that is done when it is back,
//     before anything else;
//   - nobody writes to the new master before the switch, because no table names
//     it. So up to the switch another replica may be chosen, or all be left as
//     it was.
//
// A planned switchover drains first, with a hold like any other, and loses
// nothing; it goes on from there in the same way.
//
// A change of master comes before everything else: it takes the place of a hold
// in force, whose owner finds its switch in conflict, and others wait until it
// has ended. So it needs no gate: every publication compares the revision.

// ChangeMaster begins a change of master, or takes another node as its aim. more
// adds to the transaction; its comparisons are ErrConflict when they do not hold.
func (m *Manager) ChangeMaster(ctx context.Context, c topo.MasterChange, more func(*store.Txn)) (*topo.Topology, error) {
	if err := m.Wait(ctx); err != nil {
		return nil, err
	}
	for {
		err := m.wait(ctx, func() bool {
			now := m.topology.MasterChange()
			return now == nil || now.Operation == c.Operation
		})
		if err != nil {
			return nil, fmt.Errorf("wait for another change of master: %w", err)
		}
		base, rev := m.Topology()
		if g := base.Group(c.Group); g == nil || g.Master() != c.From {
			return nil, fmt.Errorf("change the master of group %s: it is not %s: %w", c.Group, c.From, store.ErrConflict)
		}
		next, err := base.Next(func(t *topo.Topology) {
			t.Hold = &topo.Hold{ID: topo.NewID("h"), Phase: topo.Promoting, Slots: t.SlotsOf(c.Group), Attempt: c.Operation,
				Timeout: m.timing.hold, Change: &c}
		})
		if err != nil {
			return nil, err
		}
		_, err = m.publish(ctx, rev, next, more)
		if errors.Is(err, store.ErrConflict) {
			if _, now := m.Topology(); now != rev {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("begin to change the master of group %s in epoch %d: %w", c.Group, next.Epoch, err)
		}
		return next, nil
	}
}

// Promote goes on from a drained hold to a change of master. The Held is ended:
// what follows is EndMasterChange.
func (h *Held) Promote(ctx context.Context, c topo.MasterChange, more func(*store.Txn)) error {
	if h.ended {
		return fmt.Errorf("promote: the hold has ended: %w", store.ErrConflict)
	}
	next, err := h.topology.Next(func(t *topo.Topology) {
		t.Hold.Phase, t.Hold.Change = topo.Promoting, &c
	})
	if err == nil {
		_, err = h.m.publish(ctx, h.rev, next, more)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("begin to change the master of group %s: %w", c.Group, err), h.Release(ctx))
	}
	h.end()
	return nil
}

// EndMasterChange drops the hold of a change of master, with change (nil:
// nothing) made to the topology in the same transaction.
func (m *Manager) EndMasterChange(ctx context.Context, operation string, change func(*topo.Topology), more func(*store.Txn)) (*topo.Topology, error) {
	base, rev := m.Topology()
	if c := base.MasterChange(); c == nil || c.Operation != operation {
		return nil, fmt.Errorf("end a change of master: none of operation %s is under way: %w", operation, store.ErrConflict)
	}
	next, err := base.Next(func(t *topo.Topology) {
		if change != nil {
			change(t)
		}
		t.Hold = nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := m.publish(ctx, rev, next, more); err != nil {
		return nil, fmt.Errorf("end a change of master in epoch %d: %w", next.Epoch, err)
	}
	return next, nil
}

// AwaitSettled waits, at most for as long as within, until the node at addr has
// exactly the users it is to have now, as far as that can be told, and reports
// whether it does. It gives up at once on a node out of reach.
func (m *Manager) AwaitSettled(ctx context.Context, addr string, within time.Duration) (bool, error) {
	m.mu.Lock()
	if w := m.workers[addr]; w != nil {
		w.poke()
	}
	m.mu.Unlock()
	settled := false
	_, err := m.waitFor(ctx, within, func() bool {
		w := m.workers[addr]
		settled = m.settled(w)
		return settled || w == nil || (w.unreachable && w.confirmed == 0 && w.triedSince)
	})
	return settled, err
}

// Votes says how many admitted proxies have a record, and so are probably
// there, and how many of these can not reach addr.
func (m *Manager) Votes(addr string) (admitted, live, against int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.topology == nil {
		return 0, 0, 0
	}
	for _, p := range m.topology.Proxies {
		if p.State != topo.Admitted {
			continue
		}
		admitted++
		r, there := m.proxies[p.ID]
		if !there || r.Incarnation != p.Incarnation || r.Draining {
			continue
		}
		live++
		for _, u := range r.Unreachable {
			if u.Node == addr {
				against++
				break
			}
		}
	}
	return admitted, live, against
}
