package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"

	"shardis/coordinator/topo"
)

// The leader's connections (docs/adr/0009-leader-users.md).
//
// A coordinator may be deposed while it is frozen, and wake up with commands
// on its way. Its successor must be able to make all of them void, without
// closing the connections of people who use the same administrator account.
// So a leader works as a user of its own term:
//
//  1. log in as administrator, named shardis-bootstrap;
//  2. make sure, by a linearizable read, to be still the leader;
//  3. close all other connections of that name, remove the users of all other
//     terms (which ends their connections), make the user of this term, close;
//  4. log in as that user; make sure again to be still the leader; only then
//     use the connection.
//
// In both rounds the connection is open before leadership is checked. A
// successor is elected after that check, so its step 3, which comes later
// still, finds the connection and ends it. A connection opened after the
// successor's step 3 fails its own check. Hence nothing of a deposed leader
// executes on a node once its successor did step 3 there. The successor has to
// do so on a node (Pool.Get) before it relies on the node's state.
//
// Rejected: working as administrator and having the successor close all its
// connections (topology.md 2 had that first): it throws out people, monitoring
// and whatever else uses the account, at each change of leader.

const (
	bootstrapName = "shardis-bootstrap"
	leaderPrefix  = UserPrefix + "leader-"
)

// ErrPoolClosed: the leadership that the pool belonged to is over.
var ErrPoolClosed = errors.New("the leader's connections are closed")

// PoolConfig is what a Pool needs of the leadership it serves.
type PoolConfig struct {
	// Term is the leadership's term: no other leadership has the same.
	Term int64
	// Check makes sure, linearizably, that this process still leads.
	Check func(context.Context) error
	// Secret gives the administrator's login to the node at addr.
	Secret func(ctx context.Context, addr string) (topo.Secret, error)
	Log    *slog.Logger // nil: discard
}

// Pool holds the connections of one leadership: one to each node, shared, made
// when first asked for. It is safe for concurrent use; a node that does not
// answer delays only those who ask for it.
type Pool struct {
	cfg  PoolConfig
	user topo.Secret // of this term, the same on all nodes

	mu     sync.Mutex
	slots  map[string]*slot
	extra  map[*Admin]struct{} // opened by Open
	closed bool
}

// slot is the place of one node's shared connection.
type slot struct {
	turn  chan struct{} // holds one token while somebody connects
	admin *Admin        // guarded by Pool.mu
}

// NewPool makes an empty pool. It connects to nothing yet.
func NewPool(cfg PoolConfig) *Pool {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{
		cfg:   cfg,
		user:  topo.Secret{User: leaderPrefix + strconv.FormatInt(cfg.Term, 10), Password: rand.Text()},
		slots: map[string]*slot{},
		extra: map[*Admin]struct{}{},
	}
}

// User is the name of the ACL user of this leadership on the nodes.
func (p *Pool) User() string { return p.user.User }

// IsLeaderUser reports whether name is that of a leader's ACL user, of
// whatever term. Reconciling proxies' users leaves them alone.
func IsLeaderUser(name string) bool { return strings.HasPrefix(name, leaderPrefix) }

// HashPassword is the form in which ACL SETUSER takes a password after "#".
func HashPassword(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// Get gives the shared connection to a node, and makes it where there is none
// or where it broke. Callers must not close it.
func (p *Pool) Get(ctx context.Context, addr string) (*Admin, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrPoolClosed
	}
	s := p.slots[addr]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		p.slots[addr] = s
	}
	if s.admin != nil && s.admin.Alive() {
		defer p.mu.Unlock()
		return s.admin, nil
	}
	p.mu.Unlock()

	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, broken(ctx, addr, ctx.Err())
	}
	p.mu.Lock()
	old := s.admin
	p.mu.Unlock()
	if old != nil && old.Alive() { // Whoever had the turn before made it.
		return old, nil
	}
	admin, err := p.open(ctx, addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.slots[addr] != s {
		admin.Close()
		return nil, fmt.Errorf("node %s: %w", addr, ErrPoolClosed)
	}
	if old != nil {
		old.Close()
	}
	s.admin = admin
	return admin, nil
}

// Open makes a connection of the caller's own, who closes it; for long work
// that must not keep others waiting. It ends with the pool.
func (p *Pool) Open(ctx context.Context, addr string, opts ...Option) (*Admin, error) {
	admin, err := p.open(ctx, addr, opts...)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		admin.Close()
		return nil, ErrPoolClosed
	}
	for a := range p.extra {
		if !a.Alive() {
			delete(p.extra, a)
		}
	}
	p.extra[admin] = struct{}{}
	return admin, nil
}

// Dial makes a raw connection of the caller's own, logged in as the leader.
func (p *Pool) Dial(ctx context.Context, addr string, opts ...Option) (net.Conn, error) {
	conn, err := withUser(ctx, p, addr, func() (net.Conn, error) { return Dial(ctx, addr, p.user, p.named(opts)...) })
	if err != nil {
		return nil, err
	}
	if err := p.cfg.Check(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to node %s: %w", addr, err)
	}
	return conn, nil
}

func (p *Pool) open(ctx context.Context, addr string, opts ...Option) (*Admin, error) {
	admin, err := withUser(ctx, p, addr, func() (*Admin, error) { return Open(ctx, addr, p.user, p.named(opts)...) })
	if err != nil {
		return nil, err
	}
	if err := p.cfg.Check(ctx); err != nil {
		admin.Close()
		return nil, fmt.Errorf("connect to node %s: %w", addr, err)
	}
	return admin, nil
}

func (p *Pool) named(opts []Option) []Option {
	return append([]Option{Named(p.user.User)}, opts...)
}

// withUser connects as the user of this term, which it makes first where the
// node does not know it: at the first visit, and after a restart of the node.
func withUser[T any](ctx context.Context, p *Pool, addr string, connect func() (T, error)) (T, error) {
	conn, err := connect()
	if !errors.Is(err, ErrAuth) {
		return conn, err
	}
	if err := p.bootstrap(ctx, addr); err != nil {
		return conn, err
	}
	return connect()
}

// bootstrap is steps 1 to 3 above.
func (p *Pool) bootstrap(ctx context.Context, addr string) error {
	secret, err := p.cfg.Secret(ctx, addr)
	if err != nil {
		return fmt.Errorf("log in to node %s: %w", addr, err)
	}
	admin, err := Open(ctx, addr, secret, Named(bootstrapName))
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := p.cfg.Check(ctx); err != nil {
		return fmt.Errorf("log in to node %s: %w", addr, err)
	}
	if _, err := admin.KillOthersNamed(ctx, bootstrapName); err != nil {
		return err
	}
	users, err := admin.Users(ctx)
	if err != nil {
		return err
	}
	var others []string
	for _, u := range users {
		if IsLeaderUser(u) && u != p.user.User {
			others = append(others, u)
		}
	}
	if _, err := admin.DeleteUser(ctx, others...); err != nil {
		return err
	}
	if err := admin.SetUser(ctx, p.user.User, HashPassword(p.user.Password), LeaderRules...); err != nil {
		return err
	}
	p.cfg.Log.Debug("leader's user made", "node", addr, "count", len(others))
	return nil
}

// Drop closes the connection to a node and forgets it.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.slots[addr]; s != nil && s.admin != nil {
		s.admin.Close()
	}
	delete(p.slots, addr)
}

// Close closes all connections; Get and Open fail from now on.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.slots {
		if s.admin != nil {
			s.admin.Close()
		}
	}
	for a := range p.extra {
		a.Close()
	}
	clear(p.slots)
	clear(p.extra)
}
