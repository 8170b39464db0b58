// Package handover changes the topology in step with the proxies that run it.
//
// Problem. Proxies are stateless and many; each routes by its own copy of the
// topology. An owner of slots may change only when no proxy can still write by
// an older copy: neither one that is slow, nor one that is frozen or cut off,
// nor bytes it sent before. Leases and clocks can not promise that.
//
// Design. A Manager lives as long as one leadership and is the only one to
// write the topology. It knows three facts of each proxy: which epoch it
// durably runs (applied), which hold it drained, and whether it still has an
// ACL user on the nodes. A proxy is in the topology (admitted) only after it
// has a user on the nodes, and stays there until it has none on any of them.
// Whoever does not follow is evicted: fenced by the nodes, not by a timer.
//
//	register ──► user on every node ──► admitted ──► (applies, drains, serves)
//	                                        │ does not apply, three tries
//	                                        ▼
//	   gone, incarnation remembered ◄── no user left ◄── evicting
//
// One epoch at a time: who publishes one has the gate. A hold keeps the gate
// from its epoch to the switch or release, so that nothing else changes.
//
// Rejected: to take a proxy for gone when its lease ended (it may be frozen
// and wake, and when etcd stalls all leases end at once); to have the servers
// check an epoch in every command (slower, and it puts a key into user data).
//
// A new kind of change needs: a call of Change, or Hold and Switch when the
// owner of anything that is written changes.
package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// timing holds every duration of the mechanism, so that tests can shorten them.
type timing struct {
	drain     time.Duration // how long a hold waits for the proxies
	hold      time.Duration // after which a proxy may cancel a hold
	settle    time.Duration // how long a hold waits beforehand for everybody to be up to date
	tryLive   time.Duration // between two tries of a proxy whose lease lives
	tryGone   time.Duration // the same where the lease ended
	tries     int           // failed ones before eviction
	leave     time.Duration // how long a proxy that said it goes may be back from a restart
	mass      time.Duration // how long many missing records are taken for etcd's trouble
	reconcile time.Duration // between two looks at a node's users
	node      time.Duration // bound of one such look
	commit    time.Duration // bound of one transaction; its outcome is then looked up
}

var defaults = timing{
	drain:     200 * time.Millisecond,
	hold:      1500 * time.Millisecond,
	settle:    5 * time.Second,
	tryLive:   time.Second,
	tryGone:   350 * time.Millisecond,
	tries:     3,
	leave:     30 * time.Second,
	mass:      15 * time.Second,
	reconcile: 500 * time.Millisecond,
	node:      3 * time.Second,
	commit:    5 * time.Second,
}

// evictionsPerSecond bounds what a mistake of ours can do.
const evictionsPerSecond = 4

// Manager publishes topologies for one leadership. Run must be running for the
// other methods to get anywhere. It is safe for concurrent use.
type Manager struct {
	store     *store.Store
	lead      *store.Leadership
	pool      *node.Pool
	log       *slog.Logger
	timing    timing
	evictions *rate.Limiter

	over     chan struct{} // closed when the leadership is known to be over
	overOnce sync.Once

	// gate has room for one token; whoever put it there may publish an epoch.
	// It is taken before mu, and I/O is done with it but never with mu.
	gate chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything below changes
	loaded  map[string]bool

	topology *topo.Topology // newest seen, nil before the first
	rev      int64          // revision it was written at
	users    []string       // of topology.Proxies, in their order
	members  map[string]int // proxy id → index into topology.Proxies
	ownHold  string         // id of the hold a Held of ours stands for
	stirred  bool           // something changed that plan looks at; an acknowledgement of a proxy does not

	proxies     map[string]topo.ProxyRecord // by proxy id
	missing     map[string]time.Time        // by proxy id: since when it has no record
	applied     map[string]topo.Epoch       // by user: the highest epoch it ever reported; a promise that outlives its lease
	drained     map[string]string           // by user: the hold it last reported drained
	credentials map[string]topo.Credential  // by proxy id
	evicted     map[string]bool             // by user
	reasons     map[string]string           // by user: why it is being evicted
	tried       map[string]try              // by user
	leaving     map[string]bool             // by user: it said that it goes
	refused     map[string]string           // by user: why it is not admitted, logged once

	admitting map[string]topo.Credential // by user: gets its users now, is in the topology next
	usersSeq  int64                      // rises whenever the users wanted on nodes change
	fenceSeq  int64                      // usersSeq when somebody last ceased to be wanted
	workers   map[string]*worker         // by node address
	prepared  map[string]int             // nodes outside the topology that are to have users all the same
}

