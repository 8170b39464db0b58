package handover

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// try counts the chances a proxy had to apply something newer and did not use.
type try struct {
	count int
	last  time.Time
}

// batchMost bounds the keys written beside a topology (etcd allows 128).
const batchMost = 100

// reserved are proxy ids whose users could be taken for those of the leader or
// of a mover.
var reserved = []string{"leader", "mover", "purger", "bootstrap"}

var incarnationPattern = regexp.MustCompile(`^[0-9a-z][0-9a-z-]{0,63}$`)

// hashPattern is what ACL SETUSER takes behind a '#'.
var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// WaitApplied returns once every admitted proxy runs epoch e or a later one and
// no eviction is under way. Those that do not follow are evicted on the way.
func (m *Manager) WaitApplied(ctx context.Context, e topo.Epoch) error {
	err := m.followed(ctx, func() topo.Epoch { return e }, func() bool { return true })
	if err != nil {
		return fmt.Errorf("wait until every proxy runs epoch %d: %w", e, err)
	}
	return nil
}

// followed waits until everybody applied the epoch and also is true, giving
// laggards one chance after the other. Both functions are called with mu held.
func (m *Manager) followed(ctx context.Context, epoch func() topo.Epoch, also func() bool) error {
	var wanted topo.Epoch
	for {
		done, err := m.waitFor(ctx, m.timing.tryGone, func() bool {
			wanted = epoch()
			return len(m.laggards(wanted)) == 0 && len(m.evicting()) == 0 && also()
		})
		if done || err != nil {
			return err
		}
		if err := m.noteTry(ctx, wanted); err != nil {
			return err
		}
	}
}

// laggards lists the admitted proxies that did not apply epoch e. mu is held.
func (m *Manager) laggards(e topo.Epoch) []topo.Member {
	var behind []topo.Member
	for i, p := range m.topology.Proxies {
		if p.State == topo.Admitted && m.applied[m.users[i]] < e {
			behind = append(behind, p)
		}
	}
	return behind
}

// evicting lists the proxies being fenced. mu is held.
func (m *Manager) evicting() []topo.Member {
	var all []topo.Member
	for _, p := range m.topology.Proxies {
		if p.State == topo.Evicting {
			all = append(all, p)
		}
	}
	return all
}

// noteTry reads the proxies' records anew, so that our own late watch is not
// held against them, counts a try for those behind e, and begins the eviction
// of those that used up theirs. The caller may have the gate or not: what is
// to be evicted is only noted here, tendMembers does it.
func (m *Manager) noteTry(ctx context.Context, e topo.Epoch) error {
	bounded, cancel := context.WithTimeout(ctx, m.timing.commit)
	defer cancel()
	items, rev, err := m.store.List(bounded, store.PrefixProxies)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return nil // no word from etcd: no judgment
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seeProxies(store.Batch{Rev: rev, Puts: items})
	behind := m.laggards(e)
	now := time.Now()
	mass := m.massLoss(now)
	for _, p := range behind {
		user := topo.ProxyUser(p.ID, p.Incarnation)
		since, gone := m.missing[p.ID]
		if _, present := m.proxies[p.ID]; !present && !gone {
			m.missing[p.ID], since, gone = now, now, true // never seen by this leader
		}
		t, gap := m.tried[user], m.timing.tryLive
		if gone {
			gap = m.timing.tryGone
		}
		if now.Sub(t.last) < gap-gap/8 {
			continue
		}
		t = try{t.count + 1, now}
		m.tried[user] = t
		if t.count < m.timing.tries || m.reasons[user] != "" || (mass && gone && now.Sub(since) < m.timing.mass) {
			continue
		}
		if m.evictions.Allow() {
			m.reasons[user] = fmt.Sprintf("runs epoch %d and did not apply epoch %d in %d tries", m.applied[user], e, t.count)
		}
	}
	m.stirred = true
	m.poke()
	return nil
}

// massLoss reports whether most proxies lost their lease at once: then it is
// more likely that etcd had a bad time than that they all died. mu is held.
func (m *Manager) massLoss(now time.Time) bool {
	lost, admitted := 0, 0
	for _, p := range m.topology.Proxies {
		if p.State != topo.Admitted {
			continue
		}
		admitted++
		if _, present := m.proxies[p.ID]; !present {
			lost++
		}
	}
	return lost >= 2 && 2*lost > admitted
}

// agenda is what the members need now. Computed with mu held.
type agenda struct {
	orphan bool              // a hold nobody owns is in force
	evict  []topo.Member     // to be marked as evicting
	fenced []topo.Member     // evicting, and no node within reach has their users
	joined []topo.Credential // registered, and their users are on every node within reach
}

