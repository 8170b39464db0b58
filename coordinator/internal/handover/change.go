package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// retryStore is the pause before a transaction of unknown outcome is repeated.
const retryStore = 50 * time.Millisecond

// Change publishes the next epoch: the newest topology as altered by change,
// together with what more adds to the transaction. It waits while a hold is in
// force. store.ErrConflict means that a comparison made by more did not hold;
// store.ErrNotLeader that somebody else leads. change may be called several
// times. An error other than these two and those of validation leaves open
// whether the change was made.
func (m *Manager) Change(ctx context.Context, change func(*topo.Topology), more func(*store.Txn)) (*topo.Topology, error) {
	if err := m.takeGate(ctx); err != nil {
		return nil, err
	}
	defer m.leaveGate()
	for {
		base, rev, err := m.withoutHold(ctx)
		if err != nil {
			return nil, err
		}
		next, err := base.Next(change)
		if err != nil {
			return nil, err
		}
		_, err = m.publish(ctx, rev, next, more)
		if errors.Is(err, store.ErrConflict) {
			if _, now := m.Topology(); now != rev {
				continue // the topology moved, not what more compares
			}
		}
		if err != nil {
			return nil, fmt.Errorf("publish epoch %d: %w", next.Epoch, err)
		}
		return next, nil
	}
}

func (m *Manager) takeGate(ctx context.Context) error {
	select {
	case m.gate <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the topology to be free: %w", ctx.Err())
	case <-m.over:
		return fmt.Errorf("wait for the topology to be free: %w", store.ErrNotLeader)
	}
	if err := m.Wait(ctx); err != nil {
		m.leaveGate()
		return fmt.Errorf("wait for a topology: %w", err)
	}
	return nil
}

func (m *Manager) leaveGate() { <-m.gate }

// withoutHold gives the newest topology after making sure that no hold is in
// force. Whoever has the gate knows that one it meets has no owner any more: a
// former leader's, or one whose Held could not reach etcd.
func (m *Manager) withoutHold(ctx context.Context) (*topo.Topology, int64, error) {
	for {
		t, rev := m.Topology()
		if t.Hold == nil {
			return t, rev, nil
		}
		if t.Hold.Phase == topo.Promoting { // whoever changes a master has no gate
			err := m.wait(ctx, func() bool { return m.topology.Hold == nil || m.topology.Hold.Phase != topo.Promoting })
			if err != nil {
				return nil, 0, fmt.Errorf("wait for a change of master: %w", err)
			}
			continue
		}
		next, err := t.Next(func(t *topo.Topology) { t.Hold = nil })
		if err != nil {
			return nil, 0, err
		}
		m.log.Warn("releasing a hold nobody owns", "hold", t.Hold.ID, "attempt", t.Hold.Attempt, "epoch", next.Epoch)
		if _, err := m.publish(ctx, rev, next, nil); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, 0, fmt.Errorf("release hold %s: %w", t.Hold.ID, err)
		}
	}
}

// publish commits next as the successor of the topology written at rev. The
// caller has the gate. A transaction of unknown outcome is repeated with the
// same comparison until the outcome is known, so that at most one of its
// copies takes effect.
func (m *Manager) publish(ctx context.Context, rev int64, next *topo.Topology, more func(*store.Txn)) (int64, error) {
	wanted, err := next.Encode()
	if err != nil {
		return 0, err
	}
	unknown := false
	for {
		txn := m.lead.Begin().Unchanged(store.KeyTopology, rev).Put(store.KeyTopology, next)
		if more != nil {
			more(txn)
		}
		bounded, cancel := context.WithTimeout(ctx, m.timing.commit)
		newRev, err := txn.Commit(bounded)
		cancel()
		switch {
		case err == nil:
			m.mu.Lock()
			m.accept(next, newRev)
			m.mu.Unlock()
			return newRev, nil
		case errors.Is(err, store.ErrNotLeader):
			m.deposed()
			return 0, err
		case errors.Is(err, store.ErrRefused):
			return 0, err
		case errors.Is(err, store.ErrConflict):
			return m.afterConflict(ctx, wanted, unknown)
		}
		m.log.Warn("outcome of a topology change is unknown, trying again", "epoch", next.Epoch, "err", err)
		unknown = true
		select {
		case <-time.After(retryStore):
		case <-ctx.Done():
			return 0, err
		case <-m.over:
			return 0, store.ErrNotLeader
		}
	}
}

// afterConflict reads what stands there instead. When an earlier copy of the
// same transaction was of unknown outcome, that may be what we wanted.
func (m *Manager) afterConflict(ctx context.Context, wanted []byte, unknown bool) (int64, error) {
	item, err := m.store.Get(ctx, store.KeyTopology)
	if err != nil {
		return 0, err
	}
	t, err := topo.DecodeTopology(item.Value)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.accept(t, item.Rev)
	m.mu.Unlock()
	if unknown && bytes.Equal(item.Value, wanted) {
		return item.Rev, nil
	}
	return 0, store.ErrConflict
}
