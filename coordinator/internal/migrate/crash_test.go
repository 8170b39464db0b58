package migrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// counters are writers that know what each answer must be: no increment may be
// lost or done twice, whatever happens to the coordinator.
type counters struct {
	w    *world
	d    *door
	stop atomic.Bool
	done sync.WaitGroup
	sent atomic.Int64
	last []map[string]int64 // of each writer
}

func (w *world) newCounters(d *door, writers int) *counters {
	c := &counters{w: w, d: d, last: make([]map[string]int64, writers)}
	for i := range writers {
		last := map[string]int64{}
		c.last[i] = last
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		c.done.Go(func() {
			for !c.stop.Load() && w.ctx.Err() == nil {
				key := fmt.Sprintf("count:%d:%d", i, rng.IntN(200))
				err := d.do(key, 0, "", func(r *redis.Client) error {
					n, err := r.Incr(w.ctx, key).Result()
					if err == nil && n != last[key]+1 {
						return fmt.Errorf("INCR %s gave %d after %d", key, n, last[key])
					}
					last[key] = n
					return err
				})
				if err != nil {
					w.t.Error(err)
					return
				}
				c.sent.Add(1)
			}
		})
	}
	w.t.Cleanup(c.end)
	return c
}

// end stops the writers and compares every counter with its owner's.
func (c *counters) end() {
	c.stop.Store(true)
	c.done.Wait()
}

func (c *counters) verify() {
	c.w.t.Helper()
	c.end()
	top := c.w.topology()
	for _, last := range c.last {
		for key, want := range last {
			owner := top.Owner(topo.CRC16.SlotOf([]byte(key)))
			got, err := c.w.admin(c.w.master(owner), 0).Get(c.w.ctx, key).Int64()
			if err != nil || got != want {
				c.w.t.Errorf("counter %s is %d (%v) on its owner %s, want %d", key, got, err, owner, want)
			}
		}
	}
}

// onlyOwned makes sure that no group has keys it does not own.
func (w *world) onlyOwned() {
	w.t.Helper()
	for g := range w.groups {
		own := w.topology().SlotsOf(g)
		for _, db := range []int{0, 1} {
			for _, key := range w.keysIn(w.master(g), db, topo.CRC16.All()) {
				if !own.Contains(topo.CRC16.SlotOf([]byte(key))) {
					w.t.Errorf("group %s has key %s in database %d, which it does not own", g, key, db)
					return
				}
			}
		}
	}
}

// TestLeaderCrash ends the leader right before and right after each state is
// stored. The next one must take the operation to its end.
func TestLeaderCrash(t *testing.T) {
	w := newWorld(t, 2, 0)
	w.fill(w.master("g1"), 3000)
	l := w.newLeader(nil)
	d := w.newDoor("p1")
	c := w.newCounters(d, 2)
	from, to := "g1", "g2"
	for _, state := range []topo.MoveState{topo.MovePreparing, topo.MoveCopying, topo.MoveCatchingUp, topo.MoveHandingOver, topo.MovePurging, topo.MoveDone} {
		for _, after := range []bool{false, true} {
			l.stop()
			var crashed atomic.Bool
			l = w.newLeader(nil)
			l.runner.PurgeDelay = 0
			crash := l.cancel
			l.runner.Failpoint = func(s topo.MoveState, a bool) {
				if s == state && a == after && crashed.CompareAndSwap(false, true) {
					crash()
				}
			}
			id := fmt.Sprintf("op-%s-%v", state, after)
			w.submit(id, topo.Move{Slots: slots(100, 9000), From: from, To: to})
			if err := await(t, l.start(id)); err == nil || !crashed.Load() {
				t.Fatalf("%s: the leader did not crash: %v", id, err)
			}
			l.stop()
			l = w.newLeader(func(r *Runner) { r.PurgeDelay = 0 })
			if err := await(t, l.start(id)); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			op := w.operation(id)
			if op.State != topo.OpSucceeded || w.topology().Owner(100) != to {
				t.Fatalf("%s ended as %+v", id, op)
			}
			w.onlyOwned()
			for _, prefix := range []string{store.PrefixAttempts, store.PrefixPurges} {
				if items, _, _ := w.st.List(w.ctx, prefix); len(items) != 0 {
					t.Errorf("%s: left in %s: %v", id, prefix, items)
				}
			}
			from, to = to, from
			if t.Failed() {
				return
			}
		}
	}
	c.verify()
	t.Logf("%d increments", c.sent.Load())
}

