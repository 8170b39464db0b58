package handover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

func TestAdmissionGivesUsersFirst(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	p1, p2 := c.proxy("p1", "i1"), c.proxy("p2", "i2")
	eventually(t, "both are admitted", func() bool { return p1.admitted(m.Manager) && p2.admitted(m.Manager) })
	for _, n := range c.nodes {
		for _, p := range []*proxy{p1, p2} {
			if err := p.connect(n.Addr).Set(t.Context(), "{a}"+p.id, "v", 0).Err(); err != nil {
				t.Errorf("%s on %s: %v", p.id, n.Addr, err)
			}
		}
	}
	at, _ := m.Topology()
	if err := m.WaitApplied(t.Context(), at.Epoch); err != nil {
		t.Fatal(err)
	}
}

func TestRestartedNodeGetsItsUsersBack(t *testing.T) {
	c := newCluster(t, 0)
	acl := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(acl, []byte("user default on >"+secret+" ~* &* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := localredis.Config{Dir: t.TempDir(), Password: secret, Extra: []string{"aclfile " + acl}}
	n := localredis.StartTest(t, cfg)
	m := c.lead()
	p := c.proxy("p1", "i1")
	if _, err := m.Change(t.Context(), func(t *topo.Topology) {
		t.Groups = []topo.Group{{ID: "g1", Nodes: []topo.Node{{Addr: n.Addr, Role: topo.Master}}}}
	}, nil); err != nil {
		t.Fatal(err)
	}
	has := func() bool { return slices.Contains(c.users(n.Addr), p.user()) }
	eventually(t, "the user is there", has)

	a, err := node.Open(t.Context(), n.Addr, topo.Secret{Password: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Do(t.Context(), "ACL", "LOAD").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the user is back after ACL LOAD", has)
	p.connect(n.Addr)

	n.Kill()
	eventually(t, "the node is seen to owe", func() bool { return !m.Settled(n.Addr) })
	cfg.Port = port(t, n.Addr)
	localredis.StartTest(t, cfg)
	eventually(t, "the user is back after a restart", has)
	eventually(t, "the node owes nothing", func() bool { return m.Settled(n.Addr) })
}

func TestNodeOutOfReachDoesNotKeepProxiesOut(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead(func(tm *timing) { tm.node = 200 * time.Millisecond })
	eventually(t, "both nodes are settled", func() bool { return m.Settled(c.nodes[0].Addr) && m.Settled(c.nodes[1].Addr) })
	if err := c.nodes[1].Freeze(); err != nil {
		t.Fatal(err)
	}
	p := c.proxy("p1", "i1")
	eventually(t, "it is admitted", func() bool { return p.admitted(m.Manager) })
	if got := c.users(c.nodes[0].Addr); !slices.Contains(got, p.user()) {
		t.Errorf("users of the reachable node: %v", got)
	}
	if m.Settled(c.nodes[1].Addr) {
		t.Error("a node out of reach counts as settled")
	}
	if err := c.nodes[1].Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other has the user, too", func() bool { return slices.Contains(c.users(c.nodes[1].Addr), p.user()) })
}

func TestProxyThatStopsApplyingIsEvicted(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	good, bad := c.proxy("good", "i1"), c.proxy("bad", "i1")
	eventually(t, "both are admitted", func() bool { return good.admitted(m.Manager) && bad.admitted(m.Manager) })
	conn := bad.connect(c.nodes[0].Addr)
	if err := conn.Set(t.Context(), "k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}

	bad.deaf.Store(true)
	at, err := m.Change(t.Context(), func(*topo.Topology) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WaitApplied(t.Context(), at.Epoch); err != nil {
		t.Fatal(err)
	}
	if !good.admitted(m.Manager) || bad.admitted(m.Manager) {
		t.Fatalf("good admitted: %t, bad admitted: %t", good.admitted(m.Manager), bad.admitted(m.Manager))
	}
	if err := conn.Set(t.Context(), "k", "2", 0).Err(); err == nil {
		t.Error("the evicted proxy wrote by its old connection")
	}
	for _, n := range c.nodes {
		if got := c.users(n.Addr); slices.Contains(got, bad.user()) {
			t.Errorf("users of %s: %v", n.Addr, got)
		}
	}
	if _, err := node.Open(t.Context(), c.nodes[0].Addr, topo.Secret{User: bad.user(), Password: bad.password}); !errors.Is(err, node.ErrAuth) {
		t.Errorf("it logs in again: %v", err)
	}

	// It wakes, believes in itself, and is not let in again; a new incarnation is.
	bad.deaf.Store(false)
	if err := bad.report(t.Context(), topo.ProxyRecord{AppliedEpoch: at.Epoch + 100}); err != nil {
		t.Fatal(err)
	}
	never(t, "it is admitted again", 300*time.Millisecond, func() bool { return bad.admitted(m.Manager) })
	bad.stop()
	m.stop()
	m = c.lead()
	bad = c.proxy("bad", "i1")
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	never(t, "the next leader admits it", 300*time.Millisecond, func() bool { return bad.admitted(m.Manager) })
	bad.stop()
	fresh := c.proxy("bad", "i2")
	eventually(t, "its next incarnation is admitted", func() bool { return fresh.admitted(m.Manager) })
}

func TestNewIncarnationReplacesTheOld(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead()
	old := c.proxy("p1", "i1")
	eventually(t, "it is admitted", func() bool { return old.admitted(m.Manager) })
	conn := old.connect(c.nodes[0].Addr)
	old.stop()
	fresh := c.proxy("p1", "i2")
	eventually(t, "the new one is admitted", func() bool { return fresh.admitted(m.Manager) })
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("the old incarnation still has a connection")
	}
	if got := c.users(c.nodes[0].Addr); !slices.Equal(got, []string{fresh.user()}) {
		t.Errorf("users: %v", got)
	}
}

func TestNextLeaderFinishesAnEviction(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead()
	p := c.proxy("p1", "i1")
	eventually(t, "it is admitted", func() bool { return p.admitted(m.Manager) })
	m.stop()
	at, rev := c.stored()
	next, err := at.Next(func(t *topo.Topology) { t.Proxies[0].State = topo.Evicting })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.st.Begin().Unchanged(store.KeyTopology, rev).Put(store.KeyTopology, next).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lead()
	eventually(t, "it is gone and remembered", func() bool {
		t2, _ := c.stored()
		_, err := c.st.Get(t.Context(), store.PrefixEvicted+"p1/i1")
		return err == nil && t2.Member("p1") == nil
	})
	if got := c.users(c.nodes[0].Addr); len(got) != 0 {
		t.Errorf("users: %v", got)
	}
}

func TestLeasesLostAllAtOnceEvictNobody(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead(func(tm *timing) { tm.mass = 1500 * time.Millisecond })
	var all []*proxy
	for _, id := range []string{"p1", "p2", "p3"} {
		all = append(all, c.proxy(id, "i1"))
	}
	eventually(t, "all are admitted", func() bool {
		return !slices.ContainsFunc(all, func(p *proxy) bool { return !p.admitted(m.Manager) })
	})
	for _, p := range all {
		p.stop()
	}
	at, err := m.Change(t.Context(), func(*topo.Topology) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := m.WaitApplied(ctx, at.Epoch); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the deadline", err)
	}
	if now, _ := m.Topology(); len(now.Proxies) != 3 || len(now.Groups) != 1 {
		t.Fatalf("somebody was evicted: %v", now.Proxies)
	}
	// They really are gone, so in the end changes must go on.
	if err := m.WaitApplied(t.Context(), at.Epoch); err != nil {
		t.Fatal(err)
	}
	if now, _ := m.Topology(); len(now.Proxies) != 0 {
		t.Fatalf("left: %v", now.Proxies)
	}
}

func TestStoppedProxyIsForgottenUnlessItComesBack(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead(func(tm *timing) { tm.leave = 200 * time.Millisecond })
	gone, back, killed := c.proxy("gone", "i1"), c.proxy("back", "i1"), c.proxy("killed", "i1")
	admitted(t, m, gone, back, killed)
	for _, p := range []*proxy{gone, back, killed} {
		p.follows(t, m)
		p.deaf.Store(true)
		if p == killed {
			p.stop()
			continue
		}
		if err := p.report(t.Context(), topo.ProxyRecord{Draining: true}); err != nil {
			t.Fatal(err)
		}
		p.stop()
	}
	back = c.proxy("back", "i1")
	eventually(t, "the stopped one is gone", func() bool {
		now, _ := m.Topology()
		return now.Member("gone") == nil
	})
	if !back.admitted(m.Manager) {
		t.Error("one that only restarted was evicted")
	}
	if !killed.admitted(m.Manager) {
		t.Error("one whose lease only ended was evicted with no change under way")
	}
}

func TestRefusedProxies(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead()
	for _, p := range []*proxy{
		c.proxy("leader-1", "i1"), c.proxy("mover", "i1"), c.proxy("p1", "UPPER"),
		c.proxy("p2", "i1", func(p *proxy) { p.password = "" }),
	} {
		if p.id == "p2" {
			if _, err := c.st.Begin().Put(store.PrefixCredentials+"p2", topo.Credential{Format: 1, ID: "p2", Incarnation: "i1", PasswordHash: "nopass"}).
				Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	good := c.proxy("p3", "i1")
	eventually(t, "the good one is admitted", func() bool { return good.admitted(m.Manager) })
	now, _ := m.Topology()
	ids := ""
	for _, p := range now.Proxies {
		ids += p.ID + " "
	}
	if strings.Contains(ids, "leader") || strings.Contains(ids, "mover") || strings.Contains(ids, "p1 ") {
		t.Errorf("admitted: %s", ids)
	}
}

func TestPreparedNodeGetsUsers(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead()
	p := c.proxy("p1", "i1")
	eventually(t, "it is admitted", func() bool { return p.admitted(m.Manager) })
	n := localredis.StartTest(t, localredis.Config{Password: secret})
	if err := m.Prepare(t.Context(), n.Addr); err != nil {
		t.Fatal(err)
	}
	p.connect(n.Addr)
	late := c.proxy("p2", "i1")
	eventually(t, "a later one is admitted", func() bool { return late.admitted(m.Manager) })
	late.connect(n.Addr)
	m.Forget(n.Addr)
	if err := m.Retired(t.Context(), n.Addr); err != nil {
		t.Fatal(err)
	}
	if now, _ := m.Topology(); now.GroupOfNode(n.Addr) != nil {
		t.Error("it is in the topology")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := m.Prepare(ctx, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a node nobody can reach: %v", err)
	}
	m.Forget("127.0.0.1:1")
}
