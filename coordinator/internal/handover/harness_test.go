package handover

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
)

const secret = "node-password"

var endpoint string // of the etcd all tests share, each with a cluster of its own

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		panic(err)
	}
	server, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	if err != nil {
		panic(err)
	}
	endpoint = server.Endpoint()
	code := m.Run()
	server.Close()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// eventually waits for a condition, looking every few milliseconds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

// never makes sure that a condition stays false for a while.
func never(t *testing.T, what string, span time.Duration, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(span); time.Now().Before(end); <-tick.C {
		if holds() {
			t.Fatalf("it came to this: %s", what)
		}
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// cluster is one test's cluster: groups g1, g2, … of one master each, all slots
// spread over them.
type cluster struct {
	t     testing.TB
	st    *store.Store
	log   *slog.Logger
	nodes []*localredis.Process
}

func newCluster(t testing.TB, groups int) *cluster {
	t.Helper()
	st, err := store.Open(store.Config{Endpoints: []string{endpoint}, Cluster: topo.NewID("c")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c := &cluster{t: t, st: st, log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	first := &topo.Topology{Format: topo.Format, Cluster: "c", History: "h", Scheme: topo.CRC32, Databases: 16}
	for i := range groups {
		p := localredis.StartTest(t, localredis.Config{Password: secret, MasterAuth: secret})
		c.nodes = append(c.nodes, p)
		first.Groups = append(first.Groups, topo.Group{ID: fmt.Sprintf("g%d", i+1), Nodes: []topo.Node{{Addr: p.Addr, Role: topo.Master}}})
	}
	if groups > 0 {
		each := first.Scheme.Slots() / groups
		for i := range groups {
			last := (i + 1) * each
			if i == groups-1 {
				last = first.Scheme.Slots()
			}
			first.Assign(topo.SlotSet{{First: topo.Slot(i * each), Last: topo.Slot(last - 1)}}, first.Groups[i].ID)
		}
	}
	if _, err := st.Begin().Unchanged(store.KeyTopology, 0).Put(store.KeyTopology, first).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// leader is a manager that runs.
type leader struct {
	*Manager
	lease *store.Leadership
	stop  func() // ends it without resigning, as a crash does
	ended chan error
}

func quick(tm *timing) {
	tm.tryLive, tm.tryGone = 60*time.Millisecond, 40*time.Millisecond
	tm.reconcile = 50 * time.Millisecond
	tm.drain = 3 * time.Second // the machine may be busy; who does not drain says so
	tm.node = time.Second
}

// lead makes a leader with short tries. It ends with the test.
func (c *cluster) lead(adjust ...func(*timing)) *leader {
	c.t.Helper()
	lease, err := c.st.Campaign(c.t.Context(), "coordinator", 5*time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := node.NewPool(node.PoolConfig{Term: lease.Term(), Check: lease.Check, Log: c.log,
		Secret: func(context.Context, string) (topo.Secret, error) { return topo.Secret{Password: secret}, nil }})
	l := &leader{Manager: New(c.st, lease, pool, c.log.With("term", lease.Term())), lease: lease, ended: make(chan error, 1)}
	quick(&l.timing)
	for _, a := range adjust {
		a(&l.timing)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	go func() { l.ended <- l.Run(ctx) }()
	l.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-l.ended; err != nil {
				c.t.Logf("manager ended: %v", err)
			}
			pool.Close()
			_ = lease.Resign(context.Background())
		})
	}
	c.t.Cleanup(l.stop)
	return l
}

// proxy imitates a proxy: it registers, applies and drains what the topology
// asks for, or refuses to.
type proxy struct {
	c         *cluster
	id        string
	inc       string
	password  string
	lease     *store.Lease
	deaf      atomic.Bool // applies nothing
	busy      atomic.Bool // applies, drains nothing
	nudge     chan struct{}
	stop      func()
	applied   atomic.Uint64 // epoch
	lastHolds sync.Map      // holds it saw
}

func (c *cluster) proxy(id, inc string, adjust ...func(*proxy)) *proxy {
	c.t.Helper()
	p := &proxy{c: c, id: id, inc: inc, password: "pw-" + inc, nudge: make(chan struct{}, 1)}
	for _, a := range adjust {
		a(p)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	lease, err := c.st.NewLease(ctx, 10*time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	p.lease = lease
	credential := topo.Credential{Format: topo.Format, ID: id, Incarnation: inc, PasswordHash: node.HashPassword(p.password)}
	if _, err := c.st.Begin().Put(store.PrefixCredentials+id, credential).Commit(ctx); err != nil {
		c.t.Fatal(err)
	}
	if err := p.report(ctx, topo.ProxyRecord{}); err != nil {
		c.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			running.Wait()
			_ = lease.Close()
		})
	}
	c.t.Cleanup(p.stop)
	return p
}

func (p *proxy) report(ctx context.Context, r topo.ProxyRecord) error {
	r.Format, r.ID, r.Incarnation, r.Addr = topo.Format, p.id, p.inc, "127.0.0.1:1"
	_, err := p.c.st.Begin().PutLease(store.PrefixProxies+p.id, r, p.lease).Commit(ctx)
	return err
}

func (p *proxy) run(ctx context.Context) {
	var newest *topo.Topology
	batches := p.c.st.Watch(ctx, store.KeyTopology)
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				return
			}
			for _, item := range b.Puts {
				if t, err := topo.DecodeTopology(item.Value); err == nil {
					newest = t
				}
			}
		case <-p.nudge:
		}
		if newest == nil || p.deaf.Load() {
			continue
		}
		m := newest.Member(p.id)
		if m == nil || m.Incarnation != p.inc || m.State != topo.Admitted {
			continue
		}
		r := topo.ProxyRecord{AppliedEpoch: newest.Epoch}
		if h := newest.Hold; h != nil {
			p.lastHolds.Store(h.ID, true)
			r.AppliedHold = h.ID
			if !p.busy.Load() {
				r.DrainedHold = h.ID
			}
		}
		if p.report(ctx, r) == nil {
			p.applied.Store(uint64(newest.Epoch))
		}
	}
}

func (p *proxy) set(b *atomic.Bool, value bool) {
	b.Store(value)
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// follows waits until the proxy runs the newest epoch.
func (p *proxy) follows(t *testing.T, m *leader) {
	t.Helper()
	eventually(t, p.id+" runs the newest epoch", func() bool {
		now, _ := m.Topology()
		return m.Applied()[p.id] == now.Epoch
	})
}

func (p *proxy) user() string { return topo.ProxyUser(p.id, p.inc) }

// admitted reports whether the newest topology has the proxy.
func (p *proxy) admitted(m *Manager) bool {
	t, _ := m.Topology()
	if t == nil {
		return false
	}
	at := t.Member(p.id)
	return at != nil && at.Incarnation == p.inc && at.State == topo.Admitted
}

// connect logs in to a node as the proxy; the client never reconnects.
func (p *proxy) connect(addr string) *redis.Client {
	p.c.t.Helper()
	a, err := node.Open(p.c.t.Context(), addr, topo.Secret{User: p.user(), Password: p.password})
	if err != nil {
		p.c.t.Fatal(err)
	}
	p.c.t.Cleanup(a.Close)
	return a.Conn()
}

// users lists the ACL users of a node other than default and the leader's.
func (c *cluster) users(addr string) []string {
	c.t.Helper()
	a, err := node.Open(c.t.Context(), addr, topo.Secret{Password: secret})
	if err != nil {
		return nil
	}
	defer a.Close()
	all, err := a.Users(c.t.Context())
	if err != nil {
		return nil
	}
	var ours []string
	for _, u := range all {
		if u != "default" && !node.IsLeaderUser(u) {
			ours = append(ours, u)
		}
	}
	return ours
}

// stored reads the topology from etcd.
func (c *cluster) stored() (*topo.Topology, int64) {
	c.t.Helper()
	item, err := c.st.Get(c.t.Context(), store.KeyTopology)
	if err != nil {
		c.t.Fatal(err)
	}
	t, err := topo.DecodeTopology(item.Value)
	if err != nil {
		c.t.Fatal(err)
	}
	return t, item.Rev
}
