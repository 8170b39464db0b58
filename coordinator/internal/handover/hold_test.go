package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

func port(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var some = topo.SlotSet{{First: 0, Last: 9}}

func take(t *topo.Topology) { t.Assign(some, "g2") }

func admitted(t testing.TB, m *leader, all ...*proxy) {
	t.Helper()
	eventually(t, "all are admitted", func() bool {
		return !slices.ContainsFunc(all, func(p *proxy) bool { return !p.admitted(m.Manager) })
	})
}

func TestHoldDrainSwitch(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	p1, p2 := c.proxy("p1", "i1"), c.proxy("p2", "i1")
	admitted(t, m, p1, p2)
	held, err := m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	now, _ := c.stored()
	if now.Hold == nil || now.Hold.Slots.String() != "0-9" || now.Hold.Attempt != "a1" || now.Hold.Phase != topo.Holding {
		t.Fatalf("stored hold: %+v", now.Hold)
	}
	for _, p := range []*proxy{p1, p2} {
		if _, saw := p.lastHolds.Load(now.Hold.ID); !saw {
			t.Errorf("%s never saw the hold it is said to have drained", p.id)
		}
	}

	// Nothing else changes meanwhile: neither a change nor an admission.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := m.Change(ctx, func(*topo.Topology) {}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a change during a hold: %v", err)
	}
	late := c.proxy("p3", "i1")
	never(t, "somebody is admitted during a hold", 100*time.Millisecond, func() bool { return late.admitted(m.Manager) })

	next, err := held.Switch(t.Context(), take, func(txn *store.Txn) { txn.Put(store.PrefixAttempts+"a1", 1) })
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := c.stored(); now.Hold != nil || now.Owner(5) != "g2" || now.Epoch < next.Epoch {
		t.Fatalf("after the switch: %+v", now)
	}
	if _, err := c.st.Get(t.Context(), store.PrefixAttempts+"a1"); err != nil {
		t.Error("what more added was not written")
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	admitted(t, m, late)
	if err := m.WaitApplied(t.Context(), next.Epoch); err != nil {
		t.Fatal(err)
	}
}

func TestHoldIsReleasedWhenAProxyIsBusy(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead(func(tm *timing) { tm.drain = 500 * time.Millisecond })
	p1, p2 := c.proxy("p1", "i1"), c.proxy("p2", "i1")
	admitted(t, m, p1, p2)
	p2.busy.Store(true)
	for range 5 { // more often than there are tries
		_, err := m.Hold(t.Context(), some, "a1")
		var why *NotDrained
		if !errors.As(err, &why) || !errors.Is(err, ErrNotDrained) || !slices.Equal(why.Busy, []string{"p2"}) || len(why.Behind) != 0 {
			t.Fatalf("got %v", err)
		}
		if now, _ := c.stored(); now.Hold != nil || now.Owner(5) != "g1" {
			t.Fatalf("not released: %+v", now)
		}
	}
	if !p2.admitted(m.Manager) {
		t.Fatal("a proxy that applies but is busy was evicted")
	}
	p2.set(&p2.busy, false)
	held, err := m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _ := c.stored(); now.Hold != nil || now.Owner(5) != "g1" {
		t.Fatalf("not released: %+v", now)
	}
}

func TestHoldEvictsWhoDoesNotApplyIt(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead(func(tm *timing) { tm.drain = 500 * time.Millisecond })
	p1, p2 := c.proxy("p1", "i1"), c.proxy("p2", "i1")
	admitted(t, m, p1, p2)
	p2.follows(t, m)
	p2.deaf.Store(true)
	_, err := m.Hold(t.Context(), some, "a1")
	var why *NotDrained
	if !errors.As(err, &why) || !slices.Equal(why.Behind, []string{"p2"}) {
		t.Fatalf("got %v", err)
	}
	held, err := m.Hold(t.Context(), some, "a1") // waits until it is evicted, holding nobody
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p2.admitted(m.Manager) || !p1.admitted(m.Manager) {
		t.Fatal("the wrong one was evicted")
	}
}

func TestDeadProxyDelaysAHoldAboutASecond(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead(func(tm *timing) { *tm = defaults })
	p1, p2 := c.proxy("p1", "i1"), c.proxy("p2", "i1")
	admitted(t, m, p1, p2)
	p2.follows(t, m)
	p2.stop()
	began := time.Now()
	for {
		held, err := m.Hold(t.Context(), some, "a1")
		if errors.Is(err, ErrNotDrained) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		break
	}
	took := time.Since(began)
	t.Logf("a dead proxy delayed the hold by %s", took)
	if took > 5*time.Second { // about one, on a machine with nothing else to do
		t.Errorf("a dead proxy delayed the hold by %s", took)
	}
}

func TestProxyCancelsAnOverdueHold(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	p := c.proxy("p1", "i1")
	admitted(t, m, p)
	held, err := m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	at, rev := c.stored()
	next, err := at.Next(func(t *topo.Topology) { t.Hold = nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.st.Begin().Unchanged(store.KeyTopology, rev).Put(store.KeyTopology, next).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Switch(t.Context(), take, nil); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if now, _ := c.stored(); now.Owner(5) != "g1" || now.Epoch != next.Epoch {
		t.Fatalf("something changed: %+v", now)
	}
	// The gate is free again.
	if _, err := m.Change(t.Context(), take, nil); err != nil {
		t.Fatal(err)
	}
}

func TestSwitchLosesToWhatMoreCompares(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	held, err := m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Switch(t.Context(), take, func(txn *store.Txn) { txn.Exists("attempts/a1") }); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if now, _ := c.stored(); now.Owner(5) != "g1" || now.Hold != nil {
		t.Fatalf("something changed: %+v", now)
	}
	if _, err := m.Change(t.Context(), take, func(txn *store.Txn) { txn.Exists("attempts/a1") }); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("change: got %v, want a conflict", err)
	}
}

func TestNextLeaderDropsALeftHold(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead()
	p := c.proxy("p1", "i1")
	admitted(t, m, p)
	held, err := m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	m.stop()
	if now, _ := c.stored(); now.Hold == nil {
		t.Fatal("the hold went by itself")
	}
	m2 := c.lead()
	eventually(t, "the hold is dropped", func() bool { now, _ := c.stored(); return now.Hold == nil })
	if _, err := held.Switch(t.Context(), take, nil); !errors.Is(err, store.ErrNotLeader) {
		t.Fatalf("the old leader's switch: got %v, want ErrNotLeader", err)
	}
	if _, err := m2.Change(t.Context(), take, nil); err != nil {
		t.Fatal(err)
	}
}

func TestDeposedLeaderWritesNothing(t *testing.T) {
	c := newCluster(t, 2)
	old := c.lead()
	p := c.proxy("p1", "i1")
	admitted(t, old, p)
	held, err := old.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else leads, which the old one did not notice.
	if _, err := c.st.Begin().DeletePrefix(store.PrefixElection).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lead()
	eventually(t, "the hold is dropped", func() bool { now, _ := c.stored(); return now.Hold == nil })
	before, rev := c.stored()
	if _, err := held.Switch(t.Context(), take, nil); !errors.Is(err, store.ErrNotLeader) {
		t.Fatalf("switch: got %v, want ErrNotLeader", err)
	}
	if _, err := old.Change(t.Context(), take, nil); !errors.Is(err, store.ErrNotLeader) {
		t.Fatalf("change: got %v, want ErrNotLeader", err)
	}
	if _, err := old.Hold(t.Context(), some, "a2"); !errors.Is(err, store.ErrNotLeader) {
		t.Fatalf("hold: got %v, want ErrNotLeader", err)
	}
	if now, at := c.stored(); at != rev {
		t.Fatalf("the deposed leader wrote: %+v after %+v", now, before)
	}
}

func TestHoldWaitsForANodeThatOwes(t *testing.T) {
	c := newCluster(t, 2)
	m := c.lead(func(tm *timing) { tm.node, tm.settle = 200*time.Millisecond, 600*time.Millisecond })
	p := c.proxy("p1", "i1")
	admitted(t, m, p)
	if err := c.nodes[0].Freeze(); err != nil {
		t.Fatal(err)
	}
	_, err := m.Hold(t.Context(), some, "a1")
	var why *NotDrained
	if !errors.As(err, &why) || !slices.Equal(why.Nodes, []string{c.nodes[0].Addr}) {
		t.Fatalf("got %v", err)
	}
	held, err := m.Hold(t.Context(), topo.SlotSet{{First: 1000, Last: 1023}}, "a2") // the other group's
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[0].Thaw(); err != nil {
		t.Fatal(err)
	}
	held, err = m.Hold(t.Context(), some, "a1")
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRunEndsWithTheLeadership(t *testing.T) {
	c := newCluster(t, 1)
	m := c.lead()
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.lease.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-m.ended:
		if !errors.Is(err, store.ErrNotLeader) {
			t.Fatalf("got %v, want ErrNotLeader", err)
		}
		m.ended <- nil
	case <-time.After(10 * time.Second):
		t.Fatal("still running")
	}
}

// BenchmarkHold is a hold and its release with many proxies, each with a watch
// and a lease of its own.
func BenchmarkHold(b *testing.B) {
	for _, n := range []int{2, 50, 200} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			c := newCluster(b, 2)
			c.log = slog.New(slog.DiscardHandler)
			m := c.lead()
			var all []*proxy
			for i := range n {
				all = append(all, c.proxy(fmt.Sprintf("p%d", i), "i1"))
			}
			admitted(b, m, all...)
			var drained time.Duration
			for b.Loop() {
				held, err := m.Hold(b.Context(), some, "a1")
				if err != nil {
					b.Fatal(err)
				}
				drained += time.Since(held.Since)
				if err := held.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(drained.Microseconds())/1000/float64(b.N), "ms-held/op")
		})
	}
}
