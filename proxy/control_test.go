package proxy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
	"shardis/proxy/report"
)

func TestProxyServesOnlyOnceAdmitted(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p := c.start(c.config(stateDir(t)))
	r := c.record("at all", anyRecord)
	if r.AppliedEpoch != 0 || r.Addr != "127.0.0.1:6379" || r.PID != os.Getpid() || r.Admin != p.control.admin {
		t.Errorf("record %+v", r)
	}
	credential, _, err := store.Load[topo.Credential](t.Context(), c.store, store.PrefixCredentials+r.ID)
	if err != nil || credential.Incarnation != r.Incarnation || credential.PasswordHash != p.identity().passwordHash() {
		t.Errorf("credential %+v, %v", credential, err)
	}
	c.change(func(next *topo.Topology) { // of another incarnation: not us
		next.Proxies = append(next.Proxies, topo.Member{ID: r.ID, Incarnation: "other", State: topo.Admitted})
	})
	eventually(t, "epoch 2", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.topology != nil && p.topology.Epoch == 2 })
	if p.engine.runs() != nil {
		t.Fatal("runs a topology that does not admit it")
	}
	admitted := c.admit(r)
	c.record("of the epoch that admits it", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == admitted.Epoch })
	if got := p.engine.runs(); got == nil || got.Epoch != admitted.Epoch {
		t.Errorf("runs %+v", got)
	}
}

func TestProxyTakesNewIncarnationWhenEvicted(t *testing.T) {
	for name, evict := range map[string]func(*topo.Topology){
		"evicting": func(t *topo.Topology) { t.Proxies[0].State = topo.Evicting },
		"gone":     func(t *topo.Topology) { t.Proxies = nil },
		"replaced": func(t *topo.Topology) { t.Proxies[0].Incarnation = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, sharedEtcd(t))
			p := c.start(c.config(stateDir(t)))
			before := c.record("at all", anyRecord)
			admitted := c.admit(before)
			c.record("admitted", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == admitted.Epoch })
			userBefore, passwordBefore := p.engine.credentials()

			c.change(evict)
			after := c.record("of a new incarnation", func(r topo.ProxyRecord) bool { return r.Incarnation != before.Incarnation })
			if after.ID != before.ID || after.AppliedEpoch != 0 {
				t.Errorf("record %+v", after)
			}
			if p.engine.runs() != nil {
				t.Error("still runs the topology of the time before")
			}
			user, password := p.engine.credentials()
			if user == userBefore || password == passwordBefore || user != topo.ProxyUser(after.ID, after.Incarnation) {
				t.Errorf("logs in as %s, before as %s", user, userBefore)
			}
			credential, _, err := store.Load[topo.Credential](t.Context(), c.store, store.PrefixCredentials+after.ID)
			if err != nil || credential.Incarnation != after.Incarnation {
				t.Errorf("credential %+v, %v", credential, err)
			}
			again := c.admit(after)
			c.record("admitted again", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == again.Epoch })
		})
	}
}

func TestProxyNoticesEvictionAfterRestart(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	cfg := c.config(stateDir(t))
	p := c.start(cfg)
	before := c.record("at all", anyRecord)
	admitted := c.admit(before)
	c.record("admitted", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == admitted.Epoch })
	p.end(t)
	c.change(func(t *topo.Topology) { t.Proxies = nil })
	if err := os.Remove(filepath.Join(cfg.StateDir, topologyFile)); err != nil { // The identity alone must tell.
		t.Fatal(err)
	}
	c.start(cfg)
	c.record("of a new incarnation", func(r topo.ProxyRecord) bool { return r.ID == before.ID && r.Incarnation != before.Incarnation })
}

func TestProxyNeverSeenAdmittedNoticesEviction(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	cfg := c.config(stateDir(t))
	p := c.start(cfg)
	before := c.record("at all", anyRecord)
	p.end(t)
	c.put(store.PrefixEvicted+before.ID+"/"+before.Incarnation, topo.Evicted{Format: topo.Format, ID: before.ID, Incarnation: before.Incarnation})
	c.start(cfg)
	c.record("of a new incarnation", func(r topo.ProxyRecord) bool { return r.ID == before.ID && r.Incarnation != before.Incarnation })
}

func TestProxyKeepsIncarnationOverRestart(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	cfg := c.config(stateDir(t))
	p := c.start(cfg)
	before := c.record("at all", anyRecord)
	admitted := c.admit(before)
	c.record("admitted", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == admitted.Epoch })
	p.end(t)
	c.start(cfg)
	c.record("admitted as before", func(r topo.ProxyRecord) bool {
		return r.Incarnation == before.Incarnation && r.AppliedEpoch == admitted.Epoch && r.StartedAt.After(before.StartedAt)
	})
}

