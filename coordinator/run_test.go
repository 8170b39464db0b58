package coordinator

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

func TestGroupsAndNodesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.coordinate("c1")
	ctx := t.Context()
	user := w.proxy("p1")
	m1, r1, m2, r2 := w.redis(), w.redis(), w.redis(), w.redis()
	w.group("g1", m1, r1)
	w.group("g2", m2)
	now := w.now()
	if g := now.Group("g1"); g == nil || g.Master() != m1.Addr || len(g.Nodes) != 2 || g.Nodes[1].Role != topo.Replica {
		t.Fatalf("g1: %+v", g)
	}
	if role, err := w.admin(r1.Addr).Role(ctx); err != nil || !role.InSync() || role.MasterAddr != m1.Addr {
		t.Fatalf("replica: %+v, %v", role, err)
	}
	for _, n := range []*localredis.Process{m1, r1, m2} {
		if got := w.users(n.Addr); !slices.Equal(got, []string{user}) {
			t.Errorf("users of %s: %v", n.Addr, got)
		}
	}

	plan, err := w.Plan(ctx, topo.PlanRequest{Goal: topo.GoalAssign, Groups: []string{"g1"}})
	if err != nil {
		t.Fatal(err)
	}
	op, err := w.Submit(ctx, plan.ID, "me", topo.Limits{})
	w.succeeds(op, err)
	if n := w.now().SlotsOf("g1").Len(); n != 1024 {
		t.Fatalf("g1 owns %d slots", n)
	}

	op, err = w.AddNode(ctx, "g2", topo.Node{Addr: r2.Addr, Zone: "b"}, "me")
	w.succeeds(op, err)
	if g := w.now().Group("g2"); len(g.Nodes) != 2 || g.Nodes[1] != (topo.Node{Addr: r2.Addr, Role: topo.Replica, Zone: "b"}) {
		t.Fatalf("g2: %+v", g)
	}
	if got := w.users(r2.Addr); !slices.Equal(got, []string{user}) {
		t.Errorf("users of the new replica: %v", got)
	}
	late := w.proxy("p2")
	if got := w.users(r2.Addr); !slices.Contains(got, late) {
		t.Errorf("users of the new replica: %v", got)
	}

	op, err = w.RemoveNode(ctx, "g2", r2.Addr, "me")
	w.succeeds(op, err)
	if g := w.now().Group("g2"); len(g.Nodes) != 1 {
		t.Fatalf("g2: %+v", g)
	}
	if role, err := w.admin(r2.Addr).Role(ctx); err != nil || role.Role != topo.Master {
		t.Errorf("the removed replica is still one: %+v, %v", role, err)
	}
	op, err = w.RemoveGroup(ctx, "g2", "me")
	done := w.succeeds(op, err)
	if len(done.Log) == 0 || done.CreatedBy != "me" || done.StartedAt.IsZero() || done.FinishedAt.IsZero() {
		t.Errorf("record: %+v", done)
	}
	if w.now().Group("g2") != nil {
		t.Error("g2 is still there")
	}
	for _, n := range []*localredis.Process{m2, r2} {
		if all, err := w.admin(n.Addr).Users(ctx); err != nil || !slices.Equal(all, []string{"default"}) {
			t.Errorf("users left on %s: %v, %v", n.Addr, all, err)
		}
	}
	if _, err := w.store.Get(ctx, store.PrefixSecrets+"g2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("its secret is still there: %v", err)
	}
	w.group("g2", m2) // and back, with a clean slate
}

func TestReplicaMayHoldDataOfItsMaster(t *testing.T) {
	w := newWorld(t)
	w.coordinate("c1")
	m := w.redis()
	w.group("g1", m)
	a := w.admin(m.Addr)
	if err := a.Do(t.Context(), "SET", "k", "v").Err(); err != nil {
		t.Fatal(err)
	}
	r := w.redis(func(c *localredis.Config) { c.ReplicaOf = m.Addr })
	if n, err := a.Wait(t.Context(), 1, 10*time.Second); err != nil || n != 1 {
		t.Fatalf("wait: %d, %v", n, err)
	}
	op, err := w.AddNode(t.Context(), "g1", topo.Node{Addr: r.Addr}, "me")
	w.succeeds(op, err)
}