// New makes a manager; Run starts it.
func New(st *store.Store, lead *store.Leadership, pool *node.Pool, log *slog.Logger) *Manager {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Manager{
		store: st, lead: lead, pool: pool, log: log,
		timing:      defaults,
		evictions:   rate.NewLimiter(evictionsPerSecond, evictionsPerSecond),
		over:        make(chan struct{}),
		gate:        make(chan struct{}, 1),
		changed:     make(chan struct{}),
		loaded:      map[string]bool{},
		proxies:     map[string]topo.ProxyRecord{},
		missing:     map[string]time.Time{},
		applied:     map[string]topo.Epoch{},
		drained:     map[string]string{},
		credentials: map[string]topo.Credential{},
		evicted:     map[string]bool{},
		reasons:     map[string]string{},
		tried:       map[string]try{},
		leaving:     map[string]bool{},
		refused:     map[string]string{},
		admitting:   map[string]topo.Credential{},
		usersSeq:    1,
		workers:     map[string]*worker{},
		prepared:    map[string]int{},
	}
}

// watched are the prefixes the manager follows; it acts once it knows all.
var watched = []string{store.KeyTopology, store.PrefixProxies, store.PrefixCredentials, store.PrefixEvicted}

// Run follows the cluster, admits and evicts proxies and keeps the users of
// every node as wanted. It returns nil when ctx ended and store.ErrNotLeader
// when the leadership did.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, prefix := range watched {
		running.Go(func() { m.follow(ctx, prefix) })
	}
	running.Go(func() { m.tendNodes(ctx) })
	running.Go(func() {
		if err := m.tendMembers(ctx); err != nil {
			cancel(err)
		}
	})
	select {
	case <-ctx.Done():
	case <-m.lead.Done():
		m.deposed()
		cancel(store.ErrNotLeader)
	case <-m.over:
		cancel(store.ErrNotLeader)
	}
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("manage the topology: %w", cause)
	}
	return nil
}

// follow feeds one watched prefix into the state.
func (m *Manager) follow(ctx context.Context, prefix string) {
	for batch := range m.store.Watch(ctx, prefix) {
		m.mu.Lock()
		switch prefix {
		case store.KeyTopology:
			m.seeTopology(batch)
		case store.PrefixProxies:
			m.seeProxies(batch)
		case store.PrefixCredentials:
			m.seeCredentials(batch)
		case store.PrefixEvicted:
			m.seeEvicted(batch)
		}
		m.loaded[prefix] = true
		m.stirred = m.stirred || batch.Reset
		m.poke()
		m.mu.Unlock()
	}
}

// poke tells everybody in wait that something changed. mu is held.
func (m *Manager) poke() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// ready reports whether the state is complete. mu is held.
func (m *Manager) ready() bool { return len(m.loaded) == len(watched) && m.topology != nil }

// wait blocks until cond, evaluated with mu held, is true, or ctx ends.
func (m *Manager) wait(ctx context.Context, cond func() bool) error {
	for {
		m.mu.Lock()
		changed := m.changed // taken first: cond may change something itself
		ok := m.ready() && cond()
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.over:
			return store.ErrNotLeader
		}
	}
}

// deposed notes that the leadership is over, whoever found out.
func (m *Manager) deposed() { m.overOnce.Do(func() { close(m.over) }) }

