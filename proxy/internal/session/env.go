package session

import (
	"errors"
	"slices"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
	"shardis/proxy/rights"
)

// Config is what clients may do.
type Config struct {
	Users    *rights.Book // until SetUsers; nil: only user "default", with Password
	Password string       // of that one; "": no login
	Limits   resp.Limits  // of commands

	HoldTimeout time.Duration // how long a command waits for a hand-over; default 10 s
	MaxInflight int           // commands of one client without a reply from where on it is not read; default 1024
	MaxBlocked  int           // clients in blocking commands or with watched keys, of one loop; default 5000
	OutputSoft  int           // bytes of replies waiting for one client from where on it is not read; default 1 MiB
	OutputHard  int           // … beside the largest one, from where on it is disconnected; default 256 MiB

	// Limits of what may wait for a subscriber, as Redis's for the class pubsub.
	SubscriberHard int           // bytes from where on it is disconnected; default 32 MiB
	SubscriberSoft int           // bytes from where on it is so after SubscriberTime; default 8 MiB
	SubscriberTime time.Duration // default 60 s

	Version string // of Redis, as told to clients in HELLO; default "7.0.15"

	Zone           string        // of this proxy
	MaxLag         time.Duration // how old an answer of a replica may be; default 5 s
	ReadYourWrites time.Duration // for so long after its write a client reads a slot from the master; 0: no guard
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() Config {
	setDefault(&c.HoldTimeout, 10*time.Second)
	setDefault(&c.MaxInflight, 1024)
	setDefault(&c.MaxBlocked, 5000)
	setDefault(&c.OutputSoft, 1<<20)
	setDefault(&c.OutputHard, 256<<20)
	setDefault(&c.SubscriberHard, 32<<20)
	setDefault(&c.SubscriberSoft, 8<<20)
	setDefault(&c.SubscriberTime, 60*time.Second)
	setDefault(&c.Version, "7.0.15")
	setDefault(&c.MaxLag, 5*time.Second)
	return c
}

// Check says what is wrong with the values.
func (c Config) Check() error {
	c = c.WithDefaults()
	if c.HoldTimeout < 0 || c.MaxInflight < 1 || c.OutputSoft < 0 || c.MaxLag < 0 || c.ReadYourWrites < 0 {
		return errors.New("session: a limit is negative")
	}
	if c.SubscriberSoft < 0 || c.SubscriberTime < 0 || c.SubscriberHard < c.SubscriberSoft {
		return errors.New("session: a limit of subscribers is negative, or the hard one below the soft one")
	}
	if c.OutputHard < c.OutputSoft {
		return errors.New("session: the hard output limit is below the soft one")
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Env is what the sessions of one loop share. Only that loop touches it.
type Env struct {
	Config Config
	Table  *router.Table // nil before the first topology
	Pool   *backend.Pool
	Stats  *stats.Loop

	Buffers *resp.Buffers
	Now     int64 // the loop's clock, nanoseconds, read once per turn

	Local Local // for the commands answered here

	Flush func() // writes what sessions have to write, now; nil: it is left to the loop

	users    *rights.Book
	sessions map[int64]*Session
	dirty    []*Session // have output to write, or are done
	resume   []*Session // stopped reading and may go on
	held     []*Session // wait for the next table
	parked   []parked   // requests that were given back while their slot is held
	blocked  map[*blocking]struct{}
	watches  map[*watching]struct{} // those with a pipeline
	readers  readers
	free     *Request

	scratch []byte           // for replies that have to wait
	keys    []int            // positions of keys, of the command at hand
	uses    []command.KeyUse // the same, for checking rights
	split   splitter
}

// parked is a request that waits for the next table.
type parked struct {
	request *Request
	part    int
	command []byte
	again   backend.Again
}

// NewStats makes the counters of one loop. Those by slot grow with the table.
func NewStats() *stats.Loop { return stats.NewLoop(command.Count(), 0) }

// NewEnv makes the environment of one loop.
func NewEnv(cfg Config, pool *backend.Pool, st *stats.Loop, buffers *resp.Buffers) *Env {
	users := cfg.Users
	if users == nil {
		users, _ = rights.NewBook(nil, rights.Configured(cfg.Password, false), nil)
	}
	return &Env{
		Config: cfg.WithDefaults(), Pool: pool, Stats: st, Buffers: buffers,
		users: users, sessions: map[int64]*Session{}, blocked: map[*blocking]struct{}{}, watches: map[*watching]struct{}{},
	}
}

// Each calls f for every session, in no order.
func (e *Env) Each(f func(*Session)) {
	for _, s := range e.sessions {
		f(s)
	}
}

// Session finds a session by its id, nil if there is none.
func (e *Env) Session(id int64) *Session { return e.sessions[id] }

// SetNow sets the clock.
func (e *Env) SetNow(now int64) {
	e.Now = now
	e.Pool.SetNow(now)
	e.Local.meter.tick(now, &e.Stats.Snapshot)
}

// Apply puts a new table in force. What waited for it is routed by it: first
// the requests that were given back, then, when the loop calls Resume, the
// sessions that stopped at a held command.
func (e *Env) Apply(t *router.Table) {
	before := e.Table
	e.Table = t
	e.Local.apply(t)
	masters := make([]string, len(t.Groups))
	for i, g := range t.Groups {
		masters[i] = g.Master
	}
	if len(e.Stats.Slots) < t.Slots() {
		e.Stats.Slots = append(e.Stats.Slots, make([]uint64, t.Slots()-len(e.Stats.Slots))...)
	}
	e.split.grow(len(t.Groups))
	e.readers.apply(e, t, before)
	waited := e.parked
	e.parked = nil
	for _, p := range waited {
		if s := p.request.session; s != nil {
			s.parked = 0
		}
	}
	for _, s := range e.held {
		s.holdOver = false
		s.unpause(pauseHold)
	}
	e.held = e.held[:0]
	e.Pool.GiveUp(t.GivenUp())
	e.Pool.Apply(masters, t.DrainNodes(before))
	e.Local.hub.env = e
	e.Local.hub.apply()
	e.applyWatches()
	e.applyBlocked()
	for _, p := range waited {
		p.request.Resend(p.part, p.command, p.again)
	}
}

// Tick fails what waited too long for a hand-over. It returns whether
// something still waits.
func (e *Env) Tick() bool {
	oldest := e.Now - int64(e.Config.HoldTimeout)
	e.parked = slices.DeleteFunc(e.parked, func(p parked) bool {
		if p.again.At > oldest {
			return false
		}
		if s := p.request.session; s != nil {
			s.parked--
		}
		p.request.fail(p.part, errTryAgain)
		return true
	})
	e.held = slices.DeleteFunc(e.held, func(s *Session) bool {
		if s.heldAt > oldest {
			return false
		}
		s.holdOver = true
		s.unpause(pauseHold)
		return true
	})
	e.Local.hub.tick()
	return e.tickBlocked() || len(e.held) > 0 || len(e.parked) > 0
}

// TakeDirty returns the sessions that have something to write, and forgets
// them. The slice is valid until the next call.
func (e *Env) TakeDirty(into []*Session) []*Session {
	into = append(into[:0], e.dirty...)
	e.dirty = e.dirty[:0]
	for _, s := range into {
		s.dirty = false
	}
	return into
}

// HasResumable reports whether Resume has something to do.
func (e *Env) HasResumable() bool { return len(e.resume) > 0 }

// TakeResumable returns the sessions whose Resume is to be called, and forgets
// them. The slice is valid until the next call.
func (e *Env) TakeResumable(into []*Session) []*Session {
	into = append(into[:0], e.resume...)
	e.resume = e.resume[:0]
	for _, s := range into {
		s.resuming = false
	}
	return into
}

// anchor is the slot of commands without keys.
func (e *Env) anchor() (topo.Slot, bool) {
	if e.Table == nil {
		return 0, false
	}
	return e.Table.Anchor()
}

// newRequest takes a request from the stock.
func (e *Env) newRequest(s *Session, cmd *command.Command) *Request {
	r := e.free
	if r == nil {
		r = &Request{env: e}
	} else {
		e.free = r.next
		r.next = nil
	}
	r.session, r.cmd, r.lane, r.at = s, cmd, s.lane, e.Now
	return r
}

// release puts a request back. Its memory for replies is kept when small.
func (e *Env) release(r *Request) {
	const keep = 1 << 10
	if cap(r.buf) > keep {
		e.Buffers.Put(r.buf)
		r.buf = nil
	}
	*r = Request{
		env: e, next: e.free,
		buf: r.buf[:0], parts: r.parts[:0], order: r.order[:0],
	}
	e.free = r
}