// TestGroupOperationsResume puts down what a leader that died in a step would
// have left, and has another go on.
func TestGroupOperationsResume(t *testing.T) {
	w := newWorld(t)
	stop := w.coordinate("c1")
	w.group("g0", w.redis(), w.redis())
	stop()
	ctx := t.Context()
	var all []*topo.Operation
	for i, step := range []string{stepCheck, stepAttach, stepSync, stepUsers, stepJoin} {
		m, r := w.redis(), w.redis()
		op, err := w.AddGroup(ctx, GroupInput{ID: fmt.Sprintf("add-%d", i), Password: password,
			Nodes: []topo.Node{{Addr: m.Addr}, {Addr: r.Addr}}}, "me")
		if err != nil {
			t.Fatal(err)
		}
		op.State, op.Step, op.StartedAt = topo.OpRunning, step, time.Now()
		if step != stepCheck && step != stepAttach {
			if err := w.admin(r.Addr).ReplicaOf(ctx, m.Addr, topo.Secret{Password: password}); err != nil {
				t.Fatal(err)
			}
		}
		w.put(op)
		all = append(all, op)
	}
	// A removal whose group has left the topology, its nodes not cleared yet.
	op, err := w.RemoveGroup(ctx, "g0", "me")
	if err != nil {
		t.Fatal(err)
	}
	op.State, op.Step, op.StartedAt = topo.OpRunning, stepClear, time.Now()
	w.put(op)
	next, err := w.now().Next(func(t *topo.Topology) { t.Groups = nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Begin().Put(store.KeyTopology, next).Commit(ctx); err != nil {
		t.Fatal(err)
	}
	all = append(all, op)

	w.coordinate("c2")
	for _, op := range all {
		w.succeeds(op, nil)
	}
	now := w.now()
	if len(now.Groups) != 5 || now.Group("g0") != nil {
		t.Errorf("groups: %+v", now.Groups)
	}
	for _, n := range op.Request.Nodes {
		if users, err := w.admin(n.Addr).Users(ctx); err != nil || !slices.Equal(users, []string{"default"}) {
			t.Errorf("users left on %s: %v, %v", n.Addr, users, err)
		}
	}
}

func (w *world) put(op *topo.Operation) {
	w.t.Helper()
	if _, err := w.store.Begin().Put(store.PrefixOperations+op.ID, op).Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func TestFailedAdditionLeavesNothing(t *testing.T) {
	w := newWorld(t)
	m, r := w.redis(), w.redis()
	op, err := w.AddGroup(t.Context(), GroupInput{ID: "g1", Password: password, Nodes: []topo.Node{{Addr: m.Addr}, {Addr: r.Addr}}}, "me")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.admin(m.Addr).Do(t.Context(), "SET", "k", "somebody was faster").Err(); err != nil {
		t.Fatal(err)
	}
	w.coordinate("c1")
	failed := w.ends(op, nil, topo.OpFailed)
	if !strings.Contains(failed.Reason, m.Addr) || !strings.Contains(failed.Reason, "1 keys") {
		t.Errorf("reason: %s", failed.Reason)
	}
	if _, err := w.store.Get(t.Context(), store.PrefixSecrets+"g1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the secret is still there: %v", err)
	}
	for _, n := range []*localredis.Process{m, r} {
		if users, err := w.admin(n.Addr).Users(t.Context()); err != nil || !slices.Equal(users, []string{"default"}) {
			t.Errorf("users left on %s: %v, %v", n.Addr, users, err)
		}
	}
	if len(w.now().Groups) != 0 {
		t.Error("the group is there")
	}
}

func TestObservedIsWrittenOnChangeOnly(t *testing.T) {
	w := newWorld(t)
	w.coordinate("c1")
	m, r := w.redis(), w.redis()
	w.group("g1", m, r)
	read := func() (topo.Observed, int64) {
		o, rev, err := store.Load[topo.Observed](t.Context(), w.store, store.PrefixObserved+"g1")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return o, rev
	}
	settled := func() bool {
		o, _ := read()
		n := o.Node(r.Addr)
		return n != nil && n.Reachable && n.LinkUp && !n.Owes && n.Role == topo.Replica && n.MasterAddr == m.Addr && o.Node(m.Addr).Reachable
	}
	eventually(t, "both are observed", settled)
	// Count the writes of some seconds in which nothing happens.
	watch := w.store.Watch(t.Context(), store.PrefixObserved+"g1")
	<-watch
	idle, writes := time.After(5*time.Second), 0
	for waiting := true; waiting; {
		select {
		case <-watch:
			writes++
		case <-idle:
			waiting = false
		}
	}
	if writes > 1 { // one may be the end of what happened before
		t.Errorf("%d writes in 5 idle seconds", writes)
	}
	if err := w.admin(m.Addr).Do(t.Context(), "SET", "k", "v").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is seen", func() bool { o, _ := read(); return o.Node(m.Addr).KeyCount() == 1 && o.Node(r.Addr).KeyCount() == 1 })
	r.Kill()
	eventually(t, "the dead replica is seen", func() bool { o, _ := read(); return !o.Node(r.Addr).Reachable && o.Node(r.Addr).Error != "" })
}

func TestRestartedNodes(t *testing.T) {
	w := newWorld(t)
	w.coordinate("c1")
	user := w.proxy("p1")
	mc, rc := localredis.Config{Password: password, Dir: t.TempDir()}, localredis.Config{Password: password, Dir: t.TempDir()}
	m, r := localredis.StartTest(t, mc), localredis.StartTest(t, rc)
	mc.MasterAuth, rc.MasterAuth = password, password
	w.group("g1", m, r)
	restart := func(p *localredis.Process, c localredis.Config) {
		t.Helper()
		p.Kill()
		_, err := fmt.Sscanf(p.Addr, "127.0.0.1:%d", &c.Port)
		if err != nil {
			t.Fatal(err)
		}
		localredis.StartTest(t, c)
	}
	began := time.Now()
	inSync := func() bool {
		role, err := w.admin(m.Addr).Role(t.Context())
		return err == nil && role.InSync() && role.MasterAddr == r.Addr && slices.Contains(w.users(m.Addr), user)
	}
	restart(m, mc) // has nothing any more: its replica takes over
	w.masterIs("g1", r.Addr)
	eventually(t, "the restarted master is a replica, with its user", inSync)
	t.Logf("users back %s after the kill", time.Since(began))
	restart(m, mc) // comes back as a master of nothing
	eventually(t, "the replica is one again, with its user", inSync)
}

func TestSecondCoordinatorTakesOver(t *testing.T) {
	w := newWorld(t)
	leads := func(id string) func() bool {
		return func() bool { now, err := w.Leader(t.Context()); return err == nil && now == id }
	}
	stop := w.coordinate("c1")
	eventually(t, "c1 leads", leads("c1"))
	w.coordinate("c2")
	m := w.redis()
	w.group("g1", m)
	stop()
	eventually(t, "c2 leads", leads("c2"))
	w.proxy("p1")
	w.group("g2", w.redis())
	users, err := w.admin(m.Addr).Users(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leaders := 0
	for _, u := range users {
		if strings.HasPrefix(u, "shardis-leader-") {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("users: %v", users)
	}
}

func TestAdminPort(t *testing.T) {
	w := newWorld(t)
	addr := closedAddr(t)
	w.coordinate("c1", func(c *Config) { c.Listen, c.Version = addr, "1.2.3" })
	get := func(path string) (int, string) {
		reply, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = reply.Body.Close() }()
		body, _ := io.ReadAll(reply.Body)
		return reply.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	eventually(t, "it is ready", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	eventually(t, "it leads", func() bool { _, body := get("/readyz?verbose"); return strings.Contains(body, "leading") })
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("livez: %d", code)
	}
	if _, body := get("/version"); !strings.Contains(body, `"1.2.3"`) {
		t.Errorf("version: %s", body)
	}
	w.group("g1", w.redis())
	w.proxy("p1")
	want := []string{
		`shardis_coordinator_leader 1`, `shardis_build_info{component="coordinator"`, `shardis_cluster_slots{state="unassigned"} 1024`,
		`shardis_group_slots{group="g1"} 0`, `shardis_node_up{group="g1",server=`, `shardis_operations{state="succeeded",type="add-group"} 1`,
		`shardis_proxy_revision_lag{proxy="p1"} 0`, `shardis_operation_duration_seconds_count{result="succeeded",type="add-group"} 1`,
	}
	var missing string
	eventually(t, "the metrics show it", func() bool {
		_, body := get("/metrics")
		missing = ""
		for _, line := range want {
			if !strings.Contains(body, line) {
				missing = line
			}
		}
		return missing == ""
	})
}
