package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"shardis/coordinator/localredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener collects the names a tail gives.
type listener struct {
	mu    sync.Mutex
	names []string
}

func (l *listener) named(key []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, string(key))
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = nil
	return names
}

func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// begin starts a server and a tail of it; end gives the tail's error.
func begin(t *testing.T, addr string) (tail *Tail, l *listener, end chan error) {
	t.Helper()
	l = &listener{}
	ctx, cancel := context.WithCancel(t.Context())
	tail, err := Attach(ctx, Config{Addr: addr, Dial: dial, Named: l.named})
	if err != nil {
		t.Fatal(err)
	}
	end = make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end <- tail.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return tail, l, end
}

func client(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func offset(t *testing.T, c *redis.Client) int64 {
	t.Helper()
	role, err := c.Do(t.Context(), "ROLE").Slice()
	if err != nil {
		t.Fatal(err)
	}
	return role[1].(int64)
}

func read(t *testing.T, tail *Tail, c *redis.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := tail.Wait(ctx, offset(t, c)); err != nil {
		t.Fatal(err)
	}
}

func TestTailNamesWhatChanges(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{})
	c := client(t, p.Addr)
	ctx := t.Context()
	c.Set(ctx, "before", 1, 0)
	tail, l, _ := begin(t, p.Addr)
	for _, tc := range []struct {
		cmd  []any
		want []string // among the names
	}{
		{[]any{"SET", "a", "1"}, []string{"a"}},
		{[]any{"MSET", "a", "1", "b", "2"}, []string{"a", "b"}},
		{[]any{"COPY", "a", "c", "DB", "3"}, []string{"c"}},
		{[]any{"MOVE", "a", "5"}, []string{"a"}},
		{[]any{"RPUSH", "l", "3", "1"}, []string{"l"}},
		{[]any{"SORT", "l", "STORE", "sorted"}, []string{"sorted"}},
		{[]any{"EVAL", "redis.call('SET', 'undeclared', 1) return redis.call('DEL', KEYS[1])", "1", "b"}, []string{"undeclared", "b"}},
		{[]any{"XGROUP", "CREATE", "x", "g", "0", "MKSTREAM"}, []string{"x"}},
		{[]any{"XADD", "x", "*", "f", "v"}, []string{"x"}},
		{[]any{"XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">"}, []string{"x"}},
		{[]any{"GEOADD", "geo", "13", "38", "m"}, []string{"geo"}},
		{[]any{"GEORADIUS", "geo", "13", "38", "10", "km", "STORE", "near"}, []string{"near"}},
		{[]any{"ZUNIONSTORE", "union", "1", "near"}, []string{"union"}},
		{[]any{"SET", "short", "1", "PX", "1"}, []string{"short"}},
		{[]any{"PUBLISH", "channel", "m"}, nil},
		{[]any{"SCRIPT", "LOAD", "return 1"}, nil},
		{[]any{"FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)"}, nil},
	} {
		if err := c.Do(ctx, tc.cmd...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("%v: %v", tc.cmd, err)
		}
		read(t, tail, c)
		got := l.take()
		for _, want := range tc.want {
			if !slices.Contains(got, want) {
				t.Errorf("%v named %v, not %s", tc.cmd, got, want)
			}
		}
		if slices.Contains(got, "before") {
			t.Errorf("a write from before the tail was named")
		}
	}
}

func TestTailOfReplicaAndAfterACut(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{Extra: []string{"repl-diskless-sync-delay 0"}})
	r := localredis.StartTest(t, localredis.Config{ReplicaOf: p.Addr})
	c, rc := client(t, p.Addr), client(t, r.Addr)
	deadline := time.Now().Add(20 * time.Second)
	for c.Wait(t.Context(), 1, time.Second).Val() != 1 {
		c.Incr(t.Context(), "tries")
		if time.Now().After(deadline) {
			t.Fatal("the replica does not come in sync")
		}
	}
	tail, l, _ := begin(t, r.Addr)
	var want []string
	for i := range 300 {
		key := fmt.Sprint("k", i)
		want = append(want, key)
		if err := c.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if i%100 == 50 {
			if err := rc.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	read(t, tail, c)
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("%d names, want each of %d once, in order", len(got), len(want))
	}
	if tail.Breaks() == 0 {
		t.Error("the tail was cut, but does not say so")
	}
	if n := c.Wait(t.Context(), 2, 20*time.Millisecond).Val(); n != 1 {
		t.Errorf("WAIT counts %d replicas, want 1", n)
	}
}

func TestTailEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context, c *redis.Client)
		want error
	}{
		{"on flushall", func(ctx context.Context, c *redis.Client) { c.Set(ctx, "a", 1, 0); c.FlushAll(ctx) }, ErrFlushed},
		{"on swapdb", func(ctx context.Context, c *redis.Client) { c.Set(ctx, "a", 1, 0); c.Do(ctx, "SWAPDB", 0, 1) }, ErrFlushed},
		{"on a new history", func(ctx context.Context, c *redis.Client) {
			c.Do(ctx, "REPLICAOF", "127.0.0.1", "1")
			c.Do(ctx, "REPLICAOF", "NO", "ONE")
			c.Set(ctx, "a", 1, 0)
			c.Do(ctx, "CLIENT", "KILL", "TYPE", "replica")
		}, ErrLineage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := localredis.StartTest(t, localredis.Config{})
			_, _, end := begin(t, p.Addr)
			tc.do(t.Context(), client(t, p.Addr))
			select {
			case err := <-end:
				if !errors.Is(err, tc.want) {
					t.Errorf("ended with %v, want %v", err, tc.want)
				}
			case <-time.After(20 * time.Second):
				t.Error("did not end")
			}
		})
	}
}