// admitted starts a proxy and admits it.
func (c *cluster) admitted(cfg Config) (*proc, topo.ProxyRecord) {
	c.t.Helper()
	p := c.start(cfg)
	id := p.identity().ID
	r := c.record("of "+id, func(r topo.ProxyRecord) bool { return r.ID == id })
	epoch := c.admit(r).Epoch
	return p, c.record("admitted", func(r topo.ProxyRecord) bool { return r.ID == id && r.AppliedEpoch >= epoch })
}

func hold(id string, timeout time.Duration) func(*topo.Topology) {
	return func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: id, Phase: topo.Holding, Slots: topo.SlotSet{{First: 0, Last: 99}}, Timeout: timeout}
	}
}

func TestProxyReportsHoldAppliedThenDrained(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, _ := c.admitted(c.config(stateDir(t)))
	p.engine.mu.Lock()
	p.engine.slowDrain = true
	p.engine.mu.Unlock()
	held := c.change(hold("h1", time.Minute))
	r := c.record("with the hold applied", func(r topo.ProxyRecord) bool { return r.AppliedHold == "h1" })
	if r.AppliedEpoch != held.Epoch || r.DrainedHold != "" {
		t.Errorf("record %+v", r)
	}
	began := time.Now()
	p.engine.drain("h1")
	c.record("with the hold drained", func(r topo.ProxyRecord) bool { return r.DrainedHold == "h1" })
	t.Logf("drained was readable %s after the drain", time.Since(began))

	released := c.change(func(t *topo.Topology) { t.Hold = nil })
	r = c.record("released", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == released.Epoch })
	if r.AppliedHold != "" || r.DrainedHold != "" {
		t.Errorf("record %+v", r)
	}
}

func TestProxyReportsQuickDrainInOneWrite(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	_, before := c.admitted(c.config(stateDir(t)))
	_, rev, err := store.Load[topo.ProxyRecord](t.Context(), c.store, store.PrefixProxies+before.ID)
	if err != nil {
		t.Fatal(err)
	}
	held := c.change(hold("h1", time.Minute))
	c.record("drained", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == held.Epoch && r.DrainedHold == "h1" })
	_, after, err := store.Load[topo.ProxyRecord](t.Context(), c.store, store.PrefixProxies+before.ID)
	if err != nil || after > rev+2 { // the topology, the record
		t.Errorf("revision %d → %d, %v", rev, after, err)
	}
}

func TestOverdueHoldIsCancelledOnce(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	for range 3 {
		c.admitted(c.config(stateDir(t)))
	}
	held := c.change(hold("h1", 100*time.Millisecond))
	for range 3 {
		c.record("released", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == held.Epoch+1 })
	}
	now := c.topology()
	if now.Epoch != held.Epoch+1 || now.Hold != nil || len(now.Slots) != 1 || now.Slots[0] != held.Slots[0] || len(now.Proxies) != 3 {
		t.Errorf("topology %+v", now)
	}
}

func TestPromotingHoldIsNeverCancelled(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, _ := c.admitted(c.config(stateDir(t)))
	held := c.change(func(t *topo.Topology) {
		hold("h1", time.Millisecond)(t)
		t.Hold.Phase = topo.Promoting
	})
	c.record("drained", func(r topo.ProxyRecord) bool { return r.DrainedHold == "h1" })
	p.mu.Lock()
	overdue := p.overdue
	p.mu.Unlock()
	if !overdue.IsZero() || c.topology().Epoch != held.Epoch {
		t.Errorf("would be cancelled at %v", overdue)
	}
}

func TestEpochNeverGoesDown(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, r := c.admitted(c.config(stateDir(t)))
	old := c.topology()
	c.change(func(*topo.Topology) {})
	newer := c.change(func(*topo.Topology) {})
	c.record("of the newer epoch", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == newer.Epoch })

	refused := func(t *testing.T, what *topo.Topology) {
		t.Helper()
		_, err := c.store.Begin().Put(store.KeyTopology, what).Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		item, err := c.store.Get(t.Context(), store.KeyTopology)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "refusal", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.refusedRev == item.Rev })
		if got := p.engine.Applied(); got != newer.Epoch {
			t.Errorf("runs epoch %d", got)
		}
	}
	t.Run("older epoch", func(t *testing.T) { refused(t, old) })
	t.Run("other history", func(t *testing.T) {
		other, _ := newer.Next(func(n *topo.Topology) { n.History = "h2" })
		refused(t, other)
	})
	t.Run("other cluster", func(t *testing.T) {
		other, _ := newer.Next(func(n *topo.Topology) { n.Cluster = "c2" })
		refused(t, other)
	})
	t.Run("invalid", func(t *testing.T) {
		other, _ := newer.Next(func(n *topo.Topology) {})
		other.Databases = 0
		refused(t, other)
	})
	next, _ := newer.Next(func(*topo.Topology) {})
	c.put(store.KeyTopology, next)
	c.record("of the next epoch", func(got topo.ProxyRecord) bool { return got.ID == r.ID && got.AppliedEpoch == next.Epoch })
}

