package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// Users of nodes are reconciled, not commanded: which a node should have
// follows from the newest topology, and one worker a node compares that with
// ACL USERS, whenever it changes and every half second, because a restart or an
// ACL LOAD drops users without telling. As one worker does all changes of a
// node, and reads what is wanted at the start of each pass, an older wish never
// follows a newer one.

// worker keeps the users of one node. Its fields are guarded by Manager.mu.
type worker struct {
	addr        string
	part        part
	wake        chan struct{}
	stop        context.CancelFunc
	ended       chan struct{} // closed when no pass is under way any more
	confirmed   int64         // usersSeq the node is known to agree with; 0 = it owes
	asked       int           // rises when only a pass begun from now on counts
	unreachable bool          // the last pass could not reach it
	triedSince  bool          // a pass that was begun after its part changed has ended
	reason      string
}

// part is what the topology wants a node to be.
type part struct {
	role    topo.Role // intended; "" for a prepared node, which is not in the topology yet
	master  string    // of its group
	run     string    // of a master: the process it has to be, "" for any
	givenUp bool      // its group gets another master: nobody is let in
	chosen  bool      // to be that master: it may be one already
}

// settled reports whether the node has exactly the users wanted. mu is held.
func (m *Manager) settled(w *worker) bool { return w != nil && w.confirmed == m.usersSeq }

// fenced reports whether the node lets in nobody who ceased to be wanted; it
// may still lack somebody who just came. mu is held.
func (m *Manager) fenced(w *worker) bool { return w != nil && w.confirmed >= m.fenceSeq }

// withinReach reports whether a claim holds for every node that can be
// reached. Those that can not get what they owe when they are back, and until
// then take part in no hold. mu is held.
func (m *Manager) withinReach(claim func(*worker) bool) bool {
	for _, addr := range m.wantedNodes() {
		w := m.workers[addr]
		if w == nil || (!w.unreachable && !claim(w)) {
			return false
		}
	}
	return true
}

// Settled reports whether the node at addr lets in nobody who is not wanted
// any more: only then it may take part in a copy, a hold or a promotion.
func (m *Manager) Settled(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fenced(m.workers[addr])
}

// wantedNodes lists the nodes that are to have users. mu is held.
func (m *Manager) wantedNodes() []string {
	var addrs []string
	for _, g := range m.topology.Groups {
		for _, n := range g.Nodes {
			addrs = append(addrs, n.Addr)
		}
	}
	for addr := range m.prepared {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Prepare gives nodes that are to join their users, and returns when they have
// them. Until Forget, or until they are in the topology, they are kept so.
func (m *Manager) Prepare(ctx context.Context, addrs ...string) error {
	m.mu.Lock()
	for _, addr := range addrs {
		m.prepared[addr]++
	}
	m.poke()
	m.mu.Unlock()
	err := m.wait(ctx, func() bool {
		return !slices.ContainsFunc(addrs, func(a string) bool { return !m.settled(m.workers[a]) })
	})
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		if w := m.workers[addr]; w != nil && !m.settled(w) {
			return fmt.Errorf("give node %s its users: %w: %s", addr, err, w.reason)
		}
	}
	return fmt.Errorf("give nodes their users: %w", err)
}

// Forget ends what Prepare began. Nodes in the topology keep their users.
func (m *Manager) Forget(addrs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		if m.prepared[addr]--; m.prepared[addr] <= 0 {
			delete(m.prepared, addr)
		}
	}
	m.poke()
}

// tendNodes keeps one worker running for each node.
func (m *Manager) tendNodes(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	var seen int64 = -1
	var prepared string
	for {
		err := m.wait(ctx, func() bool { return m.rev != seen || prepared != fmt.Sprint(m.prepared) })
		if err != nil {
			return
		}
		m.mu.Lock()
		seen, prepared = m.rev, fmt.Sprint(m.prepared)
		wanted := m.wantedNodes()
		var leaving []*worker
		for addr, w := range m.workers {
			if !slices.Contains(wanted, addr) {
				w.stop()
				leaving = append(leaving, w)
			}
		}
		for _, addr := range wanted {
			if m.workers[addr] != nil {
				continue // followRoles keeps its part current
			}
			workCtx, stop := context.WithCancel(ctx)
			w := &worker{addr: addr, part: m.partOf(addr), wake: make(chan struct{}, 1), stop: stop, ended: make(chan struct{})}
			m.workers[addr] = w
			running.Go(func() {
				defer close(w.ended)
				defer stop()
				m.tend(workCtx, w)
			})
		}
		m.pokeWorkers()
		m.mu.Unlock()
		m.retire(leaving)
	}
}

