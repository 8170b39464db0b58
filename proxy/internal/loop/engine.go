// Package loop is the shell around sessions and pipelines: event loops that own
// every data socket.
//
// An Engine runs some loops, each a goroutine locked to a thread with an epoll
// of its own. A loop's turn:
//
//	wait ─► read ready clients ─► sessions ─► pipelines' buffers ─┐
//	    └─► read ready nodes ───► pipelines ─► sessions' outputs ─┤
//	look for more when many were ready; look at the clocks        │
//	write to nodes and clients, once each ◄───────────────────────┘
//
// Nothing is written before all that is ready was read: that is what puts the
// requests of many clients into one write, and it needs no timer. Loops share
// nothing. A new table, a question for the counters, a client to take over: all
// reach a loop as a function posted to its queue, run between two events.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/session"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
	"shardis/proxy/rights"
)

// Config is what an Engine needs.
type Config struct {
	Listen []string // host:port; port 0 picks one
	Loops  int      // default: the CPUs the process may use

	Reads      replicas.Mode // where the reads of these clients go
	ReadListen []string      // more addresses to listen at, with
	ReadMode   replicas.Mode // this mode

	MaxClients  int           // 0: no limit
	IdleTimeout time.Duration // clients that send nothing for so long are closed; 0: never
	KeepAlive   time.Duration // TCP keepalive of clients; 0: default 300 s, negative: off

	Host    session.HostInfo // what INFO tells of the proxy; unset fields are filled in
	Session session.Config
	Backend backend.Config
}

// Engine owns the listening sockets and the loops.
type Engine struct {
	cfg       Config
	log       *slog.Logger
	loops     []*loop
	listeners []*listener
	changed   chan struct{}
	keyring   *rights.Keyring
	denials   *rights.Log

	clients atomic.Int64
	nextID  atomic.Int64

	base        time.Time   // zero of all loops' clocks
	readsWanted atomic.Bool // some client may read from replicas

	// Look-ups of names run here, ended by cancel.
	aside  sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	lastAcceptLog atomic.Int64 // unix seconds
}

// New makes an Engine and checks the configuration. It opens nothing.
func New(cfg Config, log *slog.Logger) (*Engine, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("no address to listen on")
	}
	if cfg.Loops == 0 {
		cfg.Loops = runtime.GOMAXPROCS(0)
	}
	if cfg.Loops < 1 || cfg.MaxClients < 0 || cfg.IdleTimeout < 0 {
		return nil, errors.New("the number of loops, of clients or the idle timeout is out of range")
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = 300 * time.Second
	}
	if err := errors.Join(cfg.Session.Check(), cfg.Backend.Check()); err != nil {
		return nil, err
	}
	cfg.Session = cfg.Session.WithDefaults()
	cfg.Session.MaxBlocked = max(1, cfg.Session.MaxBlocked/cfg.Loops)
	cfg.Host = cfg.Host.WithDefaults(cfg.MaxClients)
	e := &Engine{cfg: cfg, log: log, changed: make(chan struct{}, 1), keyring: rights.NewKeyring(), denials: &rights.Log{}, base: time.Now()}
	e.readsWanted.Store(cfg.Reads != replicas.Master || len(cfg.ReadListen) > 0)
	for i := range cfg.Loops {
		e.loops = append(e.loops, newLoop(e, i))
	}
	return e, nil
}

// Listen opens the listening sockets and what the loops wait with. Without a
// Run after it, Close releases them.
func (e *Engine) Listen() error {
	for _, address := range e.cfg.Listen {
		ln, err := listen(address)
		if err != nil {
			e.Close()
			return err
		}
		ln.reads = e.cfg.Reads
		e.listeners = append(e.listeners, ln)
	}
	for _, address := range e.cfg.ReadListen {
		ln, err := listen(address)
		if err != nil {
			e.Close()
			return err
		}
		ln.reads = e.cfg.ReadMode
		e.listeners = append(e.listeners, ln)
	}
	for _, l := range e.loops {
		l.env.Local.Host.SetAddr(e.listeners[0].addr)
	}
	for _, l := range e.loops {
		p, err := newPoller()
		if err != nil {
			e.Close()
			return err
		}
		l.poller = p
	}
	return nil
}

