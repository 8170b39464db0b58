package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// ErrNotDrained is what a NotDrained is: the hold was released, nothing
// changed, try again later.
var ErrNotDrained = errors.New("not everybody drained the hold")

// NotDrained says who stood in the way of a hold.
type NotDrained struct {
	Behind []string // proxies that did not apply it; they are evicted after three tries
	Busy   []string // proxies that applied it and wait for slow requests
	Nodes  []string // nodes whose users are not yet as wanted
}

// Error implements error.
func (e *NotDrained) Error() string {
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	add("not applied by", e.Behind)
	add("requests still out at", e.Busy)
	add("users not settled on", e.Nodes)
	return ErrNotDrained.Error() + ": " + strings.Join(parts, "; ")
}

// Is makes errors.Is(err, ErrNotDrained) true.
func (e *NotDrained) Is(target error) bool { return target == ErrNotDrained }

// Held is a hold in force and drained: no admitted proxy has a request to the
// held slots under way, and no other can reach the nodes that own them. It
// must be ended by Switch or Release, soon: proxies may cancel it 1.5 s after
// they applied it.
type Held struct {
	m        *Manager
	topology *topo.Topology // with the hold
	rev      int64
	ended    bool // the gate was left
	Since    time.Time
}

// Topology is the one in force, with the hold in it.
func (h *Held) Topology() *topo.Topology { return h.topology }

// Hold makes every proxy keep commands for slots waiting, and returns once all
// requests they had sent before were answered. Before that it waits, with
// nobody held, until everybody is up to date. When the proxies take longer than
// 200 ms the hold is released and the error is a NotDrained.
func (m *Manager) Hold(ctx context.Context, slots topo.SlotSet, attempt string) (*Held, error) {
	if len(slots) == 0 {
		return nil, errors.New("hold: no slots given")
	}
	for round := 1; ; round++ {
		if err := m.settle(ctx, slots); err != nil {
			return nil, fmt.Errorf("hold slots %s: %w", slots, err)
		}
		if err := m.takeGate(ctx); err != nil {
			return nil, fmt.Errorf("hold slots %s: %w", slots, err)
		}
		held, err := m.hold(ctx, slots, attempt)
		if err == nil {
			return held, nil
		}
		m.leaveGate()
		if !errors.Is(err, errUnsettled) || round == settleRounds {
			return nil, fmt.Errorf("hold slots %s: %w", slots, err)
		}
	}
}

// errUnsettled: between settling and getting the gate something changed.
var errUnsettled = fmt.Errorf("%w: the topology changes all the time", ErrNotDrained)

// settleRounds bounds how often that is put up with.
const settleRounds = 20

// hold publishes the hold and waits for the drain. The caller has the gate.
func (m *Manager) hold(ctx context.Context, slots topo.SlotSet, attempt string) (*Held, error) {
	base, rev, err := m.withoutHold(ctx)
	if err != nil {
		return nil, err
	}
	if !m.isSettled(slots) {
		return nil, errUnsettled
	}
	id := topo.NewID("h")
	next, err := base.Next(func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: id, Phase: topo.Holding, Slots: slots, Attempt: attempt, Timeout: m.timing.hold}
	})
	if err != nil {
		return nil, err
	}
	m.own(id)
	since := time.Now()
	heldRev, err := m.publish(ctx, rev, next, nil)
	if err != nil {
		m.own("")
		return nil, err
	}
	h := &Held{m: m, topology: next, rev: heldRev, Since: since}
	cancelled := func() bool { return m.rev > heldRev }
	_, err = m.waitFor(ctx, m.timing.drain, func() bool {
		behind, busy := m.undrained(id, next.Epoch)
		return cancelled() || len(behind)+len(busy) == 0
	})
	m.mu.Lock()
	behind, busy := m.undrained(id, next.Epoch)
	gone := cancelled()
	m.mu.Unlock()
	nodes := m.unsettled(slots)
	if err == nil && !gone && len(behind)+len(busy)+len(nodes) == 0 {
		return h, nil
	}
	releaseErr := h.release(ctx)
	if err := errors.Join(err, releaseErr); err != nil {
		return nil, err
	}
	m.log.Info("hold released, not drained in time", "hold", id, "slots", slots.String(), "behind", behind, "busy", busy, "nodes", nodes)
	if err := m.noteTry(ctx, next.Epoch); err != nil {
		return nil, err
	}
	if gone && len(behind)+len(busy)+len(nodes) == 0 {
		return nil, fmt.Errorf("hold %s was cancelled by a proxy: %w", id, store.ErrConflict)
	}
	return nil, &NotDrained{Behind: behind, Busy: busy, Nodes: nodes}
}

// own notes which hold is ours, so that it is not taken for an orphan.
func (m *Manager) own(hold string) {
	m.mu.Lock()
	m.ownHold, m.stirred = hold, true
	m.poke()
	m.mu.Unlock()
}

