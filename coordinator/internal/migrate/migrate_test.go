package migrate

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// fill writes n string keys to the owner of all slots.
func (w *world) fill(addr string, n int) {
	w.t.Helper()
	c := w.admin(addr, 0)
	for first := 0; first < n; first += 1000 {
		_, err := c.Pipelined(w.ctx, func(p redis.Pipeliner) error {
			for i := first; i < min(n, first+1000); i++ {
				p.Set(w.ctx, fmt.Sprintf("key:%d", i), fmt.Sprintf("value-%090d", i), 0)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func await(t testing.TB, out <-chan error) error {
	t.Helper()
	select {
	case err := <-out:
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("the operation did not end")
		return nil
	}
}

func TestMoveOfIdleSlots(t *testing.T) {
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprintf("replicas=%d", replicas), func(t *testing.T) {
			w := newWorld(t, 3, replicas)
			w.fill(w.master("g1"), 5000)
			l := w.newLeader(func(r *Runner) { r.PurgeDelay = 0 })
			w.newDoor("p1")
			w.submit("op-1",
				topo.Move{Slots: slots(0, 4000), From: "g1", To: "g2"},
				topo.Move{Slots: slots(8000, 9999), From: "g1", To: "g3"})
			if err := await(t, l.start("op-1")); err != nil {
				t.Fatal(err)
			}
			op := w.operation("op-1")
			if op.State != topo.OpSucceeded || op.Progress.SlotsDone != 6001 || op.Progress.Fraction != 1 {
				t.Fatalf("operation ended as %+v", op)
			}
			total := 0
			for _, g := range []string{"g1", "g2", "g3"} {
				own := w.topology().SlotsOf(g)
				all, mine := w.keysIn(w.master(g), 0, topo.CRC16.All()), w.keysIn(w.master(g), 0, own)
				if len(all) != len(mine) {
					t.Errorf("group %s has %d keys, %d of them of its own slots", g, len(all), len(mine))
				}
				total += len(mine)
			}
			if total != 5000 {
				t.Errorf("%d keys in all, want 5000", total)
			}
			for _, prefix := range []string{store.PrefixAttempts, store.PrefixPurges} {
				if items, _, _ := w.st.List(w.ctx, prefix); len(items) != 0 {
					t.Errorf("left in %s: %v", prefix, items)
				}
			}
			for _, m := range op.Moves {
				if m.State != topo.MoveDone || m.KeysDone != m.KeysTotal || m.HoldMS <= 0 {
					t.Errorf("move ended as %+v", m)
				}
			}
		})
	}
}
