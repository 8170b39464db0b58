package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
)

const password = "node-password"

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
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// world is one test's cluster, with a client and no coordinator yet.
type world struct {
	*Client
	t      *testing.T
	config store.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := store.Config{Endpoints: []string{endpoint}, Cluster: topo.NewID("c")}
	st, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w := &world{Client: NewClient(st, nil), t: t, config: cfg}
	if _, err := w.Init(t.Context(), "test", topo.CRC32, 16); err != nil {
		t.Fatal(err)
	}
	return w
}

// coordinate runs a coordinator; it ends with the test or when stop is called.
func (w *world) coordinate(id string, adjust ...func(*Config)) (stop func()) {
	w.t.Helper()
	cfg := Config{Etcd: w.config, ID: id, LeaseTTL: 2 * time.Second, PurgeDelay: 100 * time.Millisecond}
	for _, a := range adjust {
		a(&cfg)
	}
	log := slog.New(slog.NewTextHandler(testLog{w.t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, log) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				w.t.Errorf("coordinator %s: %v", id, err)
			}
		})
	}
	w.t.Cleanup(stop)
	return stop
}

// redis starts a node.
func (w *world) redis(adjust ...func(*localredis.Config)) *localredis.Process {
	w.t.Helper()
	cfg := localredis.Config{Password: password, MasterAuth: password}
	for _, a := range adjust {
		a(&cfg)
	}
	return localredis.StartTest(w.t, cfg)
}

func (w *world) admin(addr string) *node.Admin {
	w.t.Helper()
	a, err := node.Open(w.t.Context(), addr, topo.Secret{Password: password})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(a.Close)
	return a
}

// ends waits for the end of an operation and checks how it ended.
func (w *world) ends(op *topo.Operation, err error, state topo.OperationState) topo.Operation {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	var now topo.Operation
	eventually(w.t, fmt.Sprintf("operation %s ends", op.ID), func() bool {
		now, _, err = store.Load[topo.Operation](w.t.Context(), w.store, store.PrefixOperations+op.ID)
		return err == nil && now.State.Finished()
	})
	if now.State != state {
		w.t.Fatalf("operation %s (%s) %s: %s; log %v", op.ID, op.Kind, now.State, now.Reason, now.Log)
	}
	return now
}

func (w *world) succeeds(op *topo.Operation, err error) topo.Operation {
	w.t.Helper()
	return w.ends(op, err, topo.OpSucceeded)
}

// group adds a group and waits until it is there.
func (w *world) group(id string, nodes ...*localredis.Process) {
	w.t.Helper()
	in := GroupInput{ID: id, Password: password}
	for _, n := range nodes {
		in.Nodes = append(in.Nodes, topo.Node{Addr: n.Addr})
	}
	op, err := w.AddGroup(w.t.Context(), in, "tester")
	w.succeeds(op, err)
}

func (w *world) now() *topo.Topology {
	w.t.Helper()
	t, _, err := w.topology(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// contents is everything stored for the cluster, but for what a coordinator
// writes by itself.
func (w *world) contents() map[string]string {
	w.t.Helper()
	items, _, err := w.store.List(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, i := range items {
		if !strings.HasPrefix(i.Key, store.PrefixElection) && !strings.HasPrefix(i.Key, store.PrefixObserved) {
			all[i.Key] = string(i.Value)
		}
	}
	return all
}

// users lists the ACL users of ours on a node, but for the leader's.
func (w *world) users(addr string) []string {
	w.t.Helper()
	all, err := w.admin(addr).Users(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(u string) bool { return u == "default" || node.IsLeaderUser(u) })
}

// proxy imitates a proxy that applies and drains at once.
func (w *world) proxy(id string) (user string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	lease, err := w.store.NewLease(ctx, 10*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	report := func(r topo.ProxyRecord) error {
		r.Format, r.ID, r.Incarnation = topo.Format, id, "i1"
		_, err := w.store.Begin().PutLease(store.PrefixProxies+id, r, lease).Commit(ctx)
		return err
	}
	credential := topo.Credential{Format: topo.Format, ID: id, Incarnation: "i1", PasswordHash: node.HashPassword("pw")}
	if _, err := w.store.Begin().Put(store.PrefixCredentials+id, credential).Commit(ctx); err != nil {
		w.t.Fatal(err)
	}
	if err := report(topo.ProxyRecord{}); err != nil {
		w.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for b := range w.store.Watch(ctx, store.KeyTopology) {
			for _, item := range b.Puts {
				t, err := topo.DecodeTopology(item.Value)
				if err != nil || t.Member(id) == nil {
					continue
				}
				r := topo.ProxyRecord{AppliedEpoch: t.Epoch}
				if t.Hold != nil {
					r.AppliedHold, r.DrainedHold = t.Hold.ID, t.Hold.ID
				}
				_ = report(r)
			}
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = lease.Close()
	})
	eventually(w.t, id+" is admitted", func() bool { m := w.now().Member(id); return m != nil && m.State == topo.Admitted })
	return topo.ProxyUser(id, "i1")
}

// refused checks that err is a problem of this code and field.
func refused(t *testing.T, err error, code Code, field string) {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) {
		t.Errorf("got %v, want a problem %s", err, code)
		return
	}
	if p.Code != code || p.Field != field || p.Detail == "" {
		t.Errorf("got %s at %q (%s), want %s at %q", p.Code, p.Field, p.Error(), code, field)
	}
}
