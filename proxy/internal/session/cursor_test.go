package session

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/router"
)

// scanWorld is a cluster in which each slot is one key that is always there, and
// a master's cursor counts the slots of the scheme. A slot that moves to a group
// lands at a place that the running scan of this group may have passed.
type scanWorld struct {
	t     *topo.Topology
	log   scanLog
	place map[string][]topo.Slot // by group: its slots in the order of its hash table
}

const worldSlots = 64

func newScanWorld(groups int) *scanWorld {
	w := &scanWorld{place: map[string][]topo.Slot{}}
	w.t = &topo.Topology{Scheme: "crc32/1024", Databases: 16, Epoch: 1 << 20}
	for i := range groups {
		w.t.Groups = append(w.t.Groups, topo.Group{ID: fmt.Sprintf("g%d", i+1), Nodes: []topo.Node{{Addr: fmt.Sprint("h:", i+1), Role: topo.Master}}})
	}
	for s := range topo.Slot(worldSlots) {
		w.put(s, w.t.Groups[rand.IntN(groups)].ID)
	}
	w.log.apply(router.Build(w.t))
	return w
}

func (w *scanWorld) put(s topo.Slot, group string) {
	w.t.Assign(topo.NewSlotSet(topo.SlotRange{First: s, Last: s}), group)
	list := w.place[group]
	i := rand.IntN(len(list) + 1)
	w.place[group] = append(list[:i:i], append([]topo.Slot{s}, list[i:]...)...)
}

// move hands slots over in one epoch. The sources keep their copies.
func (w *scanWorld) move() {
	target := w.t.Groups[rand.IntN(len(w.t.Groups))].ID
	for range 1 + rand.IntN(8) {
		s := topo.Slot(rand.IntN(worldSlots))
		if w.t.Owner(s) == target {
			continue
		}
		list := w.place[target]
		for i, x := range list {
			if x == s {
				w.place[target] = append(list[:i:i], list[i+1:]...)
				break
			}
		}
		w.put(s, target)
	}
	w.t.Epoch++
}

// step is one SCAN call by the number a client has.
func (w *scanWorld) step(cursor uint64, seen map[topo.Slot]bool) uint64 {
	p := w.log.decode(cursor)
	if p.group == "" {
		return 0
	}
	list := w.place[p.group]
	end := min(int(p.master)+3, len(list))
	for i := int(p.master); i < end; i++ {
		if w.t.Owner(list[i]) == p.group {
			seen[list[i]] = true
		}
	}
	master := uint64(end)
	if end == len(list) {
		master = 0
	}
	next, ok := w.log.encode(w.log.advance(p, master))
	if !ok {
		panic("cursor does not fit")
	}
	return next
}

func TestScanReturnsEveryKeyWhileSlotsMove(t *testing.T) {
	extra := 0
	for round := range 2000 {
		w := newScanWorld(2 + rand.IntN(4))
		seen := map[topo.Slot]bool{}
		moves := rand.IntN(12)
		cursor, calls := uint64(0), 0
		for {
			cursor = w.step(cursor, seen)
			if cursor>>63 != 0 {
				t.Fatalf("cursor %d is not below 2^63", cursor)
			}
			if cursor == 0 {
				break
			}
			if calls++; calls > 10_000 {
				t.Fatal("the scan does not end")
			}
			if moves > 0 && rand.IntN(3) == 0 {
				moves--
				w.move()
				if rand.IntN(6) == 0 {
					w.move() // an epoch that this proxy does not see
				}
				if rand.IntN(8) == 0 {
					w.log = scanLog{} // another proxy, started just now
				}
				w.log.apply(router.Build(w.t))
			}
		}
		if len(seen) != worldSlots {
			t.Fatalf("round %d: %d of %d keys", round, len(seen), worldSlots)
		}
		extra += calls
	}
	t.Logf("%d calls", extra)
}

func TestScanWithoutMovesVisitsEachGroupOnce(t *testing.T) {
	w := newScanWorld(5)
	returned := 0
	for cursor := uint64(0); ; {
		seen := map[topo.Slot]bool{}
		cursor = w.step(cursor, seen)
		returned += len(seen)
		if cursor == 0 {
			break
		}
	}
	if returned != worldSlots {
		t.Errorf("%d keys returned, %d there", returned, worldSlots)
	}
}

func TestScanToAGroupNotYetReachedNeedsNoExtraRound(t *testing.T) {
	w := newScanWorld(3)
	p := w.log.start()
	w.t.Groups = append(w.t.Groups, topo.Group{ID: "g9", Nodes: []topo.Node{{Addr: "h:9", Role: topo.Master}}})
	w.put(0, "g9")
	w.t.Epoch++
	w.log.apply(router.Build(w.t))
	var order []string
	for p.group != "" {
		order = append(order, p.group)
		p = w.log.advance(p, 0)
	}
	if fmt.Sprint(order) != "[g1 g2 g3 g9]" {
		t.Errorf("scanned %v", order)
	}
}

func FuzzScanCursor(f *testing.F) {
	f.Add(uint64(0))
	f.Add(uint64(1) << 62)
	f.Fuzz(func(t *testing.T, cursor uint64) {
		w := newScanWorld(3)
		p := w.log.decode(cursor)
		if p.group == "" {
			return
		}
		n, ok := w.log.encode(p)
		if !ok || n == 0 {
			t.Fatalf("%d: %+v has no number", cursor, p)
		}
		if again := w.log.decode(n); again != p {
			t.Fatalf("%d: %+v becomes %+v", cursor, p, again)
		}
	})
}
