package migrate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
)

// big makes a key of kind with n elements of some 60 bytes.
func (w *world) big(addr, kind, key string, n int) {
	w.t.Helper()
	c := w.admin(addr, 0)
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	for first := 0; first < n; first += 2000 {
		var cmd []any
		switch kind {
		case "hash":
			cmd = args("HSET", key)
		case "set":
			cmd = args("SADD", key)
		case "zset":
			cmd = args("ZADD", key)
		case "list":
			cmd = args("RPUSH", key)
		}
		for i := first; i < min(n, first+2000); i++ {
			value := fmt.Sprintf("element:%d:%016x%016x", i, rng.Uint64(), rng.Uint64())
			switch kind {
			case "hash":
				cmd = append(cmd, fmt.Sprint("field:", i), value)
			case "zset":
				cmd = append(cmd, rng.NormFloat64()*1e6, value)
			default:
				cmd = append(cmd, value)
			}
		}
		if err := c.Do(w.ctx, cmd...).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// slowest is the longest of the commands a node's slow log has seen, of those
// a mover or leader sends.
func (w *world) slowest(addr string) (time.Duration, string) {
	var most time.Duration
	var name string
	logs, err := w.admin(addr, 0).SlowLogGet(w.ctx, 100).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range logs {
		if cmd := strings.ToUpper(l.Args[0]); l.Duration > most && cmd != "DEBUG" && cmd != "KEYS" {
			most, name = l.Duration, cmd
		}
	}
	return most, name
}

func TestBigKeysInPages(t *testing.T) {
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprintf("replicas=%d", replicas), func(t *testing.T) {
			extra := []string{"slowlog-log-slower-than 20000"}
			if replicas == 0 {
				// As Redis has it by default: following a master that has no
				// backlog yet then forks nothing.
				extra = append(extra, "repl-diskless-sync-delay 5")
			}
			w := newWorld(t, 2, replicas, extra...)
			src, dst := w.master("g1"), w.master("g2")
			w.big(src, "hash", "big:hash", 60_000)
			w.big(src, "set", "big:set", 30_000)
			w.big(src, "zset", "big:zset", 40_000)
			w.big(src, "list", "big:list", 40_000)
			c := w.admin(src, 0)
			c.Set(w.ctx, "big:string", strings.Repeat("0123456789abcdef", 1<<18), time.Hour)
			c.HSet(w.ctx, "wide:hash", "a", strings.Repeat("a", 3<<20), "b", strings.Repeat("b", 1<<20))
			c.PExpire(w.ctx, "big:zset", time.Hour)
			for i := range 20000 {
				c.XAdd(w.ctx, &redis.XAddArgs{Stream: "big:stream", Values: []string{"n", fmt.Sprint(i), "v", strings.Repeat("v", 60)}})
			}
			c.XGroupCreate(w.ctx, "big:stream", "group", "0")
			c.XReadGroup(w.ctx, &redis.XReadGroupArgs{Group: "group", Consumer: "c", Streams: []string{"big:stream", ">"}, Count: 1000})
			c.Do(w.ctx, "SLOWLOG", "RESET")

			l := w.newLeader(nil)
			w.newDoor("p1")
			w.submit("op-1", topo.Move{Slots: topo.CRC16.All(), From: "g1", To: "g2"})
			l.start("op-1")
			w.within(60*time.Second, "switched", func() bool { return w.topology().Owner(0) == "g2" })
			for _, addr := range []string{src, dst} {
				took, name := w.slowest(addr)
				t.Logf("slowest command of ours on %s: %s %s", addr, name, took)
				if took > 600*time.Millisecond { // of a machine that has other work; whole hashes take seconds there
					t.Errorf("%s blocked node %s for %s", name, addr, took)
				}
			}
			if n := w.compareSlots(src, dst, topo.CRC16.All(), 0); n != 7 {
				t.Errorf("%d keys compared, want 7", n)
			}
			t.Logf("hold %.1f ms", w.operation("op-1").Moves[0].HoldMS)
		})
	}
}

// TestHotBigKeys: one that is cheap enough is copied in the hold; a dear one
// parks its slot until a person allows it.
func TestHotBigKeys(t *testing.T) {
	w := newWorld(t, 2, 0)
	src, dst := w.master("g1"), w.master("g2")
	w.big(src, "hash", "small:hot", 20_000) // some 2 MB
	w.big(src, "zset", "large:hot", 60_000)
	w.fill(src, 1000)
	l := w.newLeader(func(r *Runner) { r.hotBudget = 60 * time.Millisecond })
	d := w.newDoor("p1")
	var stop atomic.Bool
	ended := make(chan error, 2)
	for _, key := range []string{"small:hot", "large:hot"} {
		go func() {
			for i := 0; !stop.Load(); i++ {
				err := d.do(key, 0, "g1", func(c *redis.Client) error {
					if key == "small:hot" {
						return c.HSet(w.ctx, key, fmt.Sprint("field:", i%20000), i).Err()
					}
					return c.ZIncrBy(w.ctx, key, 1, fmt.Sprint("hot:", i%100)).Err()
				})
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	w.submit("op-1", topo.Move{Slots: topo.CRC16.All(), From: "g1", To: "g2"})
	out := l.start("op-1")
	large := topo.CRC16.SlotOf([]byte("large:hot"))
	w.within(60*time.Second, "the other slots switched", func() bool { return w.topology().SlotsOf("g2").Len() == 16383 })
	if owner := w.topology().Owner(large); owner != "g1" {
		t.Fatalf("the slot of the dear key belongs to %s", owner)
	}
	w.eventually("a parked move", func() bool {
		for _, m := range w.operation("op-1").Moves {
			if m.State == topo.MoveParked {
				t.Log(m.Reason)
				return m.Slots.Contains(large) && len(m.Parked) == 1 && m.Parked[0] == "large:hot"
			}
		}
		return false
	})
	w.control("op-1", topo.Control{Allow: []string{"large:hot"}})
	w.within(60*time.Second, "its slot switched", func() bool { return w.topology().Owner(large) == "g2" })
	stop.Store(true)
	<-ended
	<-ended
	w.compareSlots(src, dst, topo.CRC16.All(), 0)
	for _, m := range w.operation("op-1").Moves {
		t.Logf("slots %s: %s, hold %.1f ms, attempts %d", m.Slots, m.State, m.HoldMS, m.Attempts)
	}
	l.stop()
	<-out
}

// A hot key that takes longer than was estimated, as on a busy machine, is
// parked with what it took, not tried for ever.
func TestHotKeyOfWrongPrice(t *testing.T) {
	w := newWorld(t, 2, 0)
	src := w.master("g1")
	w.big(src, "hash", "hot", 600_000)
	l := w.newLeader(func(r *Runner) { r.hashRate = 4 << 30 })
	d := w.newDoor("p1")
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; !stop.Load() && err == nil; i++ {
			err = d.do("hot", 0, "g1", func(c *redis.Client) error { return c.HSet(w.ctx, "hot", "field", i).Err() })
		}
		ended <- err
	}()
	slot := topo.CRC16.SlotOf([]byte("hot"))
	w.submit("op-1", topo.Move{Slots: topo.SlotSetOf([]topo.Slot{slot}), From: "g1", To: "g2"})
	out := l.start("op-1")
	w.within(3*time.Minute, "a parked move", func() bool {
		m := w.operation("op-1").Moves[0]
		return m.State == topo.MoveParked && m.Reason != ""
	})
	t.Log(w.operation("op-1").Moves[0].Reason)
	stop.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	l.stop()
	<-out
}
