package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"shardis/coordinator/topo"
)

// seed is printed by each test that uses it; SHARDIS_SEED repeats a run.
func seed() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("SHARDIS_SEED"), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}

// TestE2ERebalanceUnderLoad is the main job: slots move while clients write,
// and clients see nothing of it.
func TestE2ERebalanceUnderLoad(t *testing.T) {
	for _, c := range []struct {
		scheme topo.Scheme
		keys   int
	}{{topo.CRC16, 200_000}, {topo.CRC32, 50_000}} {
		t.Run(string(c.scheme[:5]), func(t *testing.T) {
			d := startDemo(t, c.scheme)
			w := newWorkload(t, d, 8, c.keys, seed())
			w.fill(t.Context())
			stop := w.run(t.Context())

			rebalance := d.finish(d.runPlan(map[string]any{"goal": "slots"}), 5*time.Minute)
			w.check("during the rebalance")
			for group, n := range slotCounts(d.owners()) {
				if even := d.scheme.Slots() / 4; n != even {
					t.Errorf("group %s owns %d slots, want %d", group, n, even)
				}
			}
			for _, m := range rebalance.Moves {
				t.Logf("moved %d slots %s → %s, held for %.1f ms", m.SlotCount, m.From, m.To, m.HoldMs)
			}
			d.finish(d.runPlan(map[string]any{"goal": "drain", "groups": []string{"g1"}}), 5*time.Minute)
			w.check("during the drain")
			d.eventually("remove g1", time.Minute, func() error { // Its copies are purged first.
				var o operationView
				err := d.api.call(t.Context(), "DELETE", "/groups/g1", nil, &o)
				if err == nil {
					d.finish(o, time.Minute)
				}
				return err
			})
			w.check("during the removal")
			stop()
			w.verify(t.Context())
			checkPlacement(d, w)
		})
	}
}

// checkPlacement requires that, once purged, every key is on the group that
// owns its slot and nowhere else, counted on the nodes.
func checkPlacement(d *demo, w *workload) {
	d.t.Helper()
	d.eventually("placement of keys", 2*time.Minute, func() error {
		sure, maybe := w.liveKeys() // each time anew: keys expire
		total, byGroup, misplaced := d.keysOnNodes()
		if len(misplaced) > 0 {
			return fmt.Errorf("%d keys are where they do not belong, such as: %s", len(misplaced), misplaced[0])
		}
		if total < sure || total > sure+maybe {
			return fmt.Errorf("the nodes hold %d keys (%v), want %d to %d", total, byGroup, sure, sure+maybe)
		}
		d.t.Logf("keys on the masters: %v", byGroup)
		return nil
	})
	owners := d.owners()
	d.eventually("tables of the proxies", 10*time.Second, func() error { return d.tablesAgree(owners) })
}