// undrained lists the admitted proxies that did not apply the hold, and those
// that applied but did not drain it. Evicting ones need no drain: what matters
// of them is that the nodes concerned dropped their users, see unsettled.
// mu is held.
func (m *Manager) undrained(hold string, epoch topo.Epoch) (behind, busy []string) {
	for i, p := range m.topology.Proxies {
		if p.State != topo.Admitted {
			continue
		}
		switch user := m.users[i]; {
		case m.applied[user] < epoch:
			behind = append(behind, p.ID)
		case m.drained[user] != hold:
			busy = append(busy, p.ID)
		}
	}
	return behind, busy
}

// settle waits until every admitted proxy runs the newest epoch, no eviction
// is under way, and the nodes that own the slots have their users as wanted.
// Those that do not follow are evicted on the way. Nobody is held meanwhile.
func (m *Manager) settle(ctx context.Context, slots topo.SlotSet) error {
	bounded, cancel := context.WithTimeout(ctx, m.timing.settle)
	defer cancel()
	if err := m.Wait(ctx); err != nil {
		return err
	}
	m.pokeNodes(m.ownersOf(slots)) // look again now, not within half a second
	newest := func() topo.Epoch { return m.topology.Epoch }
	err := m.followed(bounded, newest, func() bool { return len(m.unsettledLocked(slots)) == 0 })
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	report := &NotDrained{Nodes: m.unsettledLocked(slots)}
	for _, p := range m.laggards(m.topology.Epoch) {
		report.Behind = append(report.Behind, p.ID)
	}
	for _, p := range m.evicting() {
		report.Behind = append(report.Behind, p.ID)
	}
	return report
}

// isSettled reports whether what settle waits for is still so.
func (m *Manager) isSettled(slots topo.SlotSet) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.laggards(m.topology.Epoch))+len(m.evicting())+len(m.unsettledLocked(slots)) == 0
}

// Switch publishes change and drops the hold, in one transaction with what
// more adds. store.ErrConflict: somebody cancelled the hold, or a comparison
// of more did not hold; then nothing was changed, and the hold is over all the
// same. The Held is ended in any case.
func (h *Held) Switch(ctx context.Context, change func(*topo.Topology), more func(*store.Txn)) (*topo.Topology, error) {
	if h.ended {
		return nil, fmt.Errorf("switch: the hold has ended: %w", store.ErrConflict)
	}
	next, err := h.topology.Next(func(t *topo.Topology) {
		change(t)
		t.Hold = nil
	})
	if err != nil {
		return nil, errors.Join(err, h.Release(ctx))
	}
	_, err = h.m.publish(ctx, h.rev, next, more)
	if err != nil {
		err = fmt.Errorf("switch slots %s in epoch %d: %w", h.topology.Hold.Slots, next.Epoch, err)
		return nil, errors.Join(err, h.Release(ctx))
	}
	h.end()
	return next, nil
}

// Release drops the hold with nothing changed. It does nothing on a Held that
// has ended, so it can be deferred.
func (h *Held) Release(ctx context.Context) error {
	if h.ended {
		return nil
	}
	err := h.release(ctx)
	h.end()
	return err
}

// release publishes the topology without the hold, if it is still there. When
// etcd can not be reached the hold becomes an orphan, which tendMembers drops.
func (h *Held) release(ctx context.Context) error {
	defer h.m.own("")
	if _, rev := h.m.Topology(); rev != h.rev {
		return nil // cancelled meanwhile
	}
	next, err := h.topology.Next(func(t *topo.Topology) { t.Hold = nil })
	if err != nil {
		return err
	}
	_, err = h.m.publish(ctx, h.rev, next, nil)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("release hold %s: %w", h.topology.Hold.ID, err)
	}
	return nil
}

// end gives the gate back.
func (h *Held) end() {
	h.ended = true
	h.m.own("")
	h.m.leaveGate()
}

// ownersOf lists the nodes of the groups that own any of the slots, masters and
// replicas.
func (m *Manager) ownersOf(slots topo.SlotSet) []topo.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ownersLocked(slots)
}

func (m *Manager) ownersLocked(slots topo.SlotSet) []topo.Node {
	var groups []string
	for _, r := range m.topology.Slots {
		if slots.Overlaps(topo.SlotSet{{First: r.First, Last: r.Last}}) && !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	var nodes []topo.Node
	for _, id := range groups {
		nodes = append(nodes, m.topology.Group(id).Nodes...)
	}
	return nodes
}

// unsettled lists the nodes that own the slots and may still let in a proxy
// that is not admitted: masters whose users are not known to be as wanted, and
// replicas of which that is known. A replica out of reach serves reads only,
// and owes a reconcile before it can ever become more.
func (m *Manager) unsettled(slots topo.SlotSet) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unsettledLocked(slots)
}

func (m *Manager) unsettledLocked(slots topo.SlotSet) []string {
	var owing []string
	for _, n := range m.ownersLocked(slots) {
		w := m.workers[n.Addr]
		if m.fenced(w) || (n.Role == topo.Replica && w != nil && w.unreachable) {
			continue
		}
		owing = append(owing, n.Addr)
	}
	return owing
}
