package migrate

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/internal/wire"
	"shardis/coordinator/topo"
)

const benchKeys = 500_000

// fillRandom writes keys with values of 100 bytes that do not compress.
func (w *world) fillRandom(addr string, n int) {
	w.t.Helper()
	c := w.admin(addr, 0)
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	for first := 0; first < n; first += 5000 {
		_, err := c.Pipelined(w.ctx, func(p redis.Pipeliner) error {
			for i := first; i < min(n, first+5000); i++ {
				for j := range value {
					value[j] = byte(rng.Uint32())
				}
				p.Set(w.ctx, fmt.Sprintf("key:%d", i), string(value), 0)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// cpu is the processor time a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("no /proc: ", err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// login makes a connection as the administrator.
func (w *world) login(addr string) *wire.Conn {
	w.t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	c := wire.New(w.ctx, addr, raw)
	w.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Do("AUTH", adminPassword); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// bareLoop is what anybody would write: SCAN, then PEXPIRETIME and DUMP of the
// batch in one write, then RESTORE of the batch in one write.
func (w *world) bareLoop(source, target string) (keys int) {
	src, dst := w.login(source), w.login(target)
	fail := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for cursor := "0"; ; {
		page, err := src.Do("SCAN", cursor, "COUNT", "300")
		fail(err)
		names := page.Items[1].Items
		for _, n := range names {
			src.AppendKey("PEXPIRETIME", n.Bytes)
			src.AppendKey("DUMP", n.Bytes)
		}
		fail(src.Flush())
		for _, n := range names {
			_, err := src.ReadInt()
			fail(err)
			dump, err := src.ReadBulk()
			fail(err)
			dst.Append("RESTORE", n.Text(), "0", string(dump), "REPLACE", "ABSTTL")
		}
		fail(dst.Flush())
		for range names {
			fail(dst.Check())
		}
		keys += len(names)
		if cursor = page.Items[0].Text(); cursor == "0" {
			return keys
		}
	}
}

// BenchmarkCopy compares the copy of all, and of a quarter, of the slots of a
// group with a bare loop in the same run. It reports keys a second and the
// processor time of the source's master for each key that moved.
func BenchmarkCopy(b *testing.B) {
	for _, replicas := range []int{0, 1} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			w := newWorld(b, 2, replicas, "save \"\"")
			src, dst := w.groups["g1"][0], w.groups["g2"][0]
			w.fillRandom(src.Addr, benchKeys)
			if replicas == 0 {
				b.Run("bare", func(b *testing.B) {
					for b.Loop() {
						begun, used := time.Now(), cpu(b, src.PID)
						n := w.bareLoop(src.Addr, dst.Addr)
						report(b, n, time.Since(begun), cpu(b, src.PID)-used)
					}
				})
				w.admin(dst.Addr, 0).FlushAll(w.ctx)
			}
			for _, part := range []struct {
				name string
				last topo.Slot
			}{{"quarter", 4095}, {"all", 16383}} {
				b.Run("migrate="+part.name, func(b *testing.B) {
					for b.Loop() {
						n, took, used := w.copyOnly(b, slots(0, part.last), src.PID)
						report(b, n, took, used)
					}
				})
			}
		})
	}
}

func report(b *testing.B, keys int, took, used time.Duration) {
	b.ReportMetric(float64(keys)/took.Seconds(), "keys/s")
	b.ReportMetric(float64(used.Microseconds())/float64(keys), "master-µs/key")
	b.ReportMetric(0, "ns/op")
}

// copyOnly runs an operation, cancels it at the end of its copy, and gives what
// the copy alone took.
func (w *world) copyOnly(b *testing.B, set topo.SlotSet, pid int) (keys int, took, used time.Duration) {
	l := w.newLeader(nil)
	defer l.stop()
	id := topo.NewID("op")
	var begun time.Time
	var before time.Duration
	l.runner.Failpoint = func(s topo.MoveState, after bool) {
		switch {
		case s == topo.MoveCopying && after:
			begun, before = time.Now(), cpu(b, pid)
		case s == topo.MoveCatchingUp && !after:
			took, used = time.Since(begun), cpu(b, pid)-before
			w.control(id, topo.Control{Wish: topo.WishCancel})
		}
	}
	w.submit(id, topo.Move{Slots: set, From: "g1", To: "g2"})
	if err := <-l.start(id); err != nil {
		b.Fatal(err)
	}
	return int(w.operation(id).Progress.KeysDone), took, used
}
