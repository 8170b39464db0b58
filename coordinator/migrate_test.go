package coordinator

import (
	"context"
	"fmt"
	"testing"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// TestRebalanceDrainRemove is the life of a group with data: it gives half of
// its slots, then all, then goes; the coordinator is replaced on the way.
func TestRebalanceDrainRemove(t *testing.T) {
	w := newWorld(t)
	stop := w.coordinate("c1")
	ctx := t.Context()
	m1, m2 := w.redis(), w.redis()
	w.group("g1", m1)
	w.group("g2", m2)
	w.proxy("p1")
	w.proxy("p2")
	run := func(req topo.PlanRequest, limits topo.Limits) *topo.Operation {
		t.Helper()
		plan, err := w.Plan(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		op, err := w.Submit(ctx, plan.ID, "me", limits)
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	w.succeeds(run(topo.PlanRequest{Goal: topo.GoalAssign, Groups: []string{"g1"}}, topo.Limits{}), nil)
	const keys = 5000
	fill := w.admin(m1.Addr).Conn().Pipeline()
	for i := range keys {
		fill.Set(ctx, fmt.Sprintf("key-%d", i), i, 0)
	}
	if _, err := fill.Exec(ctx); err != nil {
		t.Fatal(err)
	}

	op := run(topo.PlanRequest{Goal: topo.GoalSlots}, topo.Limits{BytesPerSecond: 50_000})
	queued := run(topo.PlanRequest{Goal: topo.GoalMove, Slots: topo.SlotSet{{First: 0, Last: 0}}, ToGroup: other(w.now(), op, 0)}, topo.Limits{})
	eventually(t, "it copies", func() bool {
		now, _, err := store.Load[topo.Operation](ctx, w.store, store.PrefixOperations+op.ID)
		return err == nil && now.Progress.KeysDone > 0
	})
	if now, _, err := store.Load[topo.Operation](ctx, w.store, store.PrefixOperations+queued.ID); err != nil || now.State != topo.OpQueued {
		t.Errorf("two migrations at once: %+v, %v", now, err)
	}
	if err := w.wish(ctx, queued.ID, topo.WishCancel); err != nil {
		t.Fatal(err)
	}
	w.ends(queued, nil, topo.OpCancelled)
	stop()
	w.coordinate("c2")
	if _, err := w.Control(ctx, op.ID, Change{Limits: &topo.Limits{}}, "me"); err != nil {
		t.Fatal(err)
	}
	w.succeeds(op, nil)
	w.spread(ctx, keys)

	w.succeeds(run(topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g1"}}, topo.Limits{}), nil)
	w.spread(ctx, keys)
	removal, err := w.RemoveGroup(ctx, "g1", "me")
	w.succeeds(removal, err)
	if n := w.now().SlotsOf("g2").Len(); n != 1024 {
		t.Errorf("g2 owns %d slots", n)
	}
}

// other is a group that slot does not belong to, now or after op.
func other(now *topo.Topology, op *topo.Operation, slot topo.Slot) string {
	for _, m := range op.Moves {
		if m.Slots.Contains(slot) {
			panic("choose a slot that stays")
		}
	}
	if now.Owner(slot) == "g1" {
		return "g2"
	}
	return "g1"
}

// spread checks that every key is on the group that owns its slot and nowhere
// else, counted on the nodes.
func (w *world) spread(ctx context.Context, keys int) {
	w.t.Helper()
	t := w.now()
	found := 0
	for _, g := range t.Groups {
		c := w.admin(g.Master()).Conn()
		all, err := c.Keys(ctx, "*").Result()
		if err != nil {
			w.t.Fatal(err)
		}
		found += len(all)
		for _, key := range all {
			if owner := t.Owner(t.Scheme.SlotOf([]byte(key))); owner != g.ID {
				w.t.Errorf("%s is on %s and belongs to %s", key, g.ID, owner)
				return
			}
		}
	}
	if found != keys {
		w.t.Errorf("%d keys found, want %d", found, keys)
	}
}