// TestFrozenLeader wakes a leader's mover after its successor finished: nothing
// of it may execute.
func TestFrozenLeader(t *testing.T) {
	w := newWorld(t, 2, 0)
	w.fill(w.master("g1"), 2000)
	l := w.newLeader(nil)
	w.newDoor("p1")
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.runner.Failpoint = func(s topo.MoveState, after bool) {
		if s == topo.MoveHandingOver && after {
			once.Do(func() { close(frozen); <-thaw })
		}
	}
	w.submit("op-1", topo.Move{Slots: slots(0, 8000), From: "g1", To: "g2"})
	old := l.start("op-1")
	<-frozen
	if err := l.lead.Resign(w.ctx); err != nil { // as if its lease had ended
		t.Fatal(err)
	}
	next := w.newLeader(func(r *Runner) { r.PurgeDelay = 0 })
	if err := await(t, next.start("op-1")); err != nil {
		t.Fatal(err)
	}
	if op := w.operation("op-1"); op.State != topo.OpSucceeded {
		t.Fatalf("operation ended as %+v", op)
	}
	// Clients write to the new owner; the woken leader must not overwrite that.
	key := w.keysIn(w.master("g2"), 0, slots(0, 8000))[0]
	w.admin(w.master("g2"), 0).Set(w.ctx, key, "new", 0)
	before := w.topology()
	close(thaw)
	if err := await(t, old); err == nil {
		t.Error("the deposed leader finished without an error")
	}
	if got := w.admin(w.master("g2"), 0).Get(w.ctx, key).Val(); got != "new" {
		t.Errorf("%s is %q: a deposed leader wrote to it", key, got)
	}
	if after := w.topology(); after.Owner(0) != "g2" || after.Epoch != before.Epoch {
		t.Errorf("epoch went from %d to %d", before.Epoch, after.Epoch)
	}
	w.onlyOwned()
}

// TestCancelAndPause at random times of a copy that takes about a second.
func TestCancelAndPause(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, 2, 0)
	w.fill(w.master("g1"), 10000)
	l := w.newLeader(func(r *Runner) { r.PurgeDelay = 0 })
	d := w.newDoor("p1")
	c := w.newCounters(d, 2)
	limits := topo.Limits{BytesPerSecond: 200_000}
	cancelled := 0
	for run := range 12 {
		from, to := "g1", "g2"
		if w.topology().Owner(100) == "g2" {
			from, to = to, from
		}
		id := fmt.Sprintf("op-%d", run)
		w.control(id, topo.Control{Limits: limits})
		w.submit(id, topo.Move{Slots: slots(100, 12000), From: from, To: to})
		out := l.start(id)
		if run%3 == 2 {
			w.afterRandom(rng, 1000*time.Millisecond)
			w.control(id, topo.Control{Wish: topo.WishPause, Limits: limits})
			w.within(10*time.Second, "paused or finished", func() bool {
				s := w.operation(id).State
				return s == topo.OpPaused || s.Finished()
			})
			keys := w.operation(id).Progress.KeysDone
			w.afterRandom(rng, 300*time.Millisecond)
			if op := w.operation(id); op.State == topo.OpPaused && op.Progress.KeysDone > keys+20000 {
				t.Errorf("%s went on while paused", id)
			}
			w.control(id, topo.Control{Limits: limits})
		}
		if run%3 != 1 {
			w.afterRandom(rng, 1800*time.Millisecond)
			w.control(id, topo.Control{Wish: topo.WishCancel, Limits: limits})
		}
		if err := await(t, out); err != nil {
			t.Fatal(err)
		}
		op := w.operation(id)
		switch owner := w.topology().Owner(100); {
		case op.State == topo.OpSucceeded && owner == to:
		case op.State == topo.OpCancelled && owner == from:
			cancelled++
			for _, addr := range []string{w.master(to)} {
				if left := w.keysIn(addr, 0, slots(100, 12000)); len(left) > 0 {
					t.Errorf("%s was cancelled, but %d keys are left on its target", id, len(left))
				}
			}
		default:
			t.Errorf("%s ended as %s with owner %s: %s", id, op.State, owner, op.Reason)
		}
		w.onlyOwned()
		if t.Failed() {
			return
		}
	}
	c.verify()
	t.Logf("%d of 12 cancelled, %d increments", cancelled, c.sent.Load())
}