func (a agenda) empty() bool {
	return !a.orphan && len(a.evict)+len(a.fenced)+len(a.joined) == 0
}

// tendMembers admits and evicts. It returns an error only when it can not go
// on leading.
func (m *Manager) tendMembers(ctx context.Context) error {
	for {
		var a agenda
		err := m.wait(ctx, func() bool { a = m.plan(); return !a.empty() })
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		err = m.carryOut(ctx, a)
		m.stir()
		switch {
		case err == nil, errors.Is(err, store.ErrConflict):
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrNotLeader):
			return err
		}
		m.log.Warn("can not change the members, trying again", "err", err)
		select {
		case <-time.After(m.timing.reconcile):
		case <-ctx.Done():
		}
	}
}

// stir has plan look again.
func (m *Manager) stir() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stirred = true
	m.poke()
}

// plan says what the members need. mu is held.
func (m *Manager) plan() agenda {
	var a agenda
	if !m.stirred {
		return a
	}
	m.stirred = false
	hold := m.topology.Hold
	a.orphan = hold != nil && hold.ID != m.ownHold && hold.Phase == topo.Holding
	fenced := m.withinReach(m.fenced)
	for i, p := range m.topology.Proxies {
		user := m.users[i]
		switch {
		case p.State == topo.Evicting:
			if fenced && len(a.fenced) < batchMost {
				a.fenced = append(a.fenced, p)
			}
		case m.reasons[user] != "":
			a.evict = append(a.evict, p)
		case m.replaced(p):
			m.reasons[user] = "registered anew as another incarnation"
			a.evict = append(a.evict, p)
		case m.left(p, user):
			m.reasons[user] = "it was stopped and did not come back"
			a.evict = append(a.evict, p)
		}
	}
	if m.batch() && m.withinReach(m.settled) {
		for _, c := range m.admitting {
			a.joined = append(a.joined, c)
		}
		slices.SortFunc(a.joined, func(a, b topo.Credential) int { return strings.Compare(a.ID, b.ID) })
	}
	return a
}

// batch sees to it that those who are getting their users may still be
// admitted, and reports whether that is so for all of them. Others wait for the
// next batch: a stream of newcomers must not keep the first from coming in.
// mu is held.
func (m *Manager) batch() bool {
	applicants := m.applicants()
	same, fewer := true, false
	for user := range m.admitting {
		if _, ok := applicants[user]; !ok { // admitted now, or gone again
			delete(m.admitting, user)
			same, fewer = false, fewer || !slices.Contains(m.users, user)
		}
	}
	if len(m.admitting) == 0 && len(applicants) > 0 {
		m.admitting, same = applicants, false
	}
	if !same {
		m.usersChanged(fewer)
	}
	return same && len(m.admitting) > 0
}

// left reports whether the proxy said that it goes, and went. One that only
// restarts is back sooner, and needs nothing. mu is held.
func (m *Manager) left(p topo.Member, user string) bool {
	since, gone := m.missing[p.ID]
	return gone && m.leaving[user] && time.Since(since) >= m.timing.leave
}

// replaced reports whether the proxy itself says that its old incarnation is
// over. mu is held.
func (m *Manager) replaced(p topo.Member) bool {
	r, ok := m.proxies[p.ID]
	return ok && r.Incarnation != p.Incarnation && m.credentials[p.ID].Incarnation == r.Incarnation
}

// applicants are the proxies that registered and may be admitted, by user. mu
// is held.
func (m *Manager) applicants() map[string]topo.Credential {
	all := map[string]topo.Credential{}
	for id, r := range m.proxies {
		c := m.credentials[id]
		if m.member(id) != nil || c.Incarnation != r.Incarnation {
			continue
		}
		user := topo.ProxyUser(id, c.Incarnation)
		if why := m.refusal(c); why != "" {
			if m.refused[user] != why {
				m.refused[user] = why
				m.log.Warn("proxy is not admitted", "proxy", id, "incarnation", c.Incarnation, "reason", why)
			}
			continue
		}
		all[user] = c
	}
	return all
}

