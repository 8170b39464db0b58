package migrate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// headRoom is what a target must have free beyond the estimate.
const headRoom = 1.2

// check looks at what an attempt needs before anything is touched. A
// refusedError ends the moves; other errors are tried again.
func (r *Runner) check(ctx context.Context, w *work, moves []topo.MoveProgress) error {
	t, _ := r.hand.Topology()
	source := t.Group(w.source)
	if source == nil {
		return refuse("group %s, which is to give slots away, is not there any more", w.source)
	}
	debts, err := store.LoadAll[topo.Purge](ctx, r.st, store.PrefixPurges)
	if err != nil {
		return again("read purges: %w", err)
	}
	from, err := r.status(ctx, source.Master())
	if err != nil {
		return again("source group %s: %w", w.source, err)
	}
	owned := max(1, t.SlotsOf(w.source).Len())
	for _, m := range moves {
		for _, s := range m.Slots.Slots() {
			if owner := t.Owner(s); owner != w.source {
				return refuse("slot %d is not of group %s any more but of %q", s, w.source, owner)
			}
		}
		target := t.Group(m.To)
		if target == nil {
			return refuse("target group %s is not there any more", m.To)
		}
		for _, d := range debts {
			if d.Group == m.To && d.Slots.Overlaps(m.Slots) {
				return again("group %s still has old copies of slots %s: waiting until they are purged", m.To, d.Slots)
			}
		}
		to, err := r.status(ctx, target.Master())
		if err != nil {
			return again("target group %s: %w", m.To, err)
		}
		if older(to.Version, from.Version) {
			return refuse("group %s runs version %s, older than %s of group %s: it may not read what that writes", m.To, to.Version, from.Version, w.source)
		}
		need := int64(headRoom * float64(from.UsedMemory) * float64(m.Slots.Len()) / float64(owned))
		if to.MaxMemory > 0 && to.UsedMemory+need > to.MaxMemory {
			return refuse("group %s has %d MB of %d MB in use; these slots need about %d MB with head-room: raise maxmemory or move fewer slots",
				m.To, to.UsedMemory>>20, to.MaxMemory>>20, need>>20)
		}
	}
	return nil
}

// status is the state of a master, an error if it can take no part.
func (r *Runner) status(ctx context.Context, addr string) (topo.NodeStatus, error) {
	admin, err := r.pool.Get(ctx, addr)
	if err != nil {
		return topo.NodeStatus{}, err
	}
	s, err := admin.Status(ctx)
	switch {
	case err != nil:
		return s, err
	case s.Role != topo.Master:
		return s, fmt.Errorf("node %s is a replica of %s", addr, s.MasterAddr)
	case s.Loading:
		return s, fmt.Errorf("node %s: %w: it loads its data", addr, node.ErrNotReady)
	}
	return s, nil
}

// older compares major and minor: patch releases share the DUMP version.
func older(a, b string) bool {
	x, y := version(a), version(b)
	return x[0] < y[0] || x[0] == y[0] && x[1] < y[1]
}

func version(text string) (v [2]int) {
	parts := strings.SplitN(text, ".", 3)
	for i := 0; i < len(v) && i < len(parts); i++ {
		v[i], _ = strconv.Atoi(parts[i])
	}
	return v
}
