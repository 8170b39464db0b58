package migrate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"shardis/coordinator/topo"
)

// Hot keys are big keys that were written during each of their copies. They
// are copied whole while their slot is held, if that is quick enough. If not,
// their slot is parked: the others go on without it, and a person decides
// whether clients shall wait that long.

// price estimates how long a big key takes to DUMP and RESTORE, from what was
// measured: values of many allocations cost more than those of few. Where that
// proved too low, see reprice, it is raised.
func (a *attempt) price(k bigName) (time.Duration, error) {
	if err := selectDB(a.src.master, k.db); err != nil {
		return 0, again("source: %w", err)
	}
	kind, err := a.src.master.Do("TYPE", k.name)
	if err != nil {
		return 0, again("source: %w", err)
	}
	perSecond := int64(400 << 20)
	switch kind.Text() {
	case "hash", "set", "zset":
		perSecond = a.r.hashRate
	}
	return time.Duration(float64(k.size) / float64(perSecond) * float64(time.Second) * max(1, a.slower)), nil
}

// reprice follows a hold that was too short for part. When its hot keys alone
// took more than they may, on a machine that is slow or busy, they would do so
// for ever, and clients wait each time: from the second time on what they took
// is their price, so that they are parked.
func (a *attempt) reprice(part topo.SlotSet) {
	var estimated time.Duration
	for _, k := range a.hotOf(part) {
		estimated += k.price
	}
	if estimated == 0 || a.hotTook <= max(estimated, a.r.hotBudget) {
		return
	}
	if a.missed++; a.missed > 1 {
		a.slower = max(1, a.slower) * float64(a.hotTook) / float64(estimated)
	}
}

// hotOf lists the hot keys of slots in part.
func (a *attempt) hotOf(part topo.SlotSet) []bigName {
	var keys []bigName
	for _, k := range a.hot {
		if part.Contains(a.route.scheme.SlotOf([]byte(k.name))) {
			keys = append(keys, k)
		}
	}
	return keys
}

// copyHot copies the hot keys of part whole.
func (a *attempt) copyHot(ctx context.Context, part topo.SlotSet) error {
	var names []string
	for _, k := range a.hotOf(part) {
		names = append(names, k.name)
	}
	begun := time.Now()
	_, _, err := a.copyNamed(ctx, names, true)
	a.hotTook = time.Since(begun)
	return err
}

// park sets the slots of hot keys aside whose price is too high, dearest
// first, unless a person allowed them.
func (a *attempt) park(ctx context.Context) error {
	var keys []bigName
	var total time.Duration
	for name, k := range a.hot {
		price, err := a.price(k)
		if err != nil {
			return err
		}
		k.price = price
		a.hot[name] = k
		if !a.op.allowed(name) {
			keys = append(keys, k)
			total += price
		}
	}
	slices.SortFunc(keys, func(x, y bigName) int { return int(y.price - x.price) })
	for _, k := range keys {
		if total <= a.r.hotBudget {
			return nil
		}
		total -= k.price
		if err := a.parkKey(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) parkKey(ctx context.Context, k bigName) error {
	slot := a.route.scheme.SlotOf([]byte(k.name))
	slots := topo.SlotSetOf([]topo.Slot{slot})
	to := a.route.of([]byte(k.name))
	if to < 0 {
		return nil // its slot is parked already
	}
	reason := fmt.Sprintf("key %s of %d MB changes all the time: copying it needs a hold of about %.1f s; allow that or cancel",
		strconv.Quote(k.name), k.size>>20, k.price.Seconds())
	a.r.failpoint(topo.MoveParked, false)
	err := a.op.update(ctx, func(op *topo.Operation) {
		split(op, a.w.moves[to], slots, func(m *topo.MoveProgress) {
			m.State, m.Reason, m.Parked = topo.MoveParked, reason, append(slices.Clone(m.Parked), k.name)
		})
		addNote(op, "slot "+slots.String()+" is parked: "+reason)
	}, nil)
	if err != nil {
		return err
	}
	a.r.failpoint(topo.MoveParked, true)
	a.leave(slots)
	return nil
}