// Close releases what Listen opened, if Run is not to follow.
func (e *Engine) Close() {
	e.closeListeners()
	for _, l := range e.loops {
		if l.poller != nil {
			l.poller.close()
			l.poller = nil
		}
	}
}

func (e *Engine) closeListeners() {
	for _, ln := range e.listeners {
		_ = unix.Close(ln.fd)
	}
	e.listeners = nil
}

// Addrs are the addresses listened on.
func (e *Engine) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, ln := range e.listeners {
		addrs = append(addrs, ln.addr)
	}
	return addrs
}

// Run serves until ctx is done, then closes all connections at once. Listen
// must have succeeded before.
func (e *Engine) Run(ctx context.Context) error {
	e.ctx, e.cancel = context.WithCancel(ctx)
	defer e.cancel()
	first := e.loops[0]
	for _, ln := range e.listeners {
		if err := first.register(&conn{fd: int32(ln.fd), listener: ln}, true, false); err != nil {
			return fmt.Errorf("listen on %s: %w", ln.addr, err)
		}
	}
	failed := make(chan error, len(e.loops))
	for _, l := range e.loops {
		go func() { failed <- l.run() }()
	}
	var err error
	left := len(e.loops)
	select {
	case <-ctx.Done():
	case err = <-failed:
		left--
	}
	for _, l := range e.loops {
		select {
		case <-l.stopped:
		default:
			l.post(func() { l.stop = true })
		}
	}
	for range left {
		err = errors.Join(err, <-failed)
	}
	e.closeListeners()
	e.cancel()
	e.aside.Wait()
	return err
}

// background runs f on a goroutine that ends with the Engine.
func (e *Engine) background(f func(context.Context)) {
	e.aside.Add(1)
	go func() {
		defer e.aside.Done()
		f(e.ctx)
	}()
}

func (e *Engine) acceptFailed(err error) {
	now := time.Now().Unix()
	if last := e.lastAcceptLog.Load(); now-last >= 10 && e.lastAcceptLog.CompareAndSwap(last, now) {
		e.log.Error("can not accept clients", "err", err)
	}
}

// leastBusy picks the loop for a new client; on a tie the one asking.
func (e *Engine) leastBusy(asking *loop) *loop {
	best, count := asking, asking.clients.Load()
	for _, l := range e.loops {
		if n := l.clients.Load(); n < count {
			best, count = l, n
		}
	}
	return best
}

// Apply puts a new table in force on all loops, soon. Tables must come with
// rising epochs.
func (e *Engine) Apply(t *router.Table) {
	for _, l := range e.loops {
		l.post(func() {
			l.env.Apply(t)
			l.env.LearnVersions()
			l.status.Store(&status{epoch: t.Epoch, hold: t.HoldID})
			e.poke()
		})
	}
}

// Applied is the lowest epoch that a loop runs, 0 before the first table.
func (e *Engine) Applied() topo.Epoch {
	lowest := e.loops[0].status.Load().epoch
	for _, l := range e.loops {
		lowest = min(lowest, l.status.Load().epoch)
	}
	return lowest
}

// Drained is the id of the hold in force once every request sent before it to
// the nodes concerned was answered or can not be executed any more, else "".
func (e *Engine) Drained() string {
	first := e.loops[0].status.Load()
	for _, l := range e.loops {
		st := l.status.Load()
		if !st.drained || st.hold != first.hold || st.epoch != first.epoch {
			return ""
		}
	}
	return first.hold
}

// Changed yields when Applied or Drained may have changed.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

func (e *Engine) poke() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// SetCredentials changes the login on the nodes for connections opened from
// now on.
func (e *Engine) SetCredentials(user, password string) {
	for _, l := range e.loops {
		l.post(func() { l.pool.SetCredentials(user, password) })
	}
}

// SetUsers puts a new book of users in force on all loops, soon.
func (e *Engine) SetUsers(book *rights.Book) {
	for _, l := range e.loops {
		l.post(func() { l.env.SetUsers(book) })
	}
}

