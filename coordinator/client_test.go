package coordinator

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

func TestInit(t *testing.T) {
	w := newWorld(t)
	before := w.contents()
	_, err := w.Init(t.Context(), "again", topo.CRC16, 16)
	refused(t, err, ClusterExists, "")
	_, err = w.Init(t.Context(), "", topo.CRC16, 16)
	refused(t, err, InvalidInput, "/name")
	_, err = w.Init(t.Context(), "x", "md5/7", 16)
	refused(t, err, InvalidInput, "/scheme")
	_, err = w.Init(t.Context(), "x", topo.CRC16, 0)
	refused(t, err, InvalidInput, "/databases")
	if !maps.Equal(before, w.contents()) {
		t.Error("something was stored")
	}
	if now := w.now(); now.Epoch != 1 || now.Databases != 16 || now.Unassigned().Len() != 1024 {
		t.Errorf("first topology: %+v", now)
	}
	_, err = w.Leader(t.Context())
	refused(t, err, NoLeader, "")
}

func TestClientWithoutCluster(t *testing.T) {
	st, err := store.Open(store.Config{Endpoints: []string{endpoint}, Cluster: topo.NewID("none")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	c := NewClient(st, nil)
	_, err = c.Plan(t.Context(), topo.PlanRequest{Goal: topo.GoalSlots})
	refused(t, err, NotFound, "")
	_, err = c.RemoveGroup(t.Context(), "g1", "me")
	refused(t, err, NotFound, "")
}

// closedAddr is an address where nobody listens.
func closedAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestBadInputStoresNothing: every refusal names its field, and leaves no trace.
func TestBadInputStoresNothing(t *testing.T) {
	w := newWorld(t)
	stop := w.coordinate("c1")
	owner, owned := w.redis(), w.redis()
	w.group("g1", owner, owned)
	w.group("g2", w.redis())
	plan, err := w.Plan(t.Context(), topo.PlanRequest{Goal: topo.GoalAssign, Groups: []string{"g1"}})
	if err != nil {
		t.Fatal(err)
	}
	op, err := w.Submit(t.Context(), plan.ID, "tester", topo.Limits{})
	w.succeeds(op, err)
	stop() // from now on nothing changes but by the client

	free, second, full, replica := w.redis(), w.redis(), w.redis(), w.redis(func(c *localredis.Config) { c.ReplicaOf = owner.Addr })
	few := w.redis(func(c *localredis.Config) { c.Extra = []string{"databases 4"} })
	cluster := w.redis(func(c *localredis.Config) { c.Extra = []string{"cluster-enabled yes"} })
	if err := w.admin(full.Addr).Do(t.Context(), "SET", "k", "v").Err(); err != nil {
		t.Fatal(err)
	}
	nobody := closedAddr(t)
	before := w.contents()

	group := func(id string, nodes ...topo.Node) GroupInput {
		return GroupInput{ID: id, Nodes: nodes, Password: password}
	}
	at := func(addr string) topo.Node { return topo.Node{Addr: addr} }
	for name, c := range map[string]struct {
		in    GroupInput
		code  Code
		field string
	}{
		"bad id":                     {group("G 5", at(free.Addr)), InvalidInput, "/id"},
		"group exists":               {group("g1", at(free.Addr)), GroupExists, "/id"},
		"no nodes":                   {group("g5"), InvalidInput, "/nodes"},
		"bad address":                {group("g5", at("nowhere")), InvalidInput, "/nodes/0/addr"},
		"port out of range":          {group("g5", at("127.0.0.1:70000")), InvalidInput, "/nodes/0/addr"},
		"same node twice":            {group("g5", at(free.Addr), at(free.Addr)), InvalidInput, "/nodes/1/addr"},
		"same node, another name":    {group("g5", at(free.Addr), at("localhost"+free.Addr[9:])), InvalidInput, "/nodes/1/addr"},
		"two masters":                {group("g5", topo.Node{Addr: free.Addr, Role: topo.Master}, topo.Node{Addr: second.Addr, Role: topo.Master}), InvalidInput, "/nodes/1/role"},
		"only replicas":              {group("g5", topo.Node{Addr: free.Addr, Role: topo.Replica}), InvalidInput, "/nodes"},
		"unknown role":               {group("g5", topo.Node{Addr: free.Addr, Role: "king"}), InvalidInput, "/nodes/0/role"},
		"unreachable":                {group("g5", at(free.Addr), at(nobody)), NodeUnreachable, "/nodes/1/addr"},
		"wrong password":             {GroupInput{ID: "g5", Nodes: []topo.Node{at(free.Addr)}, Password: "wrong"}, InvalidInput, "/password"},
		"no password":                {GroupInput{ID: "g5", Nodes: []topo.Node{at(free.Addr)}}, InvalidInput, "/password"},
		"unknown user":               {GroupInput{ID: "g5", Nodes: []topo.Node{at(free.Addr)}, User: "me", Password: password}, InvalidInput, "/password"},
		"not empty":                  {group("g5", at(full.Addr)), NodeNotEmpty, "/nodes/0/addr"},
		"replica not empty":          {group("g5", at(free.Addr), at(full.Addr)), NodeNotEmpty, "/nodes/1/addr"},
		"in another group":           {group("g5", at(owned.Addr)), InvalidInput, "/nodes/0/addr"},
		"master is a replica":        {group("g5", at(replica.Addr)), NodeIncompatible, "/nodes/0/addr"},
		"replica of another":         {group("g5", at(free.Addr), at(replica.Addr)), NodeIncompatible, "/nodes/1/addr"},
		"too few databases":          {group("g5", at(few.Addr)), NodeIncompatible, "/nodes/0/addr"},
		"runs in cluster mode":       {group("g5", at(cluster.Addr)), NodeIncompatible, "/nodes/0/addr"},
		"far too many nodes":         {group("g5", make([]topo.Node, 100)...), InvalidInput, "/nodes"},
		"address with a space in it": {group("g5", at("127.0.0.1: 7000")), InvalidInput, "/nodes/0/addr"},
	} {
		t.Run("add group: "+name, func(t *testing.T) {
			_, err := w.AddGroup(t.Context(), c.in, "me")
			refused(t, err, c.code, c.field)
		})
	}
	slots := func(text string) topo.SlotSet {
		s, err := topo.ParseSlots(text, 16384)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		run   func(ctx context.Context) error
		code  Code
		field string
	}{
		"remove a group with slots": {func(ctx context.Context) error { _, err := w.RemoveGroup(ctx, "g1", "me"); return err }, GroupHasSlots, ""},
		"remove an unknown group":   {func(ctx context.Context) error { _, err := w.RemoveGroup(ctx, "g9", "me"); return err }, NotFound, ""},
		"add a node to nothing":     {func(ctx context.Context) error { _, err := w.AddNode(ctx, "g9", at(free.Addr), "me"); return err }, NotFound, ""},
		"add a node twice":          {func(ctx context.Context) error { _, err := w.AddNode(ctx, "g1", at(owned.Addr), "me"); return err }, InvalidInput, "/addr"},
		"add a master": {func(ctx context.Context) error {
			_, err := w.AddNode(ctx, "g1", topo.Node{Addr: free.Addr, Role: topo.Master}, "me")
			return err
		}, InvalidInput, "/role"},
		"add a full node":         {func(ctx context.Context) error { _, err := w.AddNode(ctx, "g1", at(full.Addr), "me"); return err }, NodeNotEmpty, "/addr"},
		"add an unreachable node": {func(ctx context.Context) error { _, err := w.AddNode(ctx, "g1", at(nobody), "me"); return err }, NodeUnreachable, "/addr"},
		"add a bad address":       {func(ctx context.Context) error { _, err := w.AddNode(ctx, "g1", at("x"), "me"); return err }, InvalidInput, "/addr"},
		"remove a master":         {func(ctx context.Context) error { _, err := w.RemoveNode(ctx, "g1", owner.Addr, "me"); return err }, InvalidInput, ""},
		"remove an unknown node":  {func(ctx context.Context) error { _, err := w.RemoveNode(ctx, "g1", free.Addr, "me"); return err }, NotFound, ""},
		"unknown goal":            {func(ctx context.Context) error { _, err := w.Plan(ctx, topo.PlanRequest{Goal: "luck"}); return err }, InvalidInput, "/goal"},
		"drain an unknown group": {func(ctx context.Context) error {
			_, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g9"}})
			return err
		}, InvalidInput, "/groups/0"},
		"drain all groups": {func(ctx context.Context) error {
			_, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalDrain, Groups: []string{"g1", "g2"}})
			return err
		}, InvalidInput, "/groups"},
		"move out of range": {func(ctx context.Context) error {
			_, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalMove, Slots: slots("1000-1030"), ToGroup: "g2"})
			return err
		}, InvalidInput, "/slots"},
		"assign what is assigned": {func(ctx context.Context) error {
			_, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalAssign})
			return err
		}, InvalidInput, "/goal"},
		"submit an unknown plan": {func(ctx context.Context) error { _, err := w.Submit(ctx, "plan-x", "me", topo.Limits{}); return err }, NotFound, "/plan"},
		"submit a plan again":    {func(ctx context.Context) error { _, err := w.Submit(ctx, plan.ID, "me", topo.Limits{}); return err }, PlanStale, ""},
		"submit with bad limits": {func(ctx context.Context) error {
			_, err := w.Submit(ctx, plan.ID, "me", topo.Limits{BytesPerSecond: -1})
			return err
		}, InvalidInput, "/limits/bytesPerSecond"},
		"control an unknown": {func(ctx context.Context) error { return w.wish(ctx, "op-x", topo.WishPause) }, NotFound, ""},
		"control a finished": {func(ctx context.Context) error { return w.wish(ctx, op.ID, topo.WishCancel) }, OperationFinished, ""},
		"probe nothing":      {func(ctx context.Context) error { _, err := w.Probe(ctx, nil, topo.Secret{}); return err }, InvalidInput, "/nodes"},
		"probe a bad address": {func(ctx context.Context) error {
			_, err := w.Probe(ctx, []string{free.Addr, "x"}, topo.Secret{})
			return err
		}, InvalidInput, "/nodes/1/addr"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.run(t.Context()), c.code, c.field) })
	}
	if after := w.contents(); !maps.Equal(before, after) {
		for k := range after {
			if before[k] != after[k] {
				t.Errorf("stored: %s = %s", k, after[k])
			}
		}
	}
	probes, err := w.Probe(t.Context(), []string{free.Addr, full.Addr, nobody}, topo.Secret{Password: password})
	if err != nil || len(probes) != 3 || !probes[0].OK || probes[1].OK || probes[2].OK {
		t.Errorf("probes: %+v, %v", probes, err)
	}
}

