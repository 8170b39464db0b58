package backend

import (
	"errors"
	"slices"
	"time"

	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// Config holds the limits of connections to nodes.
type Config struct {
	User, Password string // login on the nodes; no AUTH is sent without a password

	Wait           time.Duration // how long a command waits for a connection; default 1 s
	CommandTimeout time.Duration // how long for its reply, 0: forever
	ConnectTimeout time.Duration // for connecting and login together; default 2 s
	BackoffMin     time.Duration // first pause between attempts; default 50 ms
	BackoffMax     time.Duration // longest pause; default 2 s
	Probe          time.Duration // how long a quiet connection to a master is trusted; default 1 s, negative: for ever
	MaxQueue       int           // bytes in one pipeline from where on its clients are not read; default 16 MiB
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() Config {
	setDefault(&c.Wait, time.Second)
	setDefault(&c.ConnectTimeout, 2*time.Second)
	setDefault(&c.BackoffMin, 50*time.Millisecond)
	setDefault(&c.BackoffMax, 2*time.Second)
	setDefault(&c.Probe, time.Second)
	setDefault(&c.MaxQueue, 16<<20)
	return c
}

// Check says what is wrong with the values.
func (c Config) Check() error {
	c = c.WithDefaults()
	if c.Wait < 0 || c.CommandTimeout < 0 || c.ConnectTimeout < 0 || c.BackoffMin < 0 || c.MaxQueue < 0 {
		return errors.New("backend: a limit is negative")
	}
	if c.BackoffMax < c.BackoffMin {
		return errors.New("backend: the longest pause between attempts is shorter than the first")
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Dialer opens and closes sockets; the loop is one.
type Dialer interface {
	// Dial starts to open a socket for p. The loop calls p.Connected or p.Lost
	// when that ended, never before Dial returned.
	Dial(p *Pipeline)
	// Hangup closes the socket of p, if any. Lost is called by the caller.
	Hangup(p *Pipeline)
}

// Pool is all pipelines of one loop.
//
// Bytes of a closed connection that lie in a buffer of the kernel or the node
// may still be executed. So a connection that ended with requests inflight
// leaves a debt: until CLIENT KILL ID of it was answered, by way of the next
// connection to that node, the node is not drained. The answer also comes before
// the new connection carries its first command, so that what a client sends next
// is not overtaken by what was lost.
type Pool struct {
	cfg            Config
	user, password string
	buffers        *resp.Buffers
	stats          *stats.Loop
	dialer         Dialer
	now            int64

	pipelines []*Pipeline
	feeds     []*Pipeline
	privates  []*Pipeline // lent, or …
	returned  []*Pipeline // … given back, the oldest first
	lanes     []*Lane
	masters   []string   // by group index of the table in force
	replicas  [][]string // by group index of the table in force
	dirty     []*Pipeline
	debts     map[string][]debt // by node

	drainNodes []string // nodes of the hold in force
	drainSince int64
	givenUp    string // the master that is being replaced, "" without one
	stale      bool   // some pipeline leads to a node that is no master any more
}

// debt is a connection whose end is not yet certain.
type debt struct {
	id   int64
	user string
}

// NewPool makes the pool of one loop.
func NewPool(cfg Config, buffers *resp.Buffers, st *stats.Loop, dialer Dialer) *Pool {
	cfg = cfg.WithDefaults()
	return &Pool{
		cfg: cfg, user: cfg.User, password: cfg.Password,
		buffers: buffers, stats: st, dialer: dialer, debts: map[string][]debt{},
	}
}

// SetNow sets the loop's clock, in nanoseconds.
func (o *Pool) SetNow(now int64) { o.now = now }

// SetCredentials changes the login of connections opened from now on.
func (o *Pool) SetCredentials(user, password string) { o.user, o.password = user, password }

// Lane is the pipelines of one protocol version and database, by group.
type Lane struct {
	pool      *Pool
	proto, db int
	pipelines []*Pipeline // by group index; nil until used
	replicas  [][]*Pipeline
}

// Lane returns the lane of a protocol version and database.
func (o *Pool) Lane(proto, db int) *Lane {
	for _, l := range o.lanes {
		if l.proto == proto && l.db == db {
			return l
		}
	}
	l := &Lane{pool: o, proto: proto, db: db, pipelines: make([]*Pipeline, len(o.masters))}
	o.lanes = append(o.lanes, l)
	return l
}

// Proto is the lane's protocol version, 2 or 3.
func (l *Lane) Proto() int { return l.proto }

// Database is the lane's database.
func (l *Lane) Database() int { return l.db }

// To returns the pipeline to the master of a group of the table in force.
func (l *Lane) To(group int) *Pipeline {
	if p := l.pipelines[group]; p != nil {
		return p
	}
	p := l.pool.pipeline(l.pool.masters[group], l.proto, l.db)
	l.pipelines[group] = p
	return p
}

// ToReplica returns the pipeline to a replica of a group of the table in force,
// by its index in what SetReplicas gave.
func (l *Lane) ToReplica(group, i int) *Pipeline {
	if l.replicas == nil {
		l.replicas = make([][]*Pipeline, len(l.pool.replicas))
	}
	if l.replicas[group] == nil {
		l.replicas[group] = make([]*Pipeline, len(l.pool.replicas[group]))
	}
	p := l.replicas[group][i]
	if p == nil {
		p = l.pool.pipeline(l.pool.replicas[group][i], l.proto, l.db)
		l.replicas[group][i] = p
	}
	return p
}

func (o *Pool) pipeline(node string, proto, db int) *Pipeline {
	for _, p := range o.pipelines {
		if p.node == node && p.proto == proto && p.db == db {
			return p
		}
	}
	p := &Pipeline{node: node, proto: proto, db: db, pool: o, Handle: -1}
	o.pipelines = append(o.pipelines, p)
	return p
}

// GiveUp closes the connections to a node whose group gets another master, ""
// for none; it comes before Apply. Requests inflight end as with a lost
// connection, and leave no debt: what the node still executes of them either
// precedes its successor's first command or is discarded with its data
// (docs/adr/0020-failover.md). Nothing is connected there again until a table
// names the node's group otherwise.
func (o *Pool) GiveUp(node string) {
	o.givenUp = node
	if node == "" {
		return
	}
	delete(o.debts, node)
	for _, p := range slices.Concat(o.pipelines, o.privates) {
		if p.node == node && p.state != idle {
			o.dialer.Hangup(p)
			p.Lost(errGivenUp)
		}
	}
}

// wants reports whether a node is a master to be connected to.
func (o *Pool) wants(node string) bool {
	return node != o.givenUp && slices.Contains(o.masters, node)
}

// SetReplicas takes the replicas, by group, of the table that the next Apply
// puts in force.
func (o *Pool) SetReplicas(replicas [][]string) { o.replicas = replicas }

// Apply takes the masters, by group, of a new table. drain lists the nodes of
// the hold that the table puts in force: from now on Drained tells when all
// requests sent to them before were answered. Requests not yet written are
// given back to be routed anew.
func (o *Pool) Apply(masters, drain []string) {
	o.masters = masters
	for _, l := range o.lanes {
		l.pipelines, l.replicas = make([]*Pipeline, len(masters)), nil
	}
	for node := range o.debts {
		if !slices.Contains(masters, node) {
			delete(o.debts, node) // not a master any more: it takes no writes
		}
	}
	for _, p := range slices.Concat(o.pipelines, o.privates) {
		p.reroute()
	}
	o.drainNodes, o.drainSince = drain, o.now
	for _, p := range slices.Concat(o.pipelines, o.privates) {
		p.drainTo = 0
		if slices.Contains(drain, p.node) {
			p.drainTo = p.ring.tail
		}
	}
	o.prune()
}

// prune closes pipelines to nodes that are no longer in the table, once all
// their requests are answered.
func (o *Pool) prune() {
	o.stale = false
	o.pipelines = slices.DeleteFunc(o.pipelines, func(p *Pipeline) bool {
		if slices.Contains(o.masters, p.node) || o.isReplica(p.node) {
			return false
		}
		if p.ring.len() > 0 {
			o.stale = true
			return false
		}
		o.dialer.Hangup(p)
		p.enter(idle)
		return true
	})
}

func (o *Pool) isReplica(node string) bool {
	for _, group := range o.replicas {
		if slices.Contains(group, node) {
			return true
		}
	}
	return false
}

// Abandon ends the wait for what was asked of a replica: its connections are
// closed and the requests given back. It does nothing to a master, nor to
// connections that still carry writes from when the node was one.
func (o *Pool) Abandon(node string) {
	for _, p := range slices.Clone(o.pipelines) {
		if p.node == node && !slices.Contains(o.masters, node) && p.onlyReads() {
			p.abandon()
		}
	}
}

// abandonLate has a hand-over not wait for replicas that do not answer: nothing
// is lost by asking a master again, and a read that a replica would answer after
// the slots moved is not to be delivered.
func (o *Pool) abandonLate() (late bool) {
	if len(o.drainNodes) == 0 {
		return false
	}
	for _, p := range slices.Clone(o.pipelines) {
		if p.ring.head < p.drainTo && !slices.Contains(o.masters, p.node) && p.onlyReads() {
			if o.now-o.drainSince < int64(replicaPatience) {
				late = true
				continue
			}
			p.abandon()
		}
	}
	return late
}

// replicaPatience is how long a hand-over waits for a replica's replies.
const replicaPatience = 50 * time.Millisecond

// Drained reports whether every request that was sent to the nodes of the hold
// before the hold has been answered, or can not be executed any more.
func (o *Pool) Drained() bool {
	for _, p := range o.pipelines {
		if p.ring.head < p.drainTo {
			return false
		}
	}
	for _, p := range o.privates {
		if p.ring.head < p.drainTo {
			return false
		}
	}
	for _, node := range o.drainNodes {
		if o.owes(node) {
			return false
		}
	}
	return true
}

// TakeDirty returns the pipelines that have bytes to write, and forgets them.
// The slice is valid until the next call.
func (o *Pool) TakeDirty(into []*Pipeline) []*Pipeline {
	into = append(into[:0], o.dirty...)
	o.dirty = o.dirty[:0]
	for _, p := range into {
		p.dirty = false
	}
	return into
}

// Tick looks at the clock for all pipelines and returns when to do so again;
// 0 means "not before something happens".
func (o *Pool) Tick() time.Duration {
	var next time.Duration
	if o.stale {
		o.prune()
	}
	if o.abandonLate() {
		next = 10 * time.Millisecond
	}
	o.tickPrivates()
	for _, all := range [][]*Pipeline{o.pipelines, slices.Concat(o.feeds, o.privates)} {
		for _, p := range all {
			if d := p.tick(); d > 0 && (next == 0 || d < next) {
				next = d
			}
		}
	}
	return next
}

// Inflight is the number of requests without a reply.
func (o *Pool) Inflight() int {
	n := 0
	for _, p := range o.pipelines {
		n += p.ring.len()
	}
	return n
}

// Close forgets all pipelines; their requests get no answer.
func (o *Pool) Close() {
	for _, p := range slices.Concat(o.pipelines, o.feeds, o.privates) {
		o.dialer.Hangup(p)
	}
	o.pipelines, o.feeds, o.privates, o.returned, o.lanes = nil, nil, nil, nil, nil
}

// lost notes a debt when requests of p are inflight.
func (o *Pool) lost(p *Pipeline) (d debt, owed bool) {
	if p.feed != nil || p.state != ready || p.sent == p.head || !o.wants(p.node) {
		return debt{}, false
	}
	d = debt{p.id, p.user}
	o.debts[p.node] = append(o.debts[p.node], d)
	return d, true
}

func (o *Pool) owes(node string) bool { return len(o.debts[node]) > 0 }

func (o *Pool) settle(node string, d debt) {
	left := slices.DeleteFunc(o.debts[node], func(x debt) bool { return x == d })
	if len(left) == 0 {
		delete(o.debts, node)
		return
	}
	o.debts[node] = left
}

// View is what is known of one pipeline.
type View struct {
	Node     string
	Protocol int
	Database int
	State    string // connected, connecting, down, idle
	Inflight int
	Requests uint64
	Error    string
	Since    int64 // when State was entered, nanoseconds on the loop's clock
	Silent   int64 // nanoseconds that the oldest request has waited without any reply coming
}

// Views describes all pipelines.
func (o *Pool) Views() []View {
	views := make([]View, 0, len(o.pipelines)+len(o.feeds))
	for _, p := range slices.Concat(o.pipelines, o.feeds, o.privates) {
		v := View{
			Node: p.node, Protocol: p.proto, Database: p.db, State: p.state.String(),
			Inflight: p.ring.len(), Requests: p.requests, Since: p.since, Silent: p.silent(),
		}
		if p.reason != nil {
			v.Error = p.reason.Error()
		}
		views = append(views, v)
	}
	return views
}

// Node is the address the pipeline leads to.
func (p *Pipeline) Node() string { return p.node }
