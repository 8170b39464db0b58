package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Purging removes keys from a group that does not own their slots: what a
// source kept of finished moves, and what a target got of failed ones. A debt
// is stored in the transaction that made it, and as long as it stands its
// slots can not come (back) to the group.
//
// A purger has a user of its own on the node. It is removed before the debt
// goes, so that no UNLINK of a frozen leader can arrive after the slots have
// come back.

const (
	purgeRetryFirst = 500 * time.Millisecond
	purgeRetryMost  = 10 * time.Second
	purgePoll       = 200 * time.Millisecond
	purgerPrefix    = node.UserPrefix + "purger-"
)

// purgeKey is where a debt is stored. An attempt may owe one group several
// times, for different slots.
func purgeKey(p *topo.Purge) string {
	return fmt.Sprintf("%s%s/%s-%d", store.PrefixPurges, p.Group, p.Attempt, p.Slots[0].First)
}

// RunPurges settles debts until ctx ends.
func (r *Runner) RunPurges(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	busy := map[string]bool{}
	for batch := range r.st.Watch(ctx, store.PrefixPurges) {
		for _, item := range batch.Puts {
			var p topo.Purge
			if err := item.Decode(&p); err != nil {
				r.log.Error("a purge record can not be read", "err", err)
				continue
			}
			mu.Lock()
			known := busy[item.Key]
			busy[item.Key] = true
			mu.Unlock()
			if known {
				continue
			}
			running.Go(func() {
				r.purgeUntilDone(ctx, item.Key, p)
				mu.Lock()
				delete(busy, item.Key)
				mu.Unlock()
			})
		}
	}
	return ctx.Err()
}

// purgeUntilDone tries until the debt is settled.
func (r *Runner) purgeUntilDone(ctx context.Context, key string, p topo.Purge) {
	delay := purgeRetryFirst
	for {
		err := r.purge(ctx, key, &p)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) {
			return
		}
		r.log.Warn("purge put off", "group", p.Group, "slots", p.Slots.String(), "attempt", p.Attempt, "took", delay, "err", err)
		if sleep(ctx, delay) != nil {
			return
		}
		delay = min(2*delay, purgeRetryMost)
	}
}

// purge settles one debt.
func (r *Runner) purge(ctx context.Context, key string, p *topo.Purge) error {
	if err := r.purgeDue(ctx, p); err != nil {
		return err
	}
	t, _ := r.hand.Topology()
	g := t.Group(p.Group)
	if g == nil {
		return r.paid(ctx, key, p, 0) // its nodes are no business of ours any more
	}
	if t.SlotsOf(p.Group).Overlaps(p.Slots) {
		return fmt.Errorf("group %s owns slots of %s: nothing of them may be removed", p.Group, p.Slots)
	}
	admin, err := r.pool.Get(ctx, g.Master())
	if err != nil {
		return err
	}
	// Whoever wrote or purged there before is fenced first.
	login := topo.Secret{User: purgerPrefix + strings.TrimPrefix(strings.ReplaceAll(key, "/", "-"), "purges-"), Password: rand.Text()}
	if _, err := admin.DeleteUser(ctx, topo.MoverUser(p.Attempt), login.User); err != nil {
		return err
	}
	if err := admin.SetUser(ctx, login.User, node.HashPassword(login.Password), node.MoverRules...); err != nil {
		return err
	}
	removed, err := r.removeSlots(ctx, g, t.Scheme, p, login)
	if err != nil {
		return err
	}
	if _, err := admin.DeleteUser(ctx, login.User); err != nil {
		return err
	}
	return r.paid(ctx, key, p, removed)
}

// removeSlots unlinks the keys of p until a scan finds none.
func (r *Runner) removeSlots(ctx context.Context, g *topo.Group, scheme topo.Scheme, p *topo.Purge, login topo.Secret) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t, err := openTarget(ctx, p.Group, g.Master(), login)
	if err != nil {
		return 0, err
	}
	defer t.close()
	if err := t.identify(ctx, nil); err != nil {
		return 0, err
	}
	member := newRoute(scheme)
	member.set(p.Slots, 0)
	worked := time.Now()
	halfTime := func(ctx context.Context, _ int) error { // as long resting as working
		err := sleep(ctx, time.Since(worked))
		worked = time.Now()
		return err
	}
	var total int64
	for {
		dbs, err := t.databases(ctx)
		if err != nil {
			return total, err
		}
		n, err := removeKeys(ctx, t, dbs, func(key []byte) bool { return member.of(key) == 0 }, halfTime)
		if total += n; err != nil || n == 0 {
			return total, err
		}
	}
}

// purgeDue waits until the debt may be settled: nobody can be using the old
// copies, and the new ones are safe.
func (r *Runner) purgeDue(ctx context.Context, p *topo.Purge) error {
	if err := sleep(ctx, time.Until(p.After)); err != nil {
		return err
	}
	if err := r.hand.Wait(ctx); err != nil {
		return err
	}
	if p.Epoch > 0 {
		if err := r.hand.WaitApplied(ctx, p.Epoch); err != nil {
			return err
		}
	}
	for p.Target != "" {
		t, _ := r.hand.Topology()
		g := t.Group(p.Target)
		if g == nil {
			return nil
		}
		admin, err := r.pool.Get(ctx, g.Master())
		if err != nil {
			return err
		}
		role, err := admin.Role(ctx)
		if err != nil {
			return err
		}
		behind := ""
		for _, link := range role.Replicas {
			if t.GroupOfNode(link.Addr) == g && link.Offset < p.Offset {
				behind = link.Addr
			}
		}
		if behind == "" {
			return nil
		}
		if err := sleep(ctx, purgePoll); err != nil {
			return err
		}
	}
	return nil
}

// paid removes the record.
func (r *Runner) paid(ctx context.Context, key string, p *topo.Purge, removed int64) error {
	if _, err := r.lead.Begin().Delete(key).Commit(ctx); err != nil {
		return fmt.Errorf("settle purge %s: %w", key, err)
	}
	r.log.Info("purged", "group", p.Group, "slots", p.Slots.String(), "attempt", p.Attempt, "count", removed)
	return nil
}