func (w *world) wish(ctx context.Context, id string, wish topo.Wish) error {
	_, err := w.Control(ctx, id, Change{Wish: &wish}, "me")
	return err
}

func TestSubmitAndControlWithoutLeader(t *testing.T) {
	w := newWorld(t)
	stop := w.coordinate("c1")
	w.group("g1", w.redis())
	w.group("g2", w.redis())
	stop()
	ctx := t.Context()
	plan := func(req topo.PlanRequest) string {
		t.Helper()
		p, err := w.Plan(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	first, second := plan(topo.PlanRequest{Goal: topo.GoalAssign, Groups: []string{"g1"}}), plan(topo.PlanRequest{Goal: topo.GoalAssign})
	op, err := w.Submit(ctx, first, "me", topo.Limits{BytesPerSecond: 1000})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Submit(ctx, second, "me", topo.Limits{})
	refused(t, err, SlotBusy, "/plan")
	_, err = w.RemoveGroup(ctx, "g1", "me")
	refused(t, err, GroupBusy, "")

	if err := w.wish(ctx, op.ID, topo.WishPause); err != nil {
		t.Fatal(err)
	}
	limits := topo.Limits{BytesPerSecond: 5}
	if _, err := w.Control(ctx, op.ID, Change{Limits: &limits, Allow: []string{"big"}}, "you"); err != nil {
		t.Fatal(err)
	}
	c, _, err := store.Load[topo.Control](ctx, w.store, store.PrefixControls+op.ID)
	if err != nil || c.Wish != topo.WishPause || c.Limits.BytesPerSecond != 5 || len(c.Allow) != 1 || c.By != "you" {
		t.Fatalf("control: %+v, %v", c, err)
	}
	if err := w.wish(ctx, op.ID, topo.WishCancel); err != nil {
		t.Fatal(err)
	}
	refused(t, w.wish(ctx, op.ID, topo.WishRun), NotPausable, "")
	refused(t, w.wish(ctx, op.ID, "dance"), InvalidInput, "/wish")

	// A removal that waits is in the way of plans and of itself, and can be
	// called off as long as it waits.
	removal, err := w.RemoveGroup(ctx, "g2", "me")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.RemoveGroup(ctx, "g2", "me")
	refused(t, err, GroupBusy, "")
	refused(t, w.wish(ctx, removal.ID, topo.WishPause), NotPausable, "")
	if err := w.wish(ctx, removal.ID, topo.WishCancel); err != nil {
		t.Fatal(err)
	}
	w.coordinate("c2")
	w.ends(op, nil, topo.OpCancelled)
	w.ends(removal, nil, topo.OpCancelled)
	if now := w.now(); now.Unassigned().Len() != 1024 || now.Group("g2") == nil {
		t.Errorf("something was done: %+v", now)
	}
	op, err = w.Submit(ctx, second, "me", topo.Limits{})
	w.succeeds(op, err)
	_, err = w.Submit(ctx, first, "me", topo.Limits{})
	refused(t, err, PlanStale, "")
}

// TestPlanBelievesFiguresWhileSomebodyLeads: a leader writes what it observes
// only on change, so old figures of a quiet group are no reason to warn, unless
// nobody leads.
func TestPlanBelievesFiguresWhileSomebodyLeads(t *testing.T) {
	w := newWorld(t)
	leads := w.coordinate("c1")
	w.group("g1", w.redis())
	w.group("g2", w.redis())
	leads()
	ctx := t.Context()
	for _, group := range []string{"g1", "g2"} {
		now := w.now()
		master := now.Group(group).Master()
		old := topo.Observed{Format: topo.Format, Group: group, At: time.Now().Add(-10 * time.Minute),
			Nodes: []topo.NodeStatus{{Addr: master, Reachable: true, Role: topo.Master}}}
		if _, err := w.store.Begin().Put(store.PrefixObserved+group, old).Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	warns := func() bool {
		t.Helper()
		p, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalAssign})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(p.Checks, func(c topo.Check) bool { return strings.Contains(c.Detail, "last seen") })
	}
	if !warns() {
		t.Error("without a leader, figures 10 minutes old raise no warning")
	}
	lead, err := w.store.Campaign(ctx, "c2", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lead.Resign(context.WithoutCancel(ctx)) }()
	if warns() {
		t.Error("figures of a quiet group raise a warning although somebody leads")
	}
}

// TestSubmitAtOnce: of many submissions of plans for the same slots exactly one
// is queued.
func TestSubmitAtOnce(t *testing.T) {
	w := newWorld(t)
	stop := w.coordinate("c1")
	w.group("g1", w.redis())
	stop() // nobody runs what is queued
	var plans []string
	for range 4 {
		p, err := w.Plan(t.Context(), topo.PlanRequest{Goal: topo.GoalAssign})
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p.ID)
	}
	const each = 4
	errs := make(chan error, each*len(plans))
	for range each {
		for _, id := range plans {
			go func() {
				_, err := w.Submit(t.Context(), id, "me", topo.Limits{})
				errs <- err
			}()
		}
	}
	queued := 0
	for range each * len(plans) {
		if err := <-errs; err == nil {
			queued++
		} else {
			refused(t, err, SlotBusy, "/plan")
		}
	}
	if queued != 1 {
		t.Errorf("%d of the same moves were queued, want 1", queued)
	}
}