// Drain ends the service in good order: no new clients, no new commands; each
// client is closed once what it sent was answered. It returns when the last one
// is gone or ctx is done. Run goes on until its own context ends.
func (e *Engine) Drain(ctx context.Context) error {
	first := e.loops[0]
	first.post(func() {
		for _, c := range first.conns {
			if c != nil && c.listener != nil {
				_ = first.poller.modify(c.fd, c.generation, false, false)
				_ = unix.Shutdown(int(c.fd), unix.SHUT_RDWR)
				first.conns[c.fd] = nil
			}
		}
	})
	for _, l := range e.loops {
		l.post(func() {
			l.draining = true
			l.env.Each(func(s *session.Session) { s.Close(stats.Draining) })
		})
	}
	for _, l := range e.loops {
		select {
		case <-l.empty:
		case <-l.stopped:
		case <-ctx.Done():
			return fmt.Errorf("drain clients: %d are left: %w", e.clients.Load(), ctx.Err())
		}
	}
	return nil
}

// each has every loop call f and waits for them. A loop that does not answer
// within a second, or is not running, is left out.
func (e *Engine) each(f func(*loop)) {
	for _, l := range e.loops {
		if l.poller == nil {
			continue
		}
		done := make(chan struct{})
		l.post(func() {
			f(l)
			close(done)
		})
		select {
		case <-done:
		case <-l.stopped:
		case <-time.After(time.Second):
		}
	}
}

// Stats sums the counters of all loops.
func (e *Engine) Stats() stats.Snapshot {
	sums := make(chan stats.Snapshot, len(e.loops))
	e.each(func(l *loop) {
		var one stats.Snapshot
		one.Add(&l.stats.Snapshot)
		sums <- one
	})
	var sum stats.Snapshot
	for len(sums) > 0 {
		one := <-sums
		sum.Add(&one)
	}
	return sum
}

// Clients lists the connected clients, oldest first.
func (e *Engine) Clients() []report.Client {
	lists := make(chan []report.Client, len(e.loops))
	e.each(func(l *loop) {
		var list []report.Client
		l.env.Each(func(s *session.Session) {
			list = append(list, s.Report())
		})
		lists <- list
	})
	var all []report.Client
	for len(lists) > 0 {
		all = append(all, <-lists...)
	}
	slices.SortFunc(all, func(a, b report.Client) int { return int(a.ID - b.ID) })
	return all
}

// silentAfter is how long a request may wait with no reply to any other coming
// before the node counts as one that can not be reached.
const silentAfter = 2 * time.Second

// Backends lists the nodes that the loops have pipelines to.
func (e *Engine) Backends() []report.Backend {
	lists := make(chan []report.Backend, len(e.loops))
	e.each(func(l *loop) {
		var list []report.Backend
		for _, v := range l.pool.Views() {
			b := report.Backend{
				Node: v.Node, State: v.State, Inflight: v.Inflight, Requests: int64(v.Requests), Error: v.Error,
			}
			l.describe(&b)
			switch v.State {
			case "connected":
				b.Connections = 1
				if v.Silent >= int64(silentAfter) {
					b.State, b.DownSeconds = "down", time.Duration(v.Silent).Seconds()
					b.Error = fmt.Sprintf("no reply for %.1f s", b.DownSeconds)
				}
			case "down":
				b.DownSeconds = time.Duration(l.now - v.Since).Seconds()
			}
			list = append(list, b)
		}
		lists <- list
	})
	var all []report.Backend
	for len(lists) > 0 {
		for _, b := range <-lists {
			all = mergeBackend(all, b)
		}
	}
	slices.SortFunc(all, func(a, b report.Backend) int {
		return slices.Compare([]string{a.Group, a.Node}, []string{b.Group, b.Node})
	})
	return all
}

// mergeBackend adds a pipeline to the row of its node. The worst state shows.
func mergeBackend(all []report.Backend, b report.Backend) []report.Backend {
	rank := map[string]int{"idle": 0, "connected": 1, "connecting": 2, "down": 3}
	for i := range all {
		row := &all[i]
		if row.Node != b.Node {
			continue
		}
		row.Connections += b.Connections
		row.Inflight += b.Inflight
		row.Requests += b.Requests
		row.DownSeconds = max(row.DownSeconds, b.DownSeconds)
		if rank[b.State] > rank[row.State] {
			row.State = b.State
		}
		if row.Error == "" {
			row.Error = b.Error
		}
		return all
	}
	return append(all, b)
}