func TestCacheIsOnDiskBeforeReport(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, r := c.admitted(c.config(stateDir(t)))
	for range 30 {
		epoch := c.change(func(*topo.Topology) {}).Epoch
		c.record("of the epoch", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == epoch })
		if cached, err := p.folder.topology(c.name); err != nil || cached.Epoch < epoch {
			t.Fatalf("reported epoch %d, on disk %+v, %v", epoch, cached, err)
		}
	}
	// A disk that refuses: run it, but do not report it.
	path := filepath.Join(p.folder.dir, topologyFile)
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	before := c.topology().Epoch
	epoch := c.change(func(*topo.Topology) {}).Epoch
	eventually(t, "running it", func() bool { return p.engine.Applied() == epoch })
	p.poke()
	got, _, err := store.Load[topo.ProxyRecord](t.Context(), c.store, store.PrefixProxies+r.ID)
	if err != nil || got.AppliedEpoch != before {
		t.Errorf("record %+v, %v", got, err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	c.record("once the disk is back", func(r topo.ProxyRecord) bool { return r.AppliedEpoch == epoch })
}

func TestProxyStartsFromCacheWhileEtcdIsAway(t *testing.T) {
	etcdDir := t.TempDir()
	etcd, err := embedded.Start(t.Context(), embedded.Config{Dir: etcdDir, Client: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := etcd.Endpoint()
	c := newCluster(t, endpoint)
	cfg := c.config(stateDir(t))
	p, r := c.admitted(cfg)
	epoch := r.AppliedEpoch
	p.end(t)
	etcd.Close()

	p = c.start(cfg)
	eventually(t, "serving the last topology", func() bool { return p.engine.Applied() == epoch })
	if get(t, p, "/readyz") != 200 {
		t.Error("not ready although it serves")
	}
	if user, _ := p.engine.credentials(); user != topo.ProxyUser(r.ID, r.Incarnation) {
		t.Errorf("logs in as %s", user)
	}

	etcd, err = embedded.Start(t.Context(), embedded.Config{Dir: etcdDir, Client: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	c.record("after etcd came back", func(got topo.ProxyRecord) bool {
		return got.Incarnation == r.Incarnation && got.AppliedEpoch == epoch && got.StartedAt.After(r.StartedAt)
	})
	next := c.change(func(*topo.Topology) {})
	c.record("of the next epoch", func(got topo.ProxyRecord) bool { return got.AppliedEpoch == next.Epoch })
	p.end(t)
}

func TestProxyRegistersAgainWhenItsLeaseIsLost(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	_, r := c.admitted(c.config(stateDir(t)))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	reply, err := client.Get(t.Context(), "/shardis/"+c.name+"/proxies/"+r.ID)
	if err != nil || len(reply.Kvs) != 1 {
		t.Fatal(reply, err)
	}
	lost := reply.Kvs[0]
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(lost.Lease)); err != nil {
		t.Fatal(err)
	}
	c.record("again", func(got topo.ProxyRecord) bool {
		return got.Incarnation == r.Incarnation && got.AppliedEpoch == r.AppliedEpoch
	})
	reply, err = client.Get(t.Context(), "/shardis/"+c.name+"/proxies/"+r.ID)
	if err != nil || len(reply.Kvs) != 1 || reply.Kvs[0].Lease == lost.Lease || reply.Kvs[0].Lease == 0 {
		t.Errorf("record %+v, %v", reply.Kvs, err)
	}
}

func TestProxyLeavesInGoodOrder(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	cfg := c.config(stateDir(t))
	cfg.Drain.Delay = 500 * time.Millisecond
	p, r := c.admitted(cfg)
	p.stop()
	c.record("draining", func(got topo.ProxyRecord) bool { return got.Draining && got.AppliedEpoch == r.AppliedEpoch })
	if status := get(t, p, "/readyz"); status != 503 {
		t.Errorf("readyz answers %d while draining", status)
	}
	p.end(t)
	if _, err := c.store.Get(t.Context(), store.PrefixProxies+r.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("record after the end: %v", err)
	}
	if p.engine.drainCalls != 1 {
		t.Errorf("drained %d times", p.engine.drainCalls)
	}
	if f, err := openFolder(cfg.StateDir); err != nil {
		t.Errorf("folder after the end: %v", err)
	} else {
		f.close()
	}
}

func TestCloneGetsAnotherIdentity(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, r := c.admitted(c.config(stateDir(t)))
	clone := r
	clone.StartedAt, clone.Addr = r.StartedAt.Add(time.Second), "10.0.0.9:6379"
	c.put(store.PrefixProxies+r.ID, clone)
	c.change(func(*topo.Topology) {}) // makes it write
	fresh := c.record("under another id", func(got topo.ProxyRecord) bool { return got.ID != r.ID })
	if fresh.Incarnation == r.Incarnation || p.engine.runs() != nil {
		t.Errorf("record %+v", fresh)
	}
	if there, _, err := store.Load[topo.ProxyRecord](t.Context(), c.store, store.PrefixProxies+r.ID); err != nil || there.Addr != clone.Addr {
		t.Errorf("the other's record: %+v, %v", there, err)
	}
}

func TestConfiguredIDMustBeFree(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	first, second := c.config(stateDir(t)), c.config(stateDir(t))
	first.ID, second.ID = "p1", "p1"
	_, r := c.admitted(first)
	p := c.start(second)
	select {
	case err := <-p.ended:
		if !errors.Is(err, errIDTaken) || !strings.Contains(err.Error(), `"p1"`) {
			t.Errorf("got %v", err)
		}
		p.ended <- nil
	case <-time.After(patience):
		t.Fatal("two proxies of one id")
	}
	if got, _, err := store.Load[topo.ProxyRecord](t.Context(), c.store, store.PrefixProxies+"p1"); err != nil || got.Incarnation != r.Incarnation {
		t.Errorf("record %+v, %v", got, err)
	}
}

func TestUnreachableNodesAreReported(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p, _ := c.admitted(c.config(stateDir(t)))
	p.engine.setBackends(report.Backend{Group: "g1", Node: "127.0.0.1:7101", State: "down", DownSeconds: 3, Error: "connection refused"})
	r := c.record("with the node", func(r topo.ProxyRecord) bool { return len(r.Unreachable) == 1 })
	if u := r.Unreachable[0]; u.Node != "127.0.0.1:7101" || time.Since(u.Since) < 3*time.Second {
		t.Errorf("unreachable %+v", u)
	}
	if status := get(t, p, "/readyz"); status != 503 {
		t.Errorf("readyz answers %d with no group in reach", status)
	}
	p.engine.setBackends(report.Backend{Group: "g1", Node: "127.0.0.1:7101", State: "connected"})
	c.record("without it", func(r topo.ProxyRecord) bool { return len(r.Unreachable) == 0 })
}

func TestBadStarts(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	taken := c.start(c.config(stateDir(t)))
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign := stateDir(t)
	f := openTestFolder(t, foreign)
	other := testTopology(9)
	other.Cluster = "c9"
	if err := f.saveTopology(c.name, other, time.Now()); err != nil {
		t.Fatal(err)
	}
	f.close()
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"cluster that does not exist", func(c *Config) { c.Cluster = "nobody" }, []string{`"nobody"`, "shardis init"}},
		{"etcd away at the first start", func(c *Config) { c.Etcd.Endpoints = []string{"127.0.0.1:1"} }, []string{"127.0.0.1:1", "does not answer", "start etcd"}},
		{"folder in use", func(c *Config) { c.StateDir = taken.folder.dir }, []string{"another running proxy", "state_dir"}},
		{"folder open to others", func(c *Config) { c.StateDir = open }, []string{"chmod 700"}},
		{"folder of another cluster", func(c *Config) { c.StateDir = foreign }, []string{"another cluster", "remove the folder"}},
		{"admin port in use", func(c *Config) { c.Admin.Listen = taken.control.admin }, []string{"admin.listen", "address already in use"}},
		{"password file missing", func(c *Config) { c.PasswordFile = "/nowhere" }, []string{"password_file", "/nowhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := c.config(stateDir(t))
			test.change(&cfg)
			_, err := startProxy(t, cfg)
			if err == nil {
				t.Fatal("it started")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}

func TestRunEndsWhenTheLoopsFail(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p := c.start(c.config(stateDir(t)))
	close(p.engine.loops)
	select {
	case err := <-p.ended:
		if err == nil || !strings.Contains(err.Error(), "no more memory") {
			t.Errorf("got %v", err)
		}
		p.ended <- nil
	case <-time.After(patience):
		t.Fatal("the proxy goes on without loops")
	}
}
