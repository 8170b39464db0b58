package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster makes a topology of n groups g1, g2 …; owner gives the group number
// (from 1) of each slot, 0 for none.
func cluster(t testing.TB, scheme topo.Scheme, n int, owner func(slot int) int) *topo.Topology {
	t.Helper()
	empty := &topo.Topology{Format: topo.Format, Scheme: scheme, Databases: 16}
	next, err := empty.Next(func(c *topo.Topology) {
		for i := range n {
			c.Groups = append(c.Groups, topo.Group{
				ID:    fmt.Sprintf("g%d", i+1),
				Nodes: []topo.Node{{Addr: fmt.Sprintf("10.0.0.1:%d", 7000+i), Role: topo.Master}},
			})
		}
		slots := map[string][]topo.Slot{}
		for s := range scheme.Slots() {
			if g := owner(s); g > 0 {
				id := fmt.Sprintf("g%d", g)
				slots[id] = append(slots[id], topo.Slot(s))
			}
		}
		for id, list := range slots {
			c.Assign(topo.SlotSetOf(list), id)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func thirds(slot int) int { return 1 + slot*3/16384 }

func mustMake(t testing.TB, c *topo.Topology, req topo.PlanRequest) *topo.Plan {
	t.Helper()
	p, err := Make(req, c, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// apply makes the moves and holds each of them to what a plan promises.
func apply(t testing.TB, c *topo.Topology, p *topo.Plan) *topo.Topology {
	t.Helper()
	if err := Conflicts(p, c); err != nil {
		t.Fatalf("a fresh plan conflicts: %v", err)
	}
	owners := c.Owners()
	seen := make([]bool, len(owners))
	next, err := c.Next(func(n *topo.Topology) {
		gained := map[string]topo.SlotSet{}
		for _, m := range p.Moves {
			if m.From == m.To || m.Slots.Len() == 0 {
				t.Fatalf("empty move %+v", m)
			}
			for _, s := range m.Slots.Slots() {
				if seen[s] || owners[s] != m.From {
					t.Fatalf("slot %d: moved twice, or not of %q", s, m.From)
				}
				seen[s] = true
			}
			gained[m.To] = append(gained[m.To], m.Slots...)
		}
		for id, slots := range gained {
			n.Assign(slots, id)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range p.After {
		if n := next.SlotsOf(share.Group).Len(); n != share.Slots {
			t.Fatalf("group %s: plan says %d slots after, it has %d", share.Group, share.Slots, n)
		}
	}
	return next
}

func TestMakeAddsAFourthGroup(t *testing.T) {
	c := cluster(t, topo.CRC16, 4, thirds)
	p := mustMake(t, c, topo.PlanRequest{Goal: topo.GoalSlots})
	if len(p.Moves) != 3 || p.Slots() != 4096 || p.BaseEpoch != c.Epoch || !p.ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Fatalf("moves: %+v", p.Moves)
	}
	for _, m := range p.Moves {
		if len(m.Slots) != 1 || m.To != "g4" {
			t.Errorf("move %+v: want one run to g4", m)
		}
	}
	next := apply(t, c, p)
	// And back: the same four runs as before, give or take the rounding.
	back := apply(t, next, mustMake(t, next, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g4"}}))
	if len(back.Slots) > 4 || back.SlotsOf("g4") != nil {
		t.Errorf("after draining: %+v", back.Slots)
	}
}

func TestMakeAssignsAnEmptyClusterInOrder(t *testing.T) {
	c := cluster(t, topo.CRC16, 3, func(int) int { return 0 })
	next := apply(t, c, mustMake(t, c, topo.PlanRequest{Goal: topo.GoalAssign}))
	want := []topo.Run{{First: 0, Last: 5461, Group: "g1"}, {First: 5462, Last: 10922, Group: "g2"}, {First: 10923, Last: 16383, Group: "g3"}}
	if !slices.Equal(next.Slots, want) {
		t.Errorf("got %+v", next.Slots)
	}
	next = apply(t, c, mustMake(t, c, topo.PlanRequest{Goal: topo.GoalAssign, Groups: []string{"g2"}}))
	if next.SlotsOf("g2").Len() != 16384 {
		t.Errorf("only g2 was chosen: got %+v", next.Slots)
	}
}

func TestMakeMove(t *testing.T) {
	c := cluster(t, topo.CRC16, 3, thirds)
	set, err := topo.ParseSlots("5000-6000", 16384)
	if err != nil {
		t.Fatal(err)
	}
	p := mustMake(t, c, topo.PlanRequest{Goal: topo.GoalMove, Slots: set, ToGroup: "g2"})
	if len(p.Moves) != 1 || p.Moves[0].From != "g1" || p.Moves[0].Slots.String() != "5000-5461" {
		t.Errorf("moves: %+v", p.Moves)
	}
	if !slices.ContainsFunc(p.Checks, func(c topo.Check) bool { return c.Name == "already-there" }) {
		t.Errorf("checks: %+v", p.Checks)
	}
	apply(t, c, p)
}

func TestMakeRefuses(t *testing.T) {
	set := func(text string) topo.SlotSet {
		s, err := topo.ParseSlots(text, 16384)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	full := cluster(t, topo.CRC16, 3, thirds)
	half := cluster(t, topo.CRC16, 3, func(s int) int { return (s / 8192) * 2 })
	small := cluster(t, topo.CRC32, 2, func(s int) int { return 1 + s%2 })
	for _, c := range []struct {
		name  string
		topo  *topo.Topology
		req   topo.PlanRequest
		kind  Kind
		field string
	}{
		{"no goal", full, topo.PlanRequest{}, Invalid, "/goal"},
		{"unknown goal", full, topo.PlanRequest{Goal: "bytes"}, Invalid, "/goal"},
		{"no groups", &topo.Topology{Scheme: topo.CRC16}, topo.PlanRequest{Goal: topo.GoalSlots}, Invalid, ""},
		{"unknown group", full, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g1", "gx"}}, UnknownGroup, "/groups/1"},
		{"even already", full, topo.PlanRequest{Goal: topo.GoalSlots}, NothingToDo, "/goal"},
		{"one group", full, topo.PlanRequest{Goal: topo.GoalSlots, Groups: []string{"g1", "g1"}}, NothingToDo, "/groups"},
		{"nothing owned", half, topo.PlanRequest{Goal: topo.GoalSlots, Groups: []string{"g1", "g3"}}, NothingToDo, "/goal"},
		{"drain nobody", full, topo.PlanRequest{Goal: topo.GoalDrain}, Invalid, "/groups"},
		{"drain all", full, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g3", "g1", "g2"}}, LastGroup, "/groups"},
		{"drain an empty group", half, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g1"}}, NothingToDo, "/groups"},
		{"move nowhere", full, topo.PlanRequest{Goal: topo.GoalMove, Slots: set("1")}, Invalid, "/toGroup"},
		{"move to an unknown group", full, topo.PlanRequest{Goal: topo.GoalMove, Slots: set("1"), ToGroup: "gx"}, UnknownGroup, "/toGroup"},
		{"move nothing", full, topo.PlanRequest{Goal: topo.GoalMove, ToGroup: "g1"}, Invalid, "/slots"},
		{"move to where they are", full, topo.PlanRequest{Goal: topo.GoalMove, Slots: set("0-10"), ToGroup: "g1"}, NothingToDo, "/slots"},
		{"move free slots", half, topo.PlanRequest{Goal: topo.GoalMove, Slots: set("8000-9000"), ToGroup: "g1"}, Invalid, "/slots"},
		{"move past the scheme", small, topo.PlanRequest{Goal: topo.GoalMove, Slots: set("1024"), ToGroup: "g1"}, Invalid, "/slots"},
		{"assign when all are", full, topo.PlanRequest{Goal: topo.GoalAssign}, NothingToDo, "/goal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Make(c.req, c.topo, nil, now)
			var refused *Error
			if !errors.As(err, &refused) || refused.Kind != c.kind || refused.Field != c.field || refused.Reason == "" {
				t.Errorf("got %+v, want %s at %q", err, c.kind, c.field)
			}
		})
	}
}

// TestMakeProperties holds plans for random topologies to what they promise.
func TestMakeProperties(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		c := randomCluster(t, r)
		var chosen []string
		for _, g := range c.Groups {
			if r.IntN(3) > 0 {
				chosen = append(chosen, g.ID)
			}
		}
		for _, req := range []topo.PlanRequest{
			{Goal: topo.GoalSlots},
			{Goal: topo.GoalSlots, Groups: chosen},
			{Goal: topo.GoalDrain, Groups: chosen},
			{Goal: topo.GoalAssign},
			{Goal: topo.GoalAssign, Groups: chosen},
		} {
			p, err := Make(req, c, nil, now)
			if err != nil {
				var refused *Error
				if !errors.As(err, &refused) {
					t.Fatalf("error of type %T", err)
				}
				continue
			}
			next := apply(t, c, p)
			again := mustMake(t, c, req)
			if !reflect.DeepEqual(p, again) {
				t.Fatal("the same request gives two plans")
			}
			promise(t, req, c, next, p)
		}
	}
}

func promise(t *testing.T, req topo.PlanRequest, c, next *topo.Topology, p *topo.Plan) {
	t.Helper()
	in := func(id string) bool { return len(req.Groups) == 0 || slices.Contains(req.Groups, id) }
	var before, after []int // of the groups concerned
	for _, g := range c.Groups {
		if in(g.ID) {
			before = append(before, c.SlotsOf(g.ID).Len())
			after = append(after, next.SlotsOf(g.ID).Len())
		} else if req.Goal != topo.GoalDrain && c.SlotsOf(g.ID).Len() != next.SlotsOf(g.ID).Len() {
			t.Fatalf("%s: group %s was not chosen but changes", req.Goal, g.ID)
		}
	}
	allowed := 2 * len(c.Groups)
	if req.Goal == topo.GoalAssign {
		allowed += len(c.Unassigned()) // each becomes a run, if it touches nobody who needs it
	}
	if grew := len(next.Slots) - len(c.Slots); grew > allowed {
		t.Fatalf("%s: %d runs became %d", req.Goal, len(c.Slots), len(next.Slots))
	}
	switch req.Goal {
	case topo.GoalSlots:
		if slices.Max(after)-slices.Min(after) > 1 {
			t.Fatalf("slots: uneven: %v", after)
		}
		// The least any even spread has to move.
		sum, least, above := 0, 0, 0
		for _, n := range before {
			sum += n
		}
		base, extra := sum/len(before), sum%len(before)
		for _, n := range before {
			if n > base {
				least += n - base
				above++
			}
		}
		if least -= min(above, extra); p.Slots() != least {
			t.Fatalf("slots: moves %d, least is %d: %v", p.Slots(), least, before)
		}
	case topo.GoalDrain:
		if slices.Max(after) != 0 {
			t.Fatalf("drain: left %v", after)
		}
		checkFilled(t, c, next, func(id string) bool { return !in(id) })
	case topo.GoalAssign:
		if next.Unassigned() != nil {
			t.Fatalf("assign: %s left", next.Unassigned())
		}
		checkFilled(t, c, next, in)
	case topo.GoalMove:
	}
}

// checkFilled: whoever got slots ends at most one above the lowest of all.
func checkFilled(t *testing.T, c, next *topo.Topology, may func(string) bool) {
	t.Helper()
	lowest := 1 << 20
	for _, g := range next.Groups {
		if may(g.ID) {
			lowest = min(lowest, next.SlotsOf(g.ID).Len())
		}
	}
	for _, g := range next.Groups {
		was, is := c.SlotsOf(g.ID).Len(), next.SlotsOf(g.ID).Len()
		if is > was && (is > lowest+1 || !may(g.ID)) {
			t.Fatalf("group %s went from %d to %d slots, the lowest has %d", g.ID, was, is, lowest)
		}
	}
}

func randomCluster(t *testing.T, r *rand.Rand) *topo.Topology {
	scheme := topo.CRC16
	if r.IntN(2) == 0 {
		scheme = topo.CRC32
	}
	n := 1 + r.IntN(9)
	run, owner := 0, 0
	longest := []int{1, 5, 200, 3000}[r.IntN(4)]
	if longest < 100 {
		scheme = topo.CRC32 // TestMakeLargeCluster does it with 16,384
	}
	free := r.IntN(2)
	return cluster(t, scheme, n, func(int) int {
		if run--; run < 0 {
			run = r.IntN(longest)
			owner = 1 - free + r.IntN(n+free)
		}
		return owner
	})
}

func TestMakeLargeCluster(t *testing.T) {
	c := cluster(t, topo.CRC16, 500, func(s int) int { return 1 + s%499 })
	began := time.Now()
	even := mustMake(t, c, topo.PlanRequest{Goal: topo.GoalSlots})
	var half []string
	for _, g := range c.Groups[:250] {
		half = append(half, g.ID)
	}
	drained := mustMake(t, c, topo.PlanRequest{Goal: topo.GoalDrain, Groups: half})
	took := time.Since(began)
	apply(t, c, even)
	apply(t, c, drained)
	t.Logf("took %s", took)
	if took > 30*time.Second {
		t.Errorf("planning for 500 groups took %s", took)
	}
}

func TestConflicts(t *testing.T) {
	c := cluster(t, topo.CRC16, 4, thirds)
	p := mustMake(t, c, topo.PlanRequest{Goal: topo.GoalSlots})
	next := func(change func(*topo.Topology)) *topo.Topology {
		n, err := c.Next(change)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var stored topo.Plan
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		current *topo.Topology
		says    string
	}{
		"a proxy came": {next(func(n *topo.Topology) {
			n.Proxies = append(n.Proxies, topo.Member{ID: "p1", Incarnation: "i", State: topo.Admitted})
		}), ""},
		"another slot moved": {next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 0, Last: 9}}, "g2") }), ""},
		"a slot moved":       {next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 5460, Last: 5461}}, "g2") }), "slots 5460-5461 are no longer with group g1"},
		"the target went":    {next(func(n *topo.Topology) { n.Groups = n.Groups[:3] }), "group g4 is no longer there"},
		"the past":           {&topo.Topology{Scheme: topo.CRC16}, "epoch"},
	} {
		err := Conflicts(&stored, test.current)
		if (err == nil) != (test.says == "") || (err != nil && !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
		var refused *Error
		if err != nil && (!errors.As(err, &refused) || refused.Kind != Stale) {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

func TestMakeEstimatesAndChecks(t *testing.T) {
	c := cluster(t, topo.CRC16, 4, thirds)
	seen := func(group string, s topo.NodeStatus) topo.Observed {
		s.Addr = c.Group(group).Master()
		return topo.Observed{Group: group, At: now, Nodes: []topo.NodeStatus{s}}
	}
	good := topo.NodeStatus{Reachable: true, Version: "7.0.15", UsedMemory: 1 << 30, Keys: map[string]int64{"0": 900_000, "1": 100_000}}
	g4 := topo.NodeStatus{Reachable: true, Version: "7.0.15", Policy: "noeviction", UsedMemory: 1 << 20, MaxMemory: 2 << 30}
	observed := map[string]topo.Observed{"g1": seen("g1", good), "g2": seen("g2", good), "g3": seen("g3", good), "g4": seen("g4", g4)}
	result := func(name, group string) string {
		t.Helper()
		p, err := Make(topo.PlanRequest{Goal: topo.GoalSlots}, c, observed, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, check := range p.Checks {
			if check.Name == name && strings.Contains(check.Detail, "group "+group) {
				return check.Result
			}
		}
		return ""
	}
	p, err := Make(topo.PlanRequest{Goal: topo.GoalSlots}, c, observed, now)
	if err != nil {
		t.Fatal(err)
	}
	if p.Keys < 745_000 || p.Keys > 755_000 || p.After[3].Keys != p.Keys || p.Before[0].Keys != 1_000_000 {
		t.Errorf("keys: %d of %+v", p.Keys, p.After)
	}
	for _, check := range p.Checks {
		if check.Result != pass {
			t.Errorf("all is well but: %+v", check)
		}
	}
	g4.MaxMemory = 500 << 20
	observed["g4"] = seen("g4", g4)
	if r := result("memory", "g4"); r != fail {
		t.Errorf("no room: %q", r)
	}
	g4.Policy = "allkeys-lru"
	observed["g4"] = seen("g4", g4)
	if r := result("memory", "g4"); r != warn {
		t.Errorf("no room but evicts: %q", r)
	}
	g4.Version = "6.2.0"
	observed["g4"] = seen("g4", g4)
	if r := result("version", "g4"); r != fail {
		t.Errorf("older target: %q", r)
	}
	g4.Reachable = false
	observed["g4"] = seen("g4", g4)
	if r := result("reachable", "g4"); r != fail {
		t.Errorf("unreachable: %q", r)
	}
	delete(observed, "g4")
	if r := result("reachable", "g4"); r != warn {
		t.Errorf("never seen: %q", r)
	}
}
