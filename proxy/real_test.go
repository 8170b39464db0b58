package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/report"
)

// These tests run the whole proxy, with its event loops, against real
// redis-servers. The test plays the leader by hand.

// node is a Redis with an administrator's client.
type node struct {
	*localredis.Process
	admin *redis.Client
}

func startNode(t *testing.T) *node {
	t.Helper()
	p := localredis.StartTest(t, localredis.Config{Password: "secret"})
	admin := redis.NewClient(&redis.Options{Addr: p.Addr, Password: "secret", Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	return &node{p, admin}
}

func (n *node) allow(t *testing.T, r topo.ProxyRecord, hash string) {
	t.Helper()
	user := topo.ProxyUser(r.ID, r.Incarnation)
	if err := n.admin.Do(t.Context(), "ACL", "SETUSER", user, "reset", "on", "#"+hash, "~*", "&*", "+@all", "-@admin", "+client|kill").Err(); err != nil {
		t.Fatal(err)
	}
}

// newRealCluster has one group per node; the first owns all slots.
func newRealCluster(t *testing.T, nodes ...*node) *cluster {
	t.Helper()
	c := newCluster(t, sharedEtcd(t))
	c.change(func(next *topo.Topology) {
		next.Groups = nil
		for i, n := range nodes {
			next.Groups = append(next.Groups, topo.Group{ID: fmt.Sprintf("g%d", i+1), Nodes: []topo.Node{{Addr: n.Addr, Role: topo.Master}}})
		}
	})
	return c
}

// startReal runs a proxy with real event loops.
func startReal(t *testing.T, cfg Config) (*proc, error) {
	t.Helper()
	s, err := New(cfg, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	if err != nil {
		return nil, err
	}
	p := &proc{ended: make(chan error, 1)}
	up := make(chan *running, 1)
	s.started = func(r *running) { up <- r }
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.ended <- s.Run(ctx) }()
	select {
	case p.running = <-up:
	case err := <-p.ended:
		cancel()
		return nil, err
	}
	t.Cleanup(func() { p.end(t) })
	return p, nil
}

// join starts a real proxy and admits it on all nodes.
func (c *cluster) join(nodes ...*node) (*proc, topo.ProxyRecord) {
	c.t.Helper()
	p, err := startReal(c.t, c.config(stateDir(c.t)))
	if err != nil {
		c.t.Fatal(err)
	}
	id := p.identity().ID
	r := c.record("of "+id, func(r topo.ProxyRecord) bool { return r.ID == id })
	return p, c.letIn(r, nodes...)
}

// letIn does what the leader does to admit a proxy.
func (c *cluster) letIn(r topo.ProxyRecord, nodes ...*node) topo.ProxyRecord {
	c.t.Helper()
	credential, _, err := store.Load[topo.Credential](c.t.Context(), c.store, store.PrefixCredentials+r.ID)
	if err != nil || credential.Incarnation != r.Incarnation {
		c.t.Fatal(credential, err)
	}
	for _, n := range nodes {
		n.allow(c.t, r, credential.PasswordHash)
	}
	epoch := c.admit(r).Epoch
	return c.record("admitted", func(got topo.ProxyRecord) bool { return got.ID == r.ID && got.AppliedEpoch >= epoch })
}

func dialProxy(t *testing.T, p *proc) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestRealProxyServesOnceAdmitted(t *testing.T) {
	n := startNode(t)
	c := newRealCluster(t, n)
	p, err := startReal(t, c.config(stateDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	client := dialProxy(t, p)
	early := make(chan error, 1)
	go func() { early <- client.Set(context.WithoutCancel(t.Context()), "k", "v", 0).Err() }()
	r := c.record("at all", anyRecord)
	select {
	case err := <-early:
		t.Fatalf("a command was answered before the proxy was admitted: %v", err)
	default:
	}
	c.letIn(r, n)
	if err := <-early; err != nil {
		t.Fatalf("the command that waited: %v", err)
	}
	if v, err := n.admin.Get(t.Context(), "k").Result(); v != "v" || err != nil {
		t.Errorf("on the node: %q, %v", v, err)
	}
	if s := get(t, p, "/readyz"); s != 200 {
		t.Errorf("readyz %d", s)
	}
	_, metrics := fetch(t, p, "/metrics")
	if !strings.Contains(metrics, "shardis_proxy_slot_table_epoch 3\n") {
		t.Error("metrics lack the epoch")
	}
}

func TestRealProxyPortInUse(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cfg := c.config(stateDir(t))
	cfg.Listen = []string{l.Addr().String()}
	if _, err := startReal(t, cfg); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

// TestRealProxyWaitsWhenEvicted: the nodes throw the proxy out; the commands
// of its clients wait until it is admitted under a new incarnation.
func TestRealProxyWaitsWhenEvicted(t *testing.T) {
	n := startNode(t)
	c := newRealCluster(t, n)
	p, r := c.join(n)
	client := dialProxy(t, p)
	if err := client.Set(t.Context(), "k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.change(func(t *topo.Topology) { t.Proxies[0].State = topo.Evicting })
	if err := n.admin.Do(t.Context(), "ACL", "DELUSER", topo.ProxyUser(r.ID, r.Incarnation)).Err(); err != nil {
		t.Fatal(err)
	}
	again := c.record("of a new incarnation", func(got topo.ProxyRecord) bool { return got.Incarnation != r.Incarnation })
	waited := make(chan error, 1)
	go func() { waited <- client.Incr(context.WithoutCancel(t.Context()), "k").Err() }()
	c.letIn(again, n)
	if err := <-waited; err != nil {
		t.Fatalf("the command that waited: %v", err)
	}
	if v, err := client.Get(t.Context(), "k").Int(); v != 2 || err != nil {
		t.Errorf("k is %d, %v", v, err)
	}
}

// TestRealHandOver moves all slots to and fro between two nodes under load, as
// the leader does: hold, drain, copy, switch. INCR must never repeat or skip a
// value.
func TestRealHandOver(t *testing.T) {
	nodes := []*node{startNode(t), startNode(t)}
	c := newRealCluster(t, nodes...)
	proxies := make([]*proc, 2)
	for i := range proxies {
		proxies[i], _ = c.join(nodes...)
	}
	const writers, rounds = 8, 20
	var stop atomic.Bool
	var group sync.WaitGroup
	var done atomic.Int64
	for w := range writers {
		client := dialProxy(t, proxies[w%len(proxies)])
		group.Go(func() {
			key := fmt.Sprintf("counter:%d", w)
			for want := int64(1); !stop.Load(); want++ {
				got, err := client.Incr(context.WithoutCancel(t.Context()), key).Result()
				if err != nil || got != want {
					t.Errorf("writer %d: got %d, want %d: %v", w, got, want, err)
					return
				}
				done.Add(1)
			}
		})
	}
	var drains []time.Duration
	for round := range rounds {
		before := done.Load()
		eventually(t, "progress", func() bool { return done.Load() > before+100 || t.Failed() })
		from, to := nodes[round%2], nodes[(round+1)%2]
		id := fmt.Sprintf("h%d", round)
		held := c.change(func(t *topo.Topology) {
			t.Hold = &topo.Hold{ID: id, Phase: topo.Holding, Slots: t.Scheme.All(), Timeout: time.Minute}
		})
		began := time.Now()
		for _, p := range proxies {
			c.record("drained", func(r topo.ProxyRecord) bool {
				return r.ID == p.identity().ID && r.DrainedHold == id && r.AppliedEpoch == held.Epoch
			})
		}
		drains = append(drains, time.Since(began))
		for w := range writers {
			key := fmt.Sprintf("counter:%d", w)
			value, err := from.admin.Get(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := to.admin.Set(t.Context(), key, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			from.admin.Del(t.Context(), key)
		}
		c.change(func(next *topo.Topology) {
			next.Hold = nil
			next.Assign(next.Scheme.All(), fmt.Sprintf("g%d", (round+1)%2+1))
		})
	}
	stop.Store(true)
	group.Wait()
	slices.Sort(drains)
	t.Logf("%d increments; hold published to both proxies' reports read: p50 %s, worst %s", done.Load(), drains[rounds/2], drains[rounds-1])
	for _, p := range proxies {
		s := view[struct{ State string }](t, p, "status")
		if s.State != "serving" {
			t.Errorf("state %q", s.State)
		}
	}
}

// TestRealProxyDrains: clients' commands under way are answered before the
// connections close.
func TestRealProxyDrains(t *testing.T) {
	n := startNode(t)
	c := newRealCluster(t, n)
	p, _ := c.join(n)
	client := dialProxy(t, p)
	if err := client.Set(t.Context(), "k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := n.admin.Do(t.Context(), "CLIENT", "PAUSE", "300").Err(); err != nil {
		t.Fatal(err)
	}
	slow := make(chan error, 1)
	go func() { slow <- client.Incr(context.WithoutCancel(t.Context()), "k").Err() }()
	eventually(t, "the command under way", func() bool {
		return slices.ContainsFunc(p.running.control.engine.Backends(), func(b report.Backend) bool { return b.Inflight > 0 })
	})
	p.end(t)
	if err := <-slow; err != nil {
		t.Errorf("the command under way: %v", err)
	}
}
