package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
	"shardis/proxy/rights"
)

const patience = 15 * time.Second // a wait in these tests that takes longer has failed

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	if code == 0 {
		if err := goleak.Find(
			// etcd's server and its logger leave these behind.
			goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the etcd of all tests that do not stop theirs.
var shared struct {
	once   sync.Once
	server *embedded.Server
	err    error
}

func sharedEtcd(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "shardis-proxy-test")
		if err != nil {
			shared.err = err
			return
		}
		shared.server, shared.err = embedded.Start(context.Background(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.Endpoint()
}

// cluster is the control plane as a test plays it.
type cluster struct {
	t        *testing.T
	name     string
	endpoint string
	store    *store.Store
}

func newCluster(t *testing.T, endpoint string) *cluster {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())) + "-" + rand.Text()[:6] // also with -count
	st, err := store.Open(store.Config{Endpoints: []string{endpoint}, Cluster: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c := &cluster{t, name, endpoint, st}
	first := testTopology(1)
	meta := topo.Meta{Format: topo.Format, Cluster: first.Cluster, Name: name, History: first.History, Scheme: first.Scheme, Databases: 16}
	if _, err := st.Begin().Put(store.KeyMeta, meta).Put(store.KeyTopology, first).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// topology is the one in etcd now.
func (c *cluster) topology() *topo.Topology {
	c.t.Helper()
	item, err := c.store.Get(c.t.Context(), store.KeyTopology)
	if err != nil {
		c.t.Fatal(err)
	}
	t, err := topo.DecodeTopology(item.Value)
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

// change writes the topology of the next epoch.
func (c *cluster) change(change func(*topo.Topology)) *topo.Topology {
	c.t.Helper()
	next, err := c.topology().Next(change)
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(store.KeyTopology, next)
	return next
}

func (c *cluster) put(key string, value any) {
	c.t.Helper()
	if _, err := c.store.Begin().Put(key, value).Commit(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// admit makes the proxy of that record a member.
func (c *cluster) admit(r topo.ProxyRecord) *topo.Topology {
	c.t.Helper()
	return c.change(func(t *topo.Topology) {
		member := topo.Member{ID: r.ID, Incarnation: r.Incarnation, State: topo.Admitted}
		if m := t.Member(r.ID); m != nil {
			*m = member
			return
		}
		t.Proxies = append(t.Proxies, member)
	})
}

// record waits until some proxy's record is as wanted.
func (c *cluster) record(what string, wanted func(topo.ProxyRecord) bool) topo.ProxyRecord {
	c.t.Helper()
	return waitRecord(c.t, c.store, what, wanted)
}

func waitRecord(t *testing.T, st *store.Store, what string, wanted func(topo.ProxyRecord) bool) topo.ProxyRecord {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last string
	for batch := range st.Watch(ctx, store.PrefixProxies) {
		for _, item := range batch.Puts {
			var r topo.ProxyRecord
			if err := item.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if wanted(r) {
				return r
			}
			last = string(item.Value)
		}
	}
	t.Fatalf("no record %s came; the last was %s", what, last)
	return topo.ProxyRecord{}
}

func anyRecord(topo.ProxyRecord) bool { return true }

// proc is one proxy under test.
type proc struct {
	*running
	engine *fakeEngine
	stop   context.CancelFunc
	ended  chan error
}

func (c *cluster) config(dir string) Config {
	cfg := Default()
	cfg.Cluster, cfg.StateDir = c.name, dir
	cfg.Listen = []string{"127.0.0.1:0"}
	cfg.Etcd.Endpoints = []string{c.endpoint}
	cfg.Drain.Timeout = 2 * time.Second
	return cfg
}

// start runs a proxy with a scripted engine until the test ends.
func (c *cluster) start(cfg Config) *proc {
	c.t.Helper()
	p, err := startProxy(c.t, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func startProxy(t *testing.T, cfg Config) (*proc, error) {
	t.Helper()
	s, err := New(cfg, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	if err != nil {
		return nil, err
	}
	p := &proc{ended: make(chan error, 1)}
	s.idWait = 300 * time.Millisecond
	s.newEngine = func(_ Config, users *rights.Book, id identity, _ *slog.Logger) (engine, error) {
		p.engine = &fakeEngine{users: users, changed: make(chan struct{}, 1), user: id.user(), password: id.Password, loops: make(chan struct{})}
		return p.engine, nil
	}
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

// end stops the proxy, as SIGTERM does, and waits for it.
func (p *proc) end(t *testing.T) {
	t.Helper()
	p.stop()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("run ended with %v", err)
		}
		p.ended <- nil
	case <-time.After(patience):
		t.Fatal("the proxy did not end")
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(line []byte) (int, error) {
	if w.t.Context().Err() == nil { // Not after the test: that would panic.
		w.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// fakeEngine does at once what it is told, except for draining, which waits for
// the test where it says so.
type fakeEngine struct {
	loops   chan struct{} // closed: Run ends with an error
	changed chan struct{}

	mu             sync.Mutex
	applied        []*topo.Topology // each call of Apply
	slowDrain      bool             // wait for drain()
	drained        string
	user, password string
	users          *rights.Book
	backends       []report.Backend
	drainCalls     int
	hang           bool // loops do not answer
	stats          stats.Snapshot
}

func (e *fakeEngine) Listen() error { return nil }
func (e *fakeEngine) Addrs() []net.Addr {
	return []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}}
}

func (e *fakeEngine) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.loops:
		return errors.New("loop 0: no more memory")
	}
}

func (e *fakeEngine) Apply(t *topo.Topology) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applied = append(e.applied, t)
	if t != nil && t.Hold != nil && !e.slowDrain {
		e.drained = t.Hold.ID
	}
	e.poke()
}

// drain says that the hold was drained.
func (e *fakeEngine) drain(hold string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drained = hold
	e.poke()
}

func (e *fakeEngine) poke() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// runs is the topology the engine runs, nil if none.
func (e *fakeEngine) runs() *topo.Topology {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.applied) == 0 {
		return nil
	}
	return e.applied[len(e.applied)-1]
}

func (e *fakeEngine) Applied() topo.Epoch {
	if t := e.runs(); t != nil {
		return t.Epoch
	}
	return 0
}

func (e *fakeEngine) Drained() string {
	t := e.runs()
	e.mu.Lock()
	defer e.mu.Unlock()
	if t == nil || t.Hold == nil || t.Hold.ID != e.drained {
		return ""
	}
	return e.drained
}

func (e *fakeEngine) Changed() <-chan struct{} { return e.changed }

func (e *fakeEngine) SetUsers(book *rights.Book) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users = book
}

// clientUser looks a client user up in the book in force.
func (e *fakeEngine) clientUser(name string) *rights.User {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.users.User(name)
}

func (e *fakeEngine) SetCredentials(user, password string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.user, e.password = user, password
}

func (e *fakeEngine) credentials() (user, password string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.user, e.password
}

func (e *fakeEngine) Drain(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drainCalls++
	return nil
}

func (e *fakeEngine) Tick() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.hang
}

func (e *fakeEngine) Stats() stats.Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

func (e *fakeEngine) Clients() []report.Client {
	return []report.Client{{ID: 1, Addr: "127.0.0.1:50000"}}
}

func (e *fakeEngine) Backends() []report.Backend {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.backends
}

func (e *fakeEngine) setBackends(backends ...report.Backend) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.backends = backends
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not happen", what)
		}
	}
}

func stateDir(t *testing.T) string { return filepath.Join(t.TempDir(), "state") }
