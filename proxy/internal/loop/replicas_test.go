package loop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/loop"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/session"
	"shardis/proxy/report"
)

// pairs is an engine over groups of a real master and a real replica each. What
// the replicas get of their masters goes through gates that can stall.
type pairs struct {
	*world
	replicas []*localredis.Process
	gates    []*gate
	reads    string // where clients connect whose mode is prefer-replica
}

func startPairs(t *testing.T, groups int, cfg session.Config, replica localredis.Config) *pairs {
	t.Helper()
	if _, err := localredis.Find(); err != nil {
		t.Skip(err)
	}
	w := &pairs{world: &world{t: t, direct: map[string]*redis.Client{}, topo: &topo.Topology{
		Format: 1, Cluster: "test", Scheme: "crc16/16384", Databases: 16, Epoch: 1,
	}}}
	fast := []string{"repl-diskless-sync-delay 0", "repl-ping-replica-period 1"}
	for i := range groups {
		id := fmt.Sprint("g", i+1)
		master := localredis.StartTest(t, localredis.Config{Extra: fast})
		own := replica
		own.Extra = append([]string{"replica-read-only no", "repl-diskless-load swapdb"}, replica.Extra...)
		gate := newGate(t, master.Addr)
		own.ReplicaOf = gate.addr
		w.nodes = append(w.nodes, master)
		w.gates = append(w.gates, gate)
		w.replicas = append(w.replicas, localredis.StartTest(t, own))
		w.topo.Groups = append(w.topo.Groups, topo.Group{ID: id, Nodes: []topo.Node{
			{Addr: master.Addr, Role: topo.Master}, {Addr: w.replicas[i].Addr, Role: topo.Replica},
		}})
		w.topo.Slots = append(w.topo.Slots, topo.Run{First: topo.Slot(16384 / groups * i), Last: topo.Slot(16384/groups*(i+1) - 1), Group: id})
	}
	engine, err := loop.New(loop.Config{
		Listen: []string{"127.0.0.1:0"}, ReadListen: []string{"127.0.0.1:0"}, ReadMode: replicas.Prefer, Loops: 2, Session: cfg,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.engine = engine
	w.addr, w.reads = engine.Addrs()[0].String(), engine.Addrs()[1].String()
	engine.Apply(router.Build(w.topo))
	return w
}

func (w *pairs) replica(i int) *redis.Client {
	return client(w.t, w.replicas[i].Addr, &redis.Options{})
}

// state waits until that is what is known of a replica.
func (w *pairs) state(i int, want replicas.State) report.Backend {
	w.t.Helper()
	var last report.Backend
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for _, b := range w.engine.Backends() {
			if b.Node == w.replicas[i].Addr {
				last = b
				if b.Reads == want.String() && b.Role == "replica" && b.Group == w.topo.Groups[i].ID {
					return b
				}
			}
		}
	}
	w.t.Fatalf("replica %d is %q, not %q", i, last.Reads, want)
	return last
}

// gate passes connections on, and stops to pass what comes back while stalled.
type gate struct {
	addr, to string
	mu       sync.Mutex // held while stalled
}

func newGate(t *testing.T, to string) *gate {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &gate{addr: ln.Addr().String(), to: to}
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	pipe := func(dst, src net.Conn, gate bool) {
		defer func() { _, _ = dst.Close(), src.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			if gate {
				r.mu.Lock()
				r.mu.Unlock() //nolint:staticcheck // waits while somebody holds it
			}
			if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, c, up)
			mu.Unlock()
			running.Go(func() { pipe(up, c, false) })
			running.Go(func() { pipe(c, up, true) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return r
}

func TestReadsAvoidReplicasThatAreNotFit(t *testing.T) {
	w := startPairs(t, 1, session.Config{MaxLag: 2 * time.Second, ReadYourWrites: time.Second}, localredis.Config{Extra: []string{
		"key-load-delay 1000", "loading-process-events-interval-bytes 1024",
	}})
	ctx := t.Context()
	master, replica := w.node(0), w.replica(0)
	c := client(t, w.reads, &redis.Options{})

	// who is answered by the node it names.
	if err := master.Set(ctx, "who", "master", 0).Err(); err != nil {
		t.Fatal(err)
	}
	mark := func() {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if replica.Exists(ctx, "who").Val() == 1 {
				if err := replica.Set(ctx, "who", "replica", 0).Err(); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatal("the replica does not get its master's keys")
	}
	answers := func(want string) {
		t.Helper()
		got := c.Get(ctx, "who").Val()
		// A loop that took the table later than the first waits for one more check.
		for deadline := time.Now().Add(10 * time.Second); want == "replica" && got == "master" && time.Now().Before(deadline); {
			got = c.Get(ctx, "who").Val()
		}
		if got != want {
			t.Errorf("%q answered, want the %s", got, want)
		}
		if got := client(t, w.addr, &redis.Options{}).Get(ctx, "who").Val(); got != "master" {
			t.Errorf("%q answered a client of mode master", got)
		}
	}
	w.state(0, replicas.Usable)
	mark()
	answers("replica")

	t.Run("stopped", func(t *testing.T) {
		if err := w.replicas[0].Freeze(); err != nil {
			t.Fatal(err)
		}
		// Nobody knows yet: the read goes there, and is given back.
		answers("master")
		w.state(0, replicas.Unreachable)
		answers("master")
		if err := w.replicas[0].Thaw(); err != nil {
			t.Fatal(err)
		}
		w.state(0, replicas.Usable)
		answers("replica")
	})
	t.Run("stalled link", func(t *testing.T) {
		w.gates[0].mu.Lock()
		master.Set(ctx, "more", "x", 0)
		w.state(0, replicas.Lagging)
		answers("master")
		w.gates[0].mu.Unlock()
		w.state(0, replicas.Usable)
		answers("replica")
	})
	t.Run("link down", func(t *testing.T) {
		if err := replica.SlaveOf(ctx, "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		w.state(0, replicas.LinkDown)
		answers("master")
	})
	t.Run("promoted", func(t *testing.T) {
		if err := replica.SlaveOf(ctx, "no", "one").Err(); err != nil {
			t.Fatal(err)
		}
		w.state(0, replicas.Foreign)
		answers("master")
	})
	t.Run("loading", func(t *testing.T) {
		pipe := replica.Pipeline()
		for i := range 2500 {
			pipe.Set(ctx, fmt.Sprint("key", i), "x", 0)
		}
		pipe.Save(ctx)
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		w.replicas[0].Kill()
		started := make(chan error)
		go func() {
			p, err := localredis.Start(ctx, w.replicas[0].Config())
			if err == nil {
				t.Cleanup(p.Kill)
			}
			started <- err
		}()
		w.state(0, replicas.Loading)
		answers("master")
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		w.state(0, replicas.Usable) // it has its master's data, not the file's
		mark()
		answers("replica")
	})
}

// While slots go from one group to the other and back, their keys removed where
// they were, clients of replicas see no counter vanish or go back behind what
// they wrote themselves, and replicas do answer.
func TestReadsFromReplicasDuringHandOvers(t *testing.T) {
	w := startPairs(t, 2, session.Config{ReadYourWrites: 500 * time.Millisecond}, localredis.Config{})
	w.state(0, replicas.Usable)
	w.state(1, replicas.Usable)
	ctx := t.Context()
	const counters = 8
	var stop atomic.Bool
	var running sync.WaitGroup
	var floor [counters]atomic.Int64 // what every replica in use must have by now
	for i := range counters {
		key := fmt.Sprint("counter", i)
		writer := client(t, w.reads, &redis.Options{PoolSize: 1})
		reader := client(t, w.reads, &redis.Options{PoolSize: 1})
		if err := writer.Set(ctx, key, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		// Replicas are behind by as long as a write needs to get there.
		for deadline := time.Now().Add(10 * time.Second); w.replica(0).Exists(ctx, key).Val()+w.replica(1).Exists(ctx, key).Val() == 0; {
			if time.Now().After(deadline) {
				t.Fatal("the replicas do not get their masters' keys")
			}
		}
		running.Go(func() {
			for n := int64(1); !stop.Load(); n++ {
				if got, err := writer.Incr(ctx, key).Result(); err != nil || got != n {
					t.Errorf("INCR %s: %d, %v, want %d", key, got, err, n)
					return
				}
				if got, err := writer.Get(ctx, key).Int64(); err != nil || got != n {
					t.Errorf("GET %s by its writer: %d, %v, want %d", key, got, err, n)
					return
				}
			}
		})
		running.Go(func() {
			for !stop.Load() {
				least := floor[i].Load()
				got, err := reader.MGet(ctx, key).Result()
				if err != nil || got[0] == nil {
					t.Errorf("MGET %s: %v, %v", key, got, err)
					return
				}
				if n, _ := strconv.ParseInt(got[0].(string), 10, 64); n < least {
					t.Errorf("MGET %s: %d, want at least %d", key, n, least)
					return
				}
			}
		})
	}
	run := func(from, to int) {
		slots := w.topo.SlotsOf(w.topo.Groups[from].ID)
		half := topo.SlotSet{{First: slots[0].First, Last: slots[0].First + 4000}}
		for i := range counters {
			// A read may be as old as the default max_lag, but a hand-over makes it no older.
			key := fmt.Sprint("counter", i)
			if half.Contains(w.topo.Scheme.SlotOf([]byte(key))) {
				n, _ := w.node(from).Get(ctx, key).Int64()
				defer floor[i].Store(n)
			}
		}
		w.handOver(half, w.topo.Groups[to].ID)
		source := w.node(from)
		for _, key := range source.Keys(ctx, "*").Val() {
			if half.Contains(w.topo.Scheme.SlotOf([]byte(key))) {
				source.Del(ctx, key)
			}
		}
	}
	for range 3 {
		run(0, 1)
		w.state(1, replicas.Usable)
		run(1, 0)
		w.state(0, replicas.Usable)
	}
	stop.Store(true)
	running.Wait()
	if st := w.engine.Stats(); st.ReplicaReads == 0 {
		t.Error("no read went to a replica")
	}
}