// refusal says why a proxy can not be admitted, "" when it can. mu is held.
func (m *Manager) refusal(c topo.Credential) string {
	if err := topo.CheckID(c.ID); err != nil {
		return err.Error()
	}
	for _, word := range reserved {
		if c.ID == word || strings.HasPrefix(c.ID, word+"-") {
			return fmt.Sprintf("ids that start with %q are kept for Shardis itself", word)
		}
	}
	user := topo.ProxyUser(c.ID, c.Incarnation)
	switch {
	case !incarnationPattern.MatchString(c.Incarnation):
		return "the incarnation is not made of lower-case letters, digits and hyphens"
	case !hashPattern.MatchString(c.PasswordHash):
		return "the password hash is not a SHA-256 in lower-case hex"
	case m.evicted[user]:
		return "this incarnation was evicted"
	}
	if i := slices.Index(m.users, user); i >= 0 {
		return fmt.Sprintf("its user would be that of proxy %s", m.topology.Proxies[i].ID)
	}
	return ""
}

// carryOut makes the changes of an agenda, one epoch for each kind.
func (m *Manager) carryOut(ctx context.Context, a agenda) error {
	if a.orphan {
		// Change drops what it meets; so does an admission, but there may be none.
		if err := m.dropOrphan(ctx); err != nil {
			return err
		}
	}
	if len(a.evict) > 0 {
		if err := m.markEvicting(ctx, a.evict); err != nil {
			return err
		}
	}
	if len(a.fenced) > 0 {
		if err := m.forget(ctx, a.fenced); err != nil {
			return err
		}
	}
	if len(a.joined) > 0 {
		return m.admit(ctx, a.joined)
	}
	return nil
}

func (m *Manager) dropOrphan(ctx context.Context) error {
	if err := m.takeGate(ctx); err != nil {
		return err
	}
	defer m.leaveGate()
	_, _, err := m.withoutHold(ctx)
	return err
}

// markEvicting says in the topology that these proxies go, so that nobody, not
// a later leader either, makes users for them again.
func (m *Manager) markEvicting(ctx context.Context, members []topo.Member) error {
	next, err := m.Change(ctx, func(t *topo.Topology) {
		for _, p := range members {
			if at := t.Member(p.ID); at != nil && at.Incarnation == p.Incarnation {
				at.State = topo.Evicting
			}
		}
	}, nil)
	if err != nil {
		return fmt.Errorf("begin evictions: %w", err)
	}
	for _, p := range members {
		m.log.Warn("evicting a proxy", "proxy", p.ID, "incarnation", p.Incarnation, "epoch", next.Epoch,
			"reason", m.reason(p))
	}
	return nil
}

func (m *Manager) reason(p topo.Member) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reasons[topo.ProxyUser(p.ID, p.Incarnation)]
}

// forget takes fenced proxies out of the topology and remembers their
// incarnations.
func (m *Manager) forget(ctx context.Context, members []topo.Member) error {
	now := time.Now().UTC()
	fenced := func(p topo.Member) bool {
		return slices.ContainsFunc(members, func(o topo.Member) bool { return o.ID == p.ID && o.Incarnation == p.Incarnation })
	}
	next, err := m.Change(ctx, func(t *topo.Topology) {
		t.Proxies = slices.DeleteFunc(t.Proxies, fenced)
	}, func(txn *store.Txn) {
		for _, p := range members {
			txn.Put(store.PrefixEvicted+p.ID+"/"+p.Incarnation,
				topo.Evicted{Format: topo.Format, ID: p.ID, Incarnation: p.Incarnation, Reason: m.reason(p), At: now})
		}
	})
	if err != nil {
		return fmt.Errorf("finish evictions: %w", err)
	}
	m.mu.Lock()
	for _, p := range members {
		user := topo.ProxyUser(p.ID, p.Incarnation)
		m.evicted[user] = true
		delete(m.reasons, user)
		delete(m.tried, user)
		delete(m.applied, user)
		delete(m.drained, user)
		delete(m.leaving, user)
	}
	m.stirred = true
	m.poke()
	m.mu.Unlock()
	for _, p := range members {
		m.log.Info("proxy is evicted", "proxy", p.ID, "incarnation", p.Incarnation, "epoch", next.Epoch)
	}
	return nil
}

// admit takes proxies that have their users into the topology.
func (m *Manager) admit(ctx context.Context, joined []topo.Credential) error {
	next, err := m.Change(ctx, func(t *topo.Topology) {
		for _, c := range joined {
			if t.Member(c.ID) == nil {
				t.Proxies = append(t.Proxies, topo.Member{ID: c.ID, Incarnation: c.Incarnation, State: topo.Admitted})
			}
		}
	}, nil)
	if err != nil {
		return fmt.Errorf("admit proxies: %w", err)
	}
	for _, c := range joined {
		m.log.Info("proxy is admitted", "proxy", c.ID, "incarnation", c.Incarnation, "epoch", next.Epoch)
	}
	return nil
}
