package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
)

var errDeposed = errors.New("deposed")

// reign hands out pools of successive leaders over the same nodes.
type reign struct {
	t    *testing.T
	term atomic.Int64
}

func (r *reign) next() *Pool {
	term := r.term.Add(1)
	p := NewPool(PoolConfig{
		Term: term,
		Check: func(context.Context) error {
			if r.term.Load() != term {
				return errDeposed
			}
			return nil
		},
		Secret: func(context.Context, string) (topo.Secret, error) { return topo.Secret{Password: password}, nil },
	})
	r.t.Cleanup(p.Close)
	return p
}

func get(t *testing.T, p *Pool, addr string) *Admin {
	t.Helper()
	a, err := p.Get(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPoolSuccessorEndsTheOldLeader(t *testing.T) {
	p := start(t)
	people := admin(t, p)
	r := &reign{t: t}
	one := r.next()
	a := get(t, one, p.Addr)
	if who, err := a.Do(t.Context(), "ACL", "WHOAMI").Text(); err != nil || who != one.User() {
		t.Fatalf("works as %q, %v", who, err)
	}
	own, err := one.Open(t.Context(), p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := one.Dial(t.Context(), p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()

	two := r.next()
	b := get(t, two, p.Addr)
	for name, old := range map[string]*Admin{"shared": a, "own": own} {
		if err := old.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1").Err(); !errors.Is(err, ErrUnreachable) {
			t.Errorf("the old leader's %s connection: got %v, want ErrUnreachable", name, err)
		}
	}
	if _, err := raw.Read(make([]byte, 1)); err == nil {
		t.Error("the old leader's raw connection is open")
	}
	if _, err := one.Get(t.Context(), p.Addr); !errors.Is(err, errDeposed) {
		t.Errorf("the old leader connects again: got %v, want errDeposed", err)
	}
	if err := b.Do(t.Context(), "PING").Err(); err != nil {
		t.Errorf("the old leader's try disturbed the new one: %v", err)
	}
	if err := people.Do(t.Context(), "PING").Err(); err != nil {
		t.Errorf("other people's connection was closed: %v", err)
	}
	if users, err := b.Users(t.Context()); err != nil || !slices.Contains(users, two.User()) || slices.Contains(users, one.User()) {
		t.Errorf("users: %v, %v", users, err)
	}
}

// A leader frozen anywhere between logging in as administrator and making its
// user must find its connection closed once its successor was there.
func TestPoolSuccessorEndsABootstrapUnderWay(t *testing.T) {
	p := start(t)
	r := &reign{t: t}
	r.term.Store(1)
	var two *Pool
	var b *Admin
	one := NewPool(PoolConfig{
		Term: 1,
		Check: func(context.Context) error {
			if two == nil { // It leads now, then freezes; the next one takes over meanwhile.
				two = r.next()
				b = get(t, two, p.Addr)
			}
			return nil
		},
		Secret: func(context.Context, string) (topo.Secret, error) { return topo.Secret{Password: password}, nil },
	})
	defer one.Close()
	if _, err := one.Get(t.Context(), p.Addr); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
	users, err := b.Users(t.Context())
	if err != nil || slices.Contains(users, one.User()) {
		t.Fatalf("users: %v, %v", users, err)
	}
}

func TestPoolComesBackAfterARestart(t *testing.T) {
	p := start(t)
	pool := (&reign{t: t}).next()
	a := get(t, pool, p.Addr)
	if get(t, pool, p.Addr) != a {
		t.Fatal("the connection is not shared")
	}
	p.Kill()
	if err := a.Do(t.Context(), "PING").Err(); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
	if _, err := pool.Get(t.Context(), p.Addr); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
	localredis.StartTest(t, p.Config())
	b := get(t, pool, p.Addr) // The user went with the restart.
	if err := b.Do(t.Context(), "PING").Err(); err != nil || a == b {
		t.Fatalf("after the restart: %v", err)
	}
	pool.Drop(p.Addr)
	if b.Alive() {
		t.Fatal("a dropped connection is open")
	}
	c := get(t, pool, p.Addr)
	pool.Close()
	if _, err := pool.Get(t.Context(), p.Addr); !errors.Is(err, ErrPoolClosed) || c.Alive() {
		t.Fatalf("after Close: %v", err)
	}
}

func TestPoolManyCallersShareOneConnection(t *testing.T) {
	p := start(t)
	pool := (&reign{t: t}).next()
	var wg sync.WaitGroup
	got := make([]*Admin, 16)
	for i := range got {
		wg.Go(func() {
			a, err := pool.Get(t.Context(), p.Addr)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = a
			if err := a.Do(t.Context(), "PING").Err(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range got {
		if a != got[0] {
			t.Fatal("callers got different connections")
		}
	}
}
