package coordinator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// masters waits until the group's master is addr, in the topology and in fact.
func (w *world) masterIs(group, addr string) {
	w.t.Helper()
	eventually(w.t, addr+" is the master of "+group, func() bool { return w.now().Group(group).Master() == addr })
	if role, err := w.admin(addr).Role(w.t.Context()); err != nil || role.Role != topo.Master {
		w.t.Fatalf("node %s: %+v, %v", addr, role, err)
	}
}

// follows waits until a node is a replica in sync with another.
func (w *world) follows(addr, master string) {
	w.t.Helper()
	eventually(w.t, addr+" follows "+master, func() bool {
		a, err := node.Open(w.t.Context(), addr, topo.Secret{Password: password})
		if err != nil {
			return false
		}
		defer a.Close()
		role, err := a.Role(w.t.Context())
		return err == nil && role.InSync() && role.MasterAddr == master
	})
}

// failovers lists the operations that gave the group another master.
func (w *world) failovers(group string) []topo.Operation {
	w.t.Helper()
	all, err := store.LoadAll[topo.Operation](w.t.Context(), w.store, store.PrefixOperations)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(op topo.Operation) bool {
		return (op.Kind != topo.OpFailover && op.Kind != topo.OpSwitchover) || op.Request.Group != group
	})
}

func (w *world) fill(addr string, count int) {
	w.t.Helper()
	a := w.admin(addr)
	for i := range count {
		if err := a.Do(w.t.Context(), "SET", fmt.Sprintf("k%d", i), i).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) keys(addr string) int64 {
	w.t.Helper()
	n, err := w.admin(addr).Do(w.t.Context(), "DBSIZE").Int64()
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// replicated waits until so many replicas have what was written so far.
func (w *world) replicated(addr string, replicas int) {
	w.t.Helper()
	a := w.admin(addr)
	if err := a.Do(w.t.Context(), "SET", "last", 1).Err(); err != nil {
		w.t.Fatal(err)
	}
	if n, err := a.Wait(w.t.Context(), replicas, 10*time.Second); err != nil || n < replicas {
		w.t.Fatalf("%d replicas, %v", n, err)
	}
}

func (w *world) again(p *localredis.Process, adjust ...func(*localredis.Config)) *localredis.Process {
	w.t.Helper()
	cfg := p.Config()
	for _, a := range adjust {
		a(&cfg)
	}
	again, err := localredis.Start(context.WithoutCancel(w.t.Context()), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(again.Kill)
	return again
}

// TestKilledMaster: a replica takes over, the other one follows it, and the old
// master comes back, empty, as its replica.
func TestKilledMaster(t *testing.T) {
	w := newWorld(t)
	w.coordinate("c1")
	m, r1, r2 := w.redis(), w.redis(), w.redis()
	w.group("g1", m, r1, r2)
	w.follows(r1.Addr, m.Addr)
	w.follows(r2.Addr, m.Addr)
	w.fill(m.Addr, 100)
	w.replicated(m.Addr, 2)
	m.Kill()
	eventually(t, "another master", func() bool { return w.now().Group("g1").Master() != m.Addr })
	to, other := r1, r2
	if w.now().Group("g1").Master() == r2.Addr {
		to, other = r2, r1
	}
	w.masterIs("g1", to.Addr)
	w.follows(other.Addr, to.Addr)
	if n := w.keys(to.Addr); n != 101 {
		t.Errorf("the new master has %d keys", n)
	}
	op := w.failovers("g1")[0]
	if op.State != topo.OpSucceeded || op.Master.LossBytes != 0 || op.Master.To != to.Addr || op.Master.OutageSeconds > 5 {
		t.Errorf("operation: %+v %+v", op.State, op.Master)
	}
	t.Logf("%.2f s without service, held for %.1f ms", op.Master.OutageSeconds, op.Master.HoldMS)
	w.again(m)
	w.follows(m.Addr, to.Addr)
	if n := w.keys(m.Addr); n != 101 {
		t.Errorf("the old master has %d keys", n)
	}
	if h := w.now().Hold; h != nil {
		t.Errorf("hold left: %+v", h)
	}
}
