package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shardis/coordinator/store/embedded"
)

// One etcd serves all tests that do not stop it; each has a cluster of its own.
var shared *embedded.Server

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "store-test-")
	if err == nil {
		shared, err = embedded.Start(context.Background(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	shared.Close()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func open(t *testing.T, endpoint string) *Store {
	t.Helper()
	s, err := Open(Config{Endpoints: []string{endpoint}, Cluster: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func commit(t *testing.T, txn *Txn) int64 {
	t.Helper()
	rev, err := txn.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func within(t *testing.T) <-chan time.Time { return time.After(20 * time.Second) }

func TestOpenRefusesABadConfig(t *testing.T) {
	for _, cfg := range []Config{{Cluster: "c"}, {Endpoints: []string{"x"}}, {Endpoints: []string{"x"}, Cluster: "a/b"}, {Endpoints: []string{"x"}, Cluster: "a b"}} {
		if s, err := Open(cfg); err == nil {
			_ = s.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestPing(t *testing.T) {
	if err := open(t, shared.Endpoint()).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := open(t, "127.0.0.1:1").Ping(ctx); err == nil || !Unavailable(err) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestTxnGuards(t *testing.T) {
	s := open(t, shared.Endpoint())
	ctx := t.Context()
	first := commit(t, s.Begin().Unchanged("k", 0).Put("k", 1).Put("other", "x"))
	item, err := s.Get(ctx, "k")
	if err != nil || item.Rev != first || item.Key != "k" || string(item.Value) != "1" || item.Lease {
		t.Fatalf("got %+v, %v, want revision %d", item, err, first)
	}
	conflict := func(what string, txn *Txn) {
		t.Helper()
		if _, err := txn.Put("written", 1).Commit(ctx); !errors.Is(err, ErrConflict) || errors.Is(err, ErrNotLeader) {
			t.Errorf("%s: got %v, want ErrConflict", what, err)
		}
	}
	conflict("it exists", s.Begin().Unchanged("k", 0))
	conflict("it does not exist", s.Begin().Exists("none"))
	second := commit(t, s.Begin().Unchanged("k", first).Put("k", 2))
	conflict("it changed", s.Begin().Unchanged("k", first))
	conflict("one of two changed", s.Begin().Unchanged("other", first).Unchanged("k", first))
	if _, err := s.Get(ctx, "written"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a refused transaction wrote: %v", err)
	}
	commit(t, s.Begin().Exists("k").Unchanged("k", second).Delete("k").Delete("never-there"))
	conflict("it was deleted", s.Begin().Exists("k"))
	if _, err := s.Begin().Put("k", func() {}).Commit(ctx); err == nil {
		t.Error("a value without JSON form was written")
	}

	commit(t, s.Begin().Put("p/1", 1).Put("p/2", 2).Put("q/1", 3))
	if all, err := LoadAll[int](ctx, s, "p/"); err != nil || !slices.Equal(all, []int{1, 2}) {
		t.Errorf("all of p: %v, %v", all, err)
	}
	commit(t, s.Begin().DeletePrefix("p/"))
	if items, rev, err := s.List(ctx, ""); err != nil || len(items) != 2 || rev == 0 { // other, q/1
		t.Errorf("left: %+v, %v", items, err)
	}
	if n, _, err := Load[int](ctx, s, "q/1"); err != nil || n != 3 {
		t.Errorf("q/1: %d, %v", n, err)
	}
	if _, _, err := Load[int](ctx, s, "other"); err == nil {
		t.Error("a string was read as a number")
	}
}

func TestTwoClustersDoNotMeet(t *testing.T) {
	s := open(t, shared.Endpoint())
	longer, err := Open(Config{Endpoints: []string{shared.Endpoint()}, Cluster: t.Name() + "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = longer.Close() }()
	commit(t, longer.Begin().Put("k", 1))
	if items, _, err := s.List(t.Context(), ""); err != nil || len(items) != 0 {
		t.Errorf("got %+v, %v", items, err)
	}
}

func TestDeposedLeaderCanNotWrite(t *testing.T) {
	ctx := t.Context()
	a, b := open(t, shared.Endpoint()), open(t, shared.Endpoint())
	if _, err := a.Leader(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody leads yet: %v", err)
	}
	one, err := a.Campaign(ctx, "one", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	elected := make(chan *Leadership, 1)
	go func() {
		two, err := b.Campaign(ctx, "two", 10*time.Second)
		if err != nil {
			t.Error(err)
		}
		elected <- two
	}()
	rev := commit(t, one.Begin().Unchanged(KeyTopology, 0).Put(KeyTopology, "by one"))
	if err := one.Check(ctx); err != nil {
		t.Error(err)
	}
	// A leader's own conflict is told from the loss of its leadership.
	if _, err := one.Begin().Unchanged(KeyTopology, 0).Commit(ctx); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	select {
	case <-elected:
		t.Fatal("two lead at once")
	case <-one.Done():
		t.Fatal("the leadership ended by itself")
	default:
	}
	// As when its lease expired while it was frozen.
	if _, err := b.client.Revoke(ctx, one.lease.id); err != nil {
		t.Fatal(err)
	}
	var two *Leadership
	select {
	case two = <-elected:
	case <-within(t):
		t.Fatal("nobody follows")
	}
	if two.Term() <= one.Term() {
		t.Errorf("term %d follows %d", two.Term(), one.Term())
	}
	if id, err := a.Leader(ctx); err != nil || id != "two" {
		t.Errorf("leader: %q, %v", id, err)
	}
	for name, txn := range map[string]*Txn{
		"blind":               one.Begin().Put(KeyTopology, "late"),
		"with what it read":   one.Begin().Unchanged(KeyTopology, rev).Put(KeyTopology, "late"),
		"and also a conflict": one.Begin().Unchanged(KeyTopology, 1).Put(KeyTopology, "late"),
	} {
		if _, err := txn.Commit(ctx); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s: got %v, want ErrNotLeader", name, err)
		}
	}
	if err := one.Check(ctx); !errors.Is(err, ErrNotLeader) {
		t.Errorf("check: got %v, want ErrNotLeader", err)
	}
	select {
	case <-one.Done():
	case <-within(t):
		t.Error("the deposed leader is not told")
	}
	commit(t, two.Begin().Unchanged(KeyTopology, rev).Put(KeyTopology, "by two"))
	if err := two.Resign(ctx); err != nil {
		t.Error(err)
	}
	if err := two.Check(ctx); !errors.Is(err, ErrNotLeader) {
		t.Errorf("after resigning: got %v, want ErrNotLeader", err)
	}
	if _, err := b.Leader(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("after resigning: %v", err)
	}
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	s := open(t, shared.Endpoint())
	one, err := s.Campaign(t.Context(), "one", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Campaign(ctx, "two", 10*time.Second); err == nil {
		t.Fatal("two lead at once")
	}
	if err := one.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What the loser left must not keep others waiting for its lease.
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Campaign(ctx, "three", 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestLeases(t *testing.T) {
	s := open(t, shared.Endpoint())
	watch := s.Watch(t.Context(), "p/")
	<-watch
	gone := func(key string) {
		t.Helper()
		for end := within(t); ; {
			select {
			case b := <-watch:
				if slices.Contains(b.Deletes, key) {
					return
				}
			case <-end:
				t.Fatalf("%s outlives its lease", key)
			}
		}
	}
	timed, err := s.Timed(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s.Begin().PutLease("p/timed", 1, timed))
	if item, err := s.Get(t.Context(), "p/timed"); err != nil || !item.Lease {
		t.Errorf("got %+v, %v", item, err)
	}
	gone("p/timed")

	for _, cancelled := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := s.NewLease(ctx, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, s.Begin().PutLease("p/kept", 1, lease))
		if cancelled {
			cancel()
			<-lease.Done()
		}
		if err := lease.Close(); err != nil {
			t.Error(err)
		}
		gone("p/kept")
		<-lease.Done()
		cancel()
	}
}

// relay is a TCP relay that can be cut.
type relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.serve(conn)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); r.set(true) })
	return r
}

func (r *relay) serve(in net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := net.Dial("tcp", r.target)
	if r.cut || err != nil {
		_ = in.Close()
		if err == nil {
			_ = out.Close()
		}
		return
	}
	r.conns = append(r.conns, in, out)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}

// set cuts all connections and refuses new ones, or lets them through again.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	if cut {
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.conns = nil
	}
}

// next is the next batch of a watch.
func next(t *testing.T, watch <-chan Batch) Batch {
	t.Helper()
	select {
	case b, open := <-watch:
		if !open {
			t.Fatal("the watch ended")
		}
		return b
	case <-within(t):
		t.Fatal("nothing comes")
	}
	return Batch{}
}

// state is what a watcher believes the keys to be.
type state map[string]string

func (s state) apply(b Batch) {
	if b.Reset {
		clear(s)
	}
	for _, i := range b.Puts {
		s[i.Key] = string(i.Value)
	}
	for _, k := range b.Deletes {
		delete(s, k)
	}
}

func TestWatchFirstTheStateThenChanges(t *testing.T) {
	s := open(t, shared.Endpoint())
	for i := range 300 {
		commit(t, s.Begin().Put(fmt.Sprintf("p/%03d", i), i))
	}
	last := commit(t, s.Begin().Put("q/1", 1))
	ctx, cancel := context.WithCancel(t.Context())
	watch := s.Watch(ctx, "p/")
	first := next(t, watch)
	if !first.Reset || len(first.Puts) != 300 || len(first.Deletes) != 0 || first.Rev < last {
		t.Fatalf("first batch: reset %t, %d keys, revision %d", first.Reset, len(first.Puts), first.Rev)
	}
	rev := commit(t, s.Begin().Put("p/a", "x").Put("p/b", "y").Delete("p/000").Put("q/2", 1))
	b := next(t, watch)
	if b.Reset || b.Rev != rev || len(b.Puts) != 2 || !slices.Equal(b.Deletes, []string{"p/000"}) || b.Puts[0].Rev != rev {
		t.Errorf("one revision came as %+v", b)
	}
	cancel()
	for end := within(t); ; {
		select {
		case _, open := <-watch:
			if !open {
				return
			}
		case <-end:
			t.Fatal("the watch does not end with its context")
		}
	}
}

func TestBatchKeepsTheLastChangeOfAKey(t *testing.T) {
	s := open(t, shared.Endpoint())
	began := commit(t, s.Begin().Put("start", 1))
	commit(t, s.Begin().Put("p/back", 1).Put("p/gone", 1).Put("p/twice", 1))
	commit(t, s.Begin().Delete("p/back"))
	commit(t, s.Begin().Put("p/back", 2).Put("p/twice", 2))
	commit(t, s.Begin().Delete("p/gone"))
	// From the past, all of it arrives as one answer.
	reply := <-s.client.Watch(t.Context(), s.prefix+"p/", clientv3.WithPrefix(), clientv3.WithRev(began+1))
	if len(reply.Events) != 7 {
		t.Fatalf("%d events in the first answer, want all 7", len(reply.Events))
	}
	got := state{}
	b := s.batch(reply)
	got.apply(b)
	if len(b.Puts) != 2 || len(b.Deletes) != 1 || got["p/back"] != "2" || got["p/twice"] != "2" || len(got) != 2 {
		t.Errorf("batch %+v gives %v", b, got)
	}
}

func TestWatchResetsAfterCompaction(t *testing.T) {
	direct := open(t, shared.Endpoint())
	r := newRelay(t, shared.Endpoint())
	behind := open(t, r.listener.Addr().String())
	commit(t, direct.Begin().Put("p/stays", 1).Put("p/goes", 1))
	watch := behind.Watch(t.Context(), "p/")
	got := state{}
	got.apply(next(t, watch))

	// While nobody looks: changes, and their history is thrown away.
	r.set(true)
	commit(t, direct.Begin().Delete("p/goes"))
	rev := commit(t, direct.Begin().Put("p/new", 1))
	rev = commit(t, direct.Begin().Put("p/newer", 1).Unchanged("p/new", rev))
	if _, err := direct.client.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	r.set(false)

	b := next(t, watch)
	if !b.Reset || b.Rev < rev {
		t.Errorf("got %+v, want a reset", b)
	}
	got.apply(b)
	if len(got) != 3 || got["p/goes"] != "" {
		t.Errorf("state: %v", got)
	}
	rev = commit(t, direct.Begin().Put("p/last", 1))
	for b = next(t, watch); b.Rev < rev; b = next(t, watch) {
		got.apply(b)
	}
	got.apply(b)
	if got["p/last"] != "1" {
		t.Errorf("after the reset: %v", got)
	}
}

func TestWatchSurvivesARestartOfEtcd(t *testing.T) {
	dir := t.TempDir()
	etcd, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := etcd.Endpoint()
	s := open(t, endpoint)
	commit(t, s.Begin().Put("p/1", 1))
	leader, err := s.Campaign(t.Context(), "one", 60*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	watch := s.Watch(t.Context(), "p/")
	got := state{}
	got.apply(next(t, watch))
	etcd.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	_, err = s.Get(ctx, "p/1")
	cancel()
	if err == nil || !Unavailable(err) {
		t.Errorf("etcd is away: got %v", err)
	}

	etcd, err = embedded.Start(t.Context(), embedded.Config{Dir: dir, Client: endpoint, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	// Written by somebody else, who sees it at once.
	rev := commit(t, open(t, endpoint).Begin().Put("p/2", 2).Delete("p/1"))
	for got["p/2"] == "" {
		b := next(t, watch)
		got.apply(b)
		if b.Rev > rev && got["p/2"] == "" {
			t.Fatalf("a change was left out: %v", got)
		}
	}
	if len(got) != 1 {
		t.Errorf("state: %v", got)
	}
	// A leadership outlives a short absence of etcd.
	if err := leader.Check(t.Context()); err != nil {
		t.Errorf("the leader: %v", err)
	}
}

// Many writers, one watcher: what it believes in the end is what is there.
func TestWatchAgreesWithTheStore(t *testing.T) {
	s := open(t, shared.Endpoint())
	watch := s.Watch(t.Context(), "p/")
	got := state{}
	got.apply(next(t, watch))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				key := fmt.Sprintf("p/%d", (i*7+w)%9)
				txn := s.Begin().Put(key, i)
				if i%3 == 0 {
					txn = s.Begin().Delete(key)
				}
				if _, err := txn.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rev := commit(t, s.Begin().Put("p/end", 1))
	for {
		b := next(t, watch)
		got.apply(b)
		if b.Rev >= rev {
			break
		}
	}
	items, _, err := s.List(t.Context(), "p/")
	if err != nil || len(items) != len(got) {
		t.Fatalf("%d keys, the watcher has %d, %v", len(items), len(got), err)
	}
	for _, i := range items {
		if got[i.Key] != string(i.Value) {
			t.Errorf("%s is %s, the watcher has %s", i.Key, i.Value, got[i.Key])
		}
	}
}