// waitFor is wait for at most d; it reports whether cond came true.
func (m *Manager) waitFor(ctx context.Context, d time.Duration, cond func() bool) (bool, error) {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := m.wait(short, cond)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

func (m *Manager) seeTopology(b store.Batch) {
	for _, item := range b.Puts {
		if item.Key != store.KeyTopology || item.Rev <= m.rev {
			continue
		}
		t, err := topo.DecodeTopology(item.Value)
		if err != nil {
			m.log.Error("stored topology is not readable", "rev", item.Rev, "err", err)
			continue
		}
		m.accept(t, item.Rev)
	}
}

// accept makes t the newest topology, if it is. mu is held.
func (m *Manager) accept(t *topo.Topology, rev int64) {
	if rev <= m.rev {
		return
	}
	former := m.topology
	anew := former == nil || !slices.Equal(former.Proxies, t.Proxies)
	m.topology, m.rev, m.stirred = t, rev, true
	if anew {
		m.users = make([]string, len(t.Proxies))
		m.members = make(map[string]int, len(t.Proxies))
		for i, p := range t.Proxies {
			m.users[i], m.members[p.ID] = topo.ProxyUser(p.ID, p.Incarnation), i
		}
		m.usersChanged(former == nil || m.lostAny(former))
	}
	m.followRoles()
	m.poke()
}

// followRoles has the workers of nodes whose part changed look anew: only a
// pass begun from now on counts. mu is held.
func (m *Manager) followRoles() {
	for addr, w := range m.workers {
		if part := m.partOf(addr); part != w.part {
			w.part = part
			w.asked++
			w.confirmed, w.triedSince = 0, false
			w.poke()
		}
	}
}

// lostAny reports whether somebody admitted in the former topology no longer
// is. mu is held.
func (m *Manager) lostAny(former *topo.Topology) bool {
	return slices.ContainsFunc(former.Proxies, func(p topo.Member) bool {
		now := m.member(p.ID)
		return p.State == topo.Admitted && (now == nil || *now != p)
	})
}

func (m *Manager) seeProxies(b store.Batch) {
	now := time.Now()
	if b.Reset {
		known := map[string]bool{}
		for _, item := range b.Puts {
			known[item.Key] = true
		}
		for id := range m.proxies {
			if !known[store.PrefixProxies+id] {
				b.Deletes = append(b.Deletes, store.PrefixProxies+id)
			}
		}
	}
	for _, item := range b.Puts {
		var r topo.ProxyRecord
		if err := item.Decode(&r); err != nil {
			m.log.Warn("record of a proxy is not readable", "key", item.Key, "err", err)
			continue
		}
		if item.Key != store.PrefixProxies+r.ID {
			m.log.Warn("record of a proxy is under another's key", "key", item.Key, "proxy", r.ID)
			continue
		}
		before, known := m.proxies[r.ID]
		m.stirred = m.stirred || !known || before.Incarnation != r.Incarnation
		m.proxies[r.ID] = r
		delete(m.missing, r.ID)
		user := topo.ProxyUser(r.ID, r.Incarnation)
		if r.Draining {
			m.leaving[user] = true
		} else {
			delete(m.leaving, user)
		}
		if r.AppliedEpoch > m.applied[user] {
			m.applied[user] = r.AppliedEpoch
			delete(m.tried, user) // it moves, it is only behind
			if p := m.member(r.ID); p != nil && p.State == topo.Admitted {
				delete(m.reasons, user)
			}
		}
		if r.DrainedHold != "" {
			m.drained[user] = r.DrainedHold
		}
	}
	for _, key := range b.Deletes {
		id := key[len(store.PrefixProxies):]
		delete(m.proxies, id)
		m.missing[id], m.stirred = now, true
	}
}

// member finds a proxy in the newest topology. mu is held.
func (m *Manager) member(id string) *topo.Member {
	i, ok := m.members[id]
	if !ok {
		return nil
	}
	return &m.topology.Proxies[i]
}

func (m *Manager) seeCredentials(b store.Batch) {
	for _, item := range b.Puts {
		var c topo.Credential
		if err := item.Decode(&c); err != nil || item.Key != store.PrefixCredentials+c.ID {
			m.log.Warn("credential of a proxy is not readable", "key", item.Key, "err", err)
			continue
		}
		if c != m.credentials[c.ID] {
			m.credentials[c.ID], m.stirred = c, true
			if m.member(c.ID) != nil {
				m.usersChanged(false)
			}
		}
	}
}

func (m *Manager) seeEvicted(b store.Batch) {
	for _, item := range b.Puts {
		var e topo.Evicted
		if err := item.Decode(&e); err != nil {
			m.log.Warn("memory of an eviction is not readable", "key", item.Key, "err", err)
			continue
		}
		m.evicted[topo.ProxyUser(e.ID, e.Incarnation)], m.stirred = true, true
	}
}

// Topology is the newest topology seen and the revision it was written at; nil
// before Run has seen one.
func (m *Manager) Topology() (*topo.Topology, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.topology, m.rev
}

// Wait blocks until Run has seen a topology, or ctx ends.
func (m *Manager) Wait(ctx context.Context) error {
	return m.wait(ctx, func() bool { return true })
}

// Applied is, for each proxy in the topology, the newest epoch it reported.
func (m *Manager) Applied() map[string]topo.Epoch {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.topology == nil {
		return nil
	}
	all := make(map[string]topo.Epoch, len(m.topology.Proxies))
	for i, p := range m.topology.Proxies {
		all[p.ID] = m.applied[m.users[i]]
	}
	return all
}
