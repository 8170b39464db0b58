package loop_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/session"
)

// next puts a changed topology in force and waits until all loops run it.
func (w *world) next(change func(*topo.Topology)) {
	w.t.Helper()
	t, err := w.topo.Next(change)
	if err != nil {
		w.t.Fatal(err)
	}
	w.topo = t
	w.engine.Apply(router.Build(t))
	deadline := time.After(10 * time.Second)
	for w.engine.Applied() < t.Epoch {
		select {
		case <-w.engine.Changed():
		case <-deadline:
			w.t.Fatal("the loops do not apply the topology")
		}
	}
}

// drained waits until the hold in force is drained.
func (w *world) drained() {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for w.engine.Drained() != w.topo.Hold.ID {
		select {
		case <-w.engine.Changed():
		case <-deadline:
			w.t.Fatal("the hold does not drain")
		}
	}
}

// handOver moves slots, with their keys, as the coordinator does: copy, hold,
// drain, switch. The source keeps its keys.
func (w *world) handOver(slots topo.SlotSet, to string) {
	w.t.Helper()
	ctx := w.t.Context()
	w.next(func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: fmt.Sprint("h", t.Epoch), Phase: topo.Holding, Slots: slots}
	})
	w.drained()
	var target *redis.Client
	for i, g := range w.topo.Groups {
		if g.ID == to {
			target = w.node(i)
		}
	}
	// What the target kept of an earlier time is gone, as the coordinator purges it.
	for _, key := range target.Keys(ctx, "*").Val() {
		if slot := w.topo.Scheme.SlotOf([]byte(key)); slots.Contains(slot) && w.topo.Owner(slot) != to {
			target.Del(ctx, key)
		}
	}
	for i, g := range w.topo.Groups {
		if g.ID == to {
			continue
		}
		source := w.node(i)
		keys, err := source.Keys(ctx, "*").Result()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, key := range keys {
			slot := w.topo.Scheme.SlotOf([]byte(key))
			if !slots.Contains(slot) || w.topo.Owner(slot) != g.ID {
				continue
			}
			if err := target.RestoreReplace(ctx, key, 0, source.Dump(ctx, key).Val()).Err(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.next(func(t *topo.Topology) {
		t.Hold = nil
		t.Assign(slots, to)
	})
}

func TestScanAcrossHandOvers(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := client(t, w.addr, &redis.Options{})
	ctx := t.Context()
	const n = 2000
	fill(t, c, n)
	parts := []struct {
		slots topo.SlotSet
		to    string
	}{
		{topo.NewSlotSet(topo.SlotRange{First: 11000, Last: 12000}), "g1"}, // to a group already passed
		{topo.NewSlotSet(topo.SlotRange{First: 0, Last: 700}), "g4"},
		{topo.NewSlotSet(topo.SlotRange{First: 12001, Last: 13000}), "g2"},
		{topo.NewSlotSet(topo.SlotRange{First: 11000, Last: 11500}), "g4"},
	}
	seen := map[string]bool{}
	cursor, calls := uint64(0), 0
	for first := true; first || cursor != 0; first = false {
		page, next, err := c.Scan(ctx, cursor, "key:*", 20).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page {
			seen[k] = true
		}
		cursor = next
		if calls++; calls%30 == 0 && len(parts) > 0 {
			w.handOver(parts[0].slots, parts[0].to)
			parts = parts[1:]
		}
	}
	if len(seen) != n || len(parts) > 0 {
		t.Errorf("%d of %d keys in %d calls, %d hand-overs left", len(seen), n, calls, len(parts))
	}
	if keys, err := c.Keys(ctx, "key:*").Result(); err != nil || len(keys) != n {
		t.Errorf("KEYS afterwards: %d, %v", len(keys), err)
	}
}

// KEYS is complete and free of duplicates at every moment of hand-overs.
func TestKeysDuringHandOvers(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := client(t, w.addr, &redis.Options{})
	ctx := t.Context()
	const n = 300
	fill(t, c, n)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for rounds := 0; ; rounds++ {
			keys, err := c.Keys(ctx, "key:*").Result()
			if err != nil || len(keys) != n || len(unique(keys)) != n {
				t.Errorf("KEYS: %d, %d different, %v", len(keys), len(unique(keys)), err)
			}
			select {
			case <-stop:
				t.Logf("asked %d times", rounds)
				return
			default:
			}
		}
	})
	for i := range 12 {
		first := topo.Slot(i * 1000)
		w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 999}), fmt.Sprint("g", 1+(i+2)%4))
	}
	close(stop)
	asking.Wait()
}

func TestFlushWaitsForHolds(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := dial(t, w.addr)
	c.do("SET", "a", "1")
	w.next(func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: topo.NewSlotSet(topo.SlotRange{First: 0, Last: 0})}
	})
	c.send(append(encode("FLUSHALL"), encode("GET", "a")...))
	other := dial(t, w.addr)
	if got := string(other.do("GET", "a")); got != "$1\r\n1\r\n" {
		t.Errorf("GET during the hold: %q", got)
	}
	if got := string(other.do("DBSIZE")); got != ":1\r\n" {
		t.Errorf("DBSIZE during the hold: %q", got)
	}
	w.drained()
	w.next(func(t *topo.Topology) { t.Hold = nil })
	if got := string(c.reply()) + string(c.reply()); got != "+OK\r\n$-1\r\n" {
		t.Errorf("after the hold: %q", got)
	}
}

func TestFlushHeldTooLong(t *testing.T) {
	w := startWorld(t, session.Config{HoldTimeout: 50 * time.Millisecond})
	w.next(func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: t.Scheme.All()}
	})
	c := dial(t, w.addr)
	for _, args := range [][]string{{"FLUSHALL"}, {"KEYS", "*"}, {"SCAN", "0"}, {"DBSIZE"}} {
		if got := string(c.do(args...)); !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Errorf("%v: %q", args, got)
		}
	}
	if got := string(c.do("INFO", "cluster")); !strings.Contains(got, "cluster_enabled:0") {
		t.Errorf("INFO: %q", got)
	}
}