// retire waits for the last pass of workers whose nodes left.
func (m *Manager) retire(leaving []*worker) {
	for _, w := range leaving {
		<-w.ended
		m.pool.Drop(w.addr)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range leaving {
		delete(m.workers, w.addr)
	}
	m.stirred = true
	m.poke()
}

// Retired waits until nobody gives users to these nodes any more, once they
// left the topology and are forgotten.
func (m *Manager) Retired(ctx context.Context, addrs ...string) error {
	err := m.wait(ctx, func() bool {
		return !slices.ContainsFunc(addrs, func(a string) bool { return m.workers[a] != nil })
	})
	if err != nil {
		return fmt.Errorf("wait until nobody tends nodes %s: %w", strings.Join(addrs, ", "), err)
	}
	return nil
}

// partOf is what the topology wants of a node. mu is held.
func (m *Manager) partOf(addr string) part {
	g := m.topology.GroupOfNode(addr)
	if g == nil {
		return part{}
	}
	p := part{role: topo.Replica, master: g.Master()}
	if p.master == addr {
		p.role, p.run = topo.Master, g.Run
	}
	if c := m.topology.MasterChange(); c != nil && c.Group == g.ID {
		p.givenUp, p.chosen = c.From == addr, c.To == addr
	}
	return p
}

// usersChanged notes that nodes are to have other users, and whether some are
// to go. mu is held.
func (m *Manager) usersChanged(fewer bool) {
	m.usersSeq++
	if fewer {
		m.fenceSeq = m.usersSeq
	}
	m.stirred = true
	m.pokeWorkers()
	m.poke()
}

// pokeWorkers has all workers look again now. mu is held.
func (m *Manager) pokeWorkers() {
	for _, w := range m.workers {
		w.poke()
	}
}

// pokeNodes has some workers look again now, and counts their nodes as owing
// until they did.
func (m *Manager) pokeNodes(nodes []topo.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if w := m.workers[n.Addr]; w != nil {
			w.confirmed = 0
			w.asked++
			w.poke()
		}
	}
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tend makes one pass after the other until ctx ends.
func (m *Manager) tend(ctx context.Context, w *worker) {
	tick := time.NewTicker(m.timing.reconcile)
	defer tick.Stop()
	var last *node.Admin // the connection of the last pass; another one means: look closely
	for {
		var err error
		var asked int
		last, asked, err = m.reconcile(ctx, w, last)
		if ctx.Err() != nil {
			return
		}
		m.note(w, err, asked)
		select {
		case <-w.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note keeps how the last pass went, and logs when that changes.
func (m *Manager) note(w *worker, err error, asked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stirred = true
	w.triedSince = w.triedSince || asked == w.asked
	if err == nil {
		if w.reason != "" {
			m.log.Info("node has its users again", "node", w.addr)
		}
		w.unreachable, w.reason = false, ""
		m.poke()
		return
	}
	reason := "refused"
	w.unreachable = errors.Is(err, node.ErrUnreachable)
	if w.unreachable {
		reason = "unreachable"
	}
	if w.reason == "" {
		m.log.Warn("node owes a reconcile of its users", "node", w.addr, "reason", reason, "err", err)
	}
	w.confirmed, w.reason = 0, err.Error()
	m.poke()
}

// reconcile makes the users of a node as wanted, once. It says which wish of
// the worker's it followed.
func (m *Manager) reconcile(ctx context.Context, w *worker, last *node.Admin) (*node.Admin, int, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timing.node)
	defer cancel()
	m.mu.Lock()
	wanted, seq, part, asked := m.wantedUsers(), m.usersSeq, w.part, w.asked
	m.mu.Unlock()

	admin, err := m.pool.Get(ctx, w.addr)
	if err != nil {
		if errors.Is(err, store.ErrNotLeader) {
			m.deposed()
		}
		return nil, asked, fmt.Errorf("connect: %w", err)
	}
	users, err := admin.Users(ctx)
	if err != nil {
		return nil, asked, err
	}
	var stray stray
	if !part.givenUp {
		if stray, err = identify(ctx, admin, part); err != nil {
			return nil, asked, err
		}
	}
	if part.givenUp || stray.outcast {
		wanted = nil
	}
	var surplus []string
	for _, user := range users {
		if _, ok := wanted[user]; !ok && isProxyUser(user) {
			surplus = append(surplus, user)
		}
	}
	if _, err := admin.DeleteUser(ctx, surplus...); err != nil {
		return nil, asked, err
	}
	var lacking []string
	for user, hash := range wanted {
		// On a new connection all are made anew: whatever happened meanwhile,
		// also their rules and passwords are right then.
		if hash != "" && (admin != last || !slices.Contains(users, user)) {
			lacking = append(lacking, user)
		}
	}
	if stray.reason != "" && (stray.outcast || len(lacking) > 0) {
		return nil, asked, fmt.Errorf("node %s %s: nobody new is let in", w.addr, stray.reason)
	}
	for _, user := range lacking {
		if err := admin.SetUser(ctx, user, wanted[user], node.ProxyRules...); err != nil {
			return nil, asked, err
		}
	}
	if len(surplus)+len(lacking) > 0 {
		m.log.Debug("users of node reconciled", "node", w.addr, "made", len(lacking), "removed", surplus)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.asked == asked {
		w.confirmed, m.stirred = seq, true
		m.poke()
	}
	return admin, asked, nil
}

// stray is in what way a node is not what the topology takes it for.
type stray struct {
	reason  string // "": it is
	outcast bool   // nobody may be left in there either
}

// identify looks whether a node is what the topology takes it for, before
// anybody is let in. One that is a master while it is meant to be a replica was
// given up, or restarted: writes to it would be lost. A master that is another
// process than was recorded may hold nothing, or be somebody else's.
func identify(ctx context.Context, admin *node.Admin, p part) (stray, error) {
	if p.role == "" {
		return stray{}, nil
	}
	role, err := admin.Role(ctx)
	if err != nil {
		return stray{}, err
	}
	switch {
	case p.chosen:
		return stray{}, nil
	case p.role == topo.Replica && role.Role == topo.Master:
		return stray{"is a master, not the replica it is meant to be", true}, nil
	case p.role != role.Role:
		return stray{fmt.Sprintf("is a %s, not the %s it is meant to be", role.Role, p.role), false}, nil
	case p.role == topo.Master && p.run != "":
		info, err := admin.Info(ctx, "server")
		if err != nil {
			return stray{}, err
		}
		if info["run_id"] != p.run {
			return stray{"restarted, or is another server than was recorded", true}, nil
		}
	}
	return stray{}, nil
}

// wantedUsers maps the users every node is to have to their password hashes;
// "" where the hash is no more known: such a user is left as it is. mu is held.
func (m *Manager) wantedUsers() map[string]string {
	wanted := make(map[string]string, len(m.topology.Proxies)+len(m.admitting))
	for i, p := range m.topology.Proxies {
		if p.State != topo.Admitted {
			continue
		}
		user := m.users[i]
		wanted[user] = ""
		if c := m.credentials[p.ID]; c.Incarnation == p.Incarnation && hashPattern.MatchString(c.PasswordHash) {
			wanted[user] = c.PasswordHash
		}
	}
	for user, c := range m.admitting {
		wanted[user] = c.PasswordHash
	}
	return wanted
}

// isProxyUser tells the users of proxies from those of leaders and movers, and
// from those people made.
func isProxyUser(user string) bool {
	name, ours := strings.CutPrefix(user, node.UserPrefix)
	if !ours {
		return false
	}
	for _, word := range reserved {
		if strings.HasPrefix(name, word+"-") {
			return false
		}
	}
	return true
}