func (w *world) afterRandom(rng *rand.Rand, most time.Duration) {
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(most))))
	defer timer.Stop()
	<-timer.C
}

// TestNodesFailDuringCopy: a target that restarts empty, a tail that is cut,
// and a replica that goes away while it is read.
func TestNodesFailDuringCopy(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		fail     func(w *world)
		attempts int // at least
	}{
		{"target restarts empty", 0, func(w *world) {
			p := w.groups["g2"][0]
			p.Kill()
			again, err := localredis.Start(w.ctx, p.Config())
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(again.Kill)
		}, 2},
		{"target is flushed", 0, func(w *world) { w.admin(w.master("g2"), 0).FlushAll(w.ctx) }, 2},
		{"tail is cut", 0, func(w *world) { w.admin(w.master("g1"), 0).Do(w.ctx, "CLIENT", "KILL", "TYPE", "replica") }, 1},
		{"replica that is read goes away", 1, func(w *world) { w.groups["g1"][1].Kill() }, 2},
		{"mover is cut off", 0, func(w *world) {
			for _, u := range w.admin(w.master("g2"), 0).Do(w.ctx, "ACL", "USERS").Val().([]any) {
				if name := u.(string); len(name) > 14 && name[:14] == "shardis-mover-" {
					w.admin(w.master("g2"), 0).Do(w.ctx, "CLIENT", "KILL", "USER", name)
				}
			}
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 2, tc.replicas)
			w.fill(w.master("g1"), 10000)
			l := w.newLeader(func(r *Runner) { r.PurgeDelay = 0 })
			d := w.newDoor("p1")
			c := w.newCounters(d, 2)
			w.control("op-1", topo.Control{Limits: topo.Limits{BytesPerSecond: 100_000}})
			w.submit("op-1", topo.Move{Slots: slots(0, 8000), From: "g1", To: "g2"})
			out := l.start("op-1")
			w.eventually("part is copied", func() bool { return w.operation("op-1").Progress.KeysDone > 1000 })
			tc.fail(w)
			if err := await(t, out); err != nil {
				t.Fatal(err)
			}
			op := w.operation("op-1")
			if op.State != topo.OpSucceeded || op.Moves[0].Attempts < tc.attempts {
				t.Errorf("ended as %s after %d attempts: %v", op.State, op.Moves[0].Attempts, op.Log)
			}
			c.verify()
			w.onlyOwned()
			if n := len(w.keysIn(w.master("g1"), 0, topo.CRC16.All())) + len(w.keysIn(w.master("g2"), 0, topo.CRC16.All())); n < 10000 {
				t.Errorf("%d keys in all, want at least 10000", n)
			}
		})
	}
}

func TestAssign(t *testing.T) {
	w := newWorld(t, 2, 0)
	top := w.topology()
	next, err := top.Next(func(t *topo.Topology) { t.Slots = nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.st.Begin().Put(store.KeyTopology, next).Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	l := w.newLeader(nil)
	w.submit("op-1", topo.Move{Slots: slots(0, 8191), To: "g1"}, topo.Move{Slots: slots(8192, 16383), To: "g2"})
	if err := await(t, l.start("op-1")); err != nil {
		t.Fatal(err)
	}
	if op, top := w.operation("op-1"), w.topology(); op.State != topo.OpSucceeded || len(top.Unassigned()) != 0 || top.SlotsOf("g2").Len() != 8192 {
		t.Errorf("ended as %s, unassigned %s", op.State, top.Unassigned())
	}
}
