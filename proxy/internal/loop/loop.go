package loop

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/session"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

const (
	readSize = 64 << 10 // the shared read buffer
	// manyReady is from how many ready sockets on a turn looks for more before it
	// flushes, at most moreRounds times: larger writes cost less on both sides.
	manyReady  = 4
	moreRounds = 1
	// backendReads is how often one turn reads one full node socket.
	backendReads = 8
	// soon is how long after something happened clocks are looked at.
	soon = 10 * time.Millisecond
	// seldom is how often they are looked at when nothing waits.
	seldom = time.Second
)

// loop is one event loop: a goroutine on a thread of its own, the only one that
// touches its sockets, sessions and pipelines. Others speak to it through post.
type loop struct {
	engine *Engine
	index  int
	log    *slog.Logger

	poller  *poller
	conns   []*conn // by socket
	created int32   // sockets so far, for their generations
	shared  []byte  // every read that needs no memory of its own goes here

	env     *session.Env
	pool    *backend.Pool
	stats   *stats.Loop
	checker *session.Checker // of the first loop
	buffers resp.Buffers

	base     time.Time // clock zero
	now      int64     // nanoseconds since base, once per turn
	nextTick int64
	deaf     []*conn // listening sockets that are not watched until the next tick
	nextIdle int64   // when to look for idle clients

	sessions  []*session.Session  // reused by flush
	pipelines []*backend.Pipeline // reused by flush
	resolving map[*backend.Pipeline]int
	resolved  int

	mu    sync.Mutex
	queue []func()
	ended bool // the poller is closed

	clients  atomic.Int64 // given to this loop and not closed
	status   atomic.Pointer[status]
	draining bool // no more commands are taken
	stopped  chan struct{}
	empty    chan struct{} // closed when draining and the last client is gone
	stop     bool
}

// status is what a loop says of the table in force.
type status struct {
	epoch   topo.Epoch
	hold    string
	drained bool
}

// conn is one socket: of a client, of a node, or a listening one.
type conn struct {
	fd, generation int32
	session        *session.Session
	pipeline       *backend.Pipeline
	listener       *listener
	connecting     bool
	read, write    bool // what the poller reports
}

func newLoop(e *Engine, index int) *loop {
	l := &loop{
		engine: e, index: index, log: e.log, shared: make([]byte, readSize),
		stats: session.NewStats(), base: e.base,
		resolving: map[*backend.Pipeline]int{}, stopped: make(chan struct{}), empty: make(chan struct{}),
	}
	l.pool = backend.NewPool(e.cfg.Backend, &l.buffers, l.stats, l)
	l.env = session.NewEnv(e.cfg.Session, l.pool, l.stats, &l.buffers)
	l.env.Local = session.Local{Host: e.cfg.Host, Peers: peers{l}, Keyring: e.keyring, Denials: e.denials, Aside: l.aside, ReadsWanted: &e.readsWanted}
	l.env.Flush = l.flushClients
	if index == 0 {
		l.checker = session.NewChecker(l.env, e.useReplicas)
	}
	l.status.Store(&status{})
	return l
}

// post has the loop call f between two turns. Any goroutine may call it. After
// the loop ended f is not called.
func (l *loop) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.queue = append(l.queue, f)
	l.poller.wake()
}

func (l *loop) runQueue() {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// run is the loop itself. It ends after stop was set by a posted function.
func (l *loop) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.stopped)
	defer l.closeAll()
	for !l.stop {
		n, err := l.poller.wait(0)
		if n == 0 && err == nil {
			n, err = l.poller.wait(l.timeout())
		}
		if err != nil {
			return err
		}
		l.turn(n)
	}
	return nil
}

// timeout is how long the loop may sleep, in milliseconds.
func (l *loop) timeout() int {
	left := time.Duration(l.nextTick - int64(time.Since(l.base)))
	return max(0, int((left+time.Millisecond-1)/time.Millisecond))
}

// turn handles n ready sockets and writes what came of it.
func (l *loop) turn(n int) {
	l.now = int64(time.Since(l.base))
	l.env.SetNow(l.now)
	l.stats.Turns++
	l.handle(n)
	for round := 0; round < moreRounds && n >= manyReady; round++ {
		more, err := l.poller.wait(0)
		if more == 0 || err != nil {
			break
		}
		l.handle(more)
		n = more
	}
	if l.now >= l.nextTick {
		l.tick()
	} else {
		l.nextTick = min(l.nextTick, l.now+int64(soon))
	}
	if l.checker != nil {
		l.checker.Flush()
	}
	l.flush()
	l.report()
}

func (l *loop) handle(n int) {
	for i := range n {
		e, woken := l.poller.event(i)
		if woken {
			l.runQueue()
			continue
		}
		if int(e.fd) >= len(l.conns) {
			continue
		}
		c := l.conns[e.fd]
		if c == nil || c.generation != e.generation {
			continue // closed earlier in this turn
		}
		switch {
		case c.session != nil:
			l.clientReady(c, e)
		case c.pipeline != nil:
			l.nodeReady(c, e)
		default:
			l.acceptClients(c)
		}
	}
}

// flush writes, once per turn, to nodes and then to clients, and has sessions
// go on that can.
func (l *loop) flush() {
	for {
		for l.env.HasResumable() {
			l.sessions = l.env.TakeResumable(l.sessions)
			for _, s := range l.sessions {
				if c := l.connOf(s); c != nil {
					s.Resume()
					l.watch(c)
				}
			}
		}
		l.pipelines = l.pool.TakeDirty(l.pipelines)
		for _, p := range l.pipelines {
			l.flushNode(p)
		}
		l.flushClients()
		if len(l.pipelines) == 0 && len(l.sessions) == 0 && !l.env.HasResumable() {
			return
		}
	}
}

func (l *loop) flushClients() {
	l.sessions = l.env.TakeDirty(l.sessions)
	for _, s := range l.sessions {
		if c := l.connOf(s); c != nil {
			l.flushClient(c)
		}
	}
}

// tick looks at all clocks.
func (l *loop) tick() {
	if l.checker != nil && l.engine.readsWanted.Load() {
		l.checker.Tick()
	}
	next := l.pool.Tick()
	if l.env.Tick() && (next == 0 || next > soon) {
		next = soon
	}
	if next == 0 {
		next = seldom
	}
	for _, c := range l.deaf {
		if l.conns[c.fd] == c {
			l.want(c, true, false)
		}
	}
	l.deaf = l.deaf[:0]
	l.nextTick = l.now + int64(next)
	if idle := int64(l.engine.cfg.IdleTimeout); idle > 0 && l.now >= l.nextIdle {
		l.nextIdle = l.now + int64(seldom)
		l.env.Each(func(s *session.Session) {
			if l.now-s.Active > idle && s.Idle() {
				s.Close(stats.IdleTimeout)
			}
		})
	}
}

// report publishes what became of the hold in force.
func (l *loop) report() {
	st := l.status.Load()
	if st.hold != "" && !st.drained && l.pool.Drained() {
		l.status.Store(&status{st.epoch, st.hold, true})
		l.engine.poke()
	}
	if l.draining && l.clients.Load() == 0 {
		select {
		case <-l.empty:
		default:
			close(l.empty)
		}
	}
}

func (l *loop) connOf(s *session.Session) *conn {
	if c := l.conns[s.Handle]; c != nil && c.session == s {
		return c
	}
	return nil
}

// register puts a socket under the poller.
func (l *loop) register(c *conn, read, write bool) error {
	for int(c.fd) >= len(l.conns) {
		l.conns = append(l.conns, make([]*conn, max(64, len(l.conns)))...)
	}
	l.created++
	c.generation = l.created
	c.read, c.write = read, write
	if err := l.poller.add(c.fd, c.generation, read, write); err != nil {
		return err
	}
	l.conns[c.fd] = c
	return nil
}

// want changes what the poller reports of a socket.
func (l *loop) want(c *conn, read, write bool) {
	if c.read == read && c.write == write {
		return
	}
	c.read, c.write = read, write
	if err := l.poller.modify(c.fd, c.generation, read, write); err != nil {
		l.log.Error("poller refused a change", "err", err)
	}
}

// watch has the poller report what the client's session can use.
func (l *loop) watch(c *conn) {
	l.want(c, c.session.WantRead() && !l.draining, len(c.session.Out()) > 0)
}

func (l *loop) drop(c *conn) {
	l.conns[c.fd] = nil
	_ = unix.Close(int(c.fd)) // takes it out of the poller as well
}

// clientReady reads a client and writes what it could not take before.
func (l *loop) clientReady(c *conn, e event) {
	s := c.session
	if e.writable && c.write {
		l.flushClient(c)
		if l.conns[e.fd] != c {
			return
		}
	}
	if !e.readable {
		return
	}
	if !c.read {
		if e.broken {
			l.closeClient(c, stats.ClientClosed)
		}
		return
	}
	n, err := read(c.fd, s.Space(l.shared))
	switch {
	case err != nil:
		l.closeClient(c, stats.ClientClosed)
		return
	case n < 0:
		return
	case n == 0:
		// The client sends no more but may still read: like Redis, answer what
		// it sent.
		s.Close(stats.ClientClosed)
	default:
		s.Received(l.shared, n)
	}
	if !s.WantRead() {
		l.watch(c)
	}
}

func (l *loop) flushClient(c *conn) {
	s := c.session
	if out := s.Out(); len(out) > 0 && !s.Abort {
		n, err := write(c.fd, out)
		if err != nil {
			l.closeClient(c, stats.ClientClosed)
			return
		}
		s.Wrote(n)
	}
	if s.Done() {
		l.closeClient(c, s.Reason)
		return
	}
	l.watch(c)
}

func (l *loop) closeClient(c *conn, why stats.Reason) {
	c.session.Detach(why)
	l.drop(c)
	l.clients.Add(-1)
	l.engine.clients.Add(-1)
}

// acceptClients takes the clients that wait and hands each to the loop with the
// fewest.
func (l *loop) acceptClients(c *conn) {
	for range 64 {
		fd, sa, err := accept(c.listener.fd)
		if err != nil {
			if err != unix.EAGAIN && err != unix.EINTR && err != unix.ECONNABORTED {
				l.engine.acceptFailed(err)
				// Without descriptors or memory the client stays in the queue, and the
				// socket ready: looking at once again would keep the loop spinning.
				l.want(c, false, false)
				l.deaf = append(l.deaf, c)
			}
			return
		}
		e := l.engine
		if limit := e.cfg.MaxClients; limit > 0 && e.clients.Load() >= int64(limit) {
			_, _ = write(int32(fd), []byte("-ERR max number of clients reached\r\n"))
			_ = unix.Close(fd)
			l.stats.Closed[stats.TooManyClients]++
			continue
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if d := e.cfg.KeepAlive; d > 0 {
			setKeepAlive(fd, int(d/time.Second))
		}
		e.clients.Add(1)
		id := e.nextID.Add(1)
		to, reads := e.leastBusy(l), c.listener.reads
		to.clients.Add(1)
		remote := addrPort(sa)
		if to == l {
			l.adopt(fd, id, remote, reads)
		} else {
			to.post(func() { to.adopt(fd, id, remote, reads) })
		}
	}
}

// adopt makes a session of an accepted socket.
func (l *loop) adopt(fd int, id int64, remote netip.AddrPort, reads replicas.Mode) {
	local := ""
	if sa, err := unix.Getsockname(fd); err == nil {
		local = addrPort(sa).String()
	}
	c := &conn{fd: int32(fd)}
	if l.draining || l.stop {
		_ = unix.Close(fd)
		l.clients.Add(-1)
		l.engine.clients.Add(-1)
		return
	}
	if err := l.register(c, true, false); err != nil {
		l.log.Error("poller refused a client", "err", err)
		_ = unix.Close(fd)
		l.clients.Add(-1)
		l.engine.clients.Add(-1)
		return
	}
	c.session = session.New(l.env, id, c.fd, remote.String(), local)
	c.session.SetReads(reads)
}

// nodeReady goes on with a connection to a node.
func (l *loop) nodeReady(c *conn, e event) {
	p := c.pipeline
	if c.connecting {
		errno, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err != nil {
			l.nodeLost(c, err)
			return
		}
		if !e.writable {
			return
		}
		c.connecting = false
		l.want(c, true, false)
		p.Connected()
		return
	}
	if e.writable && c.write {
		l.flushNode(p)
		if l.conns[e.fd] != c {
			return
		}
	}
	if !e.readable {
		return
	}
	for range backendReads {
		space := p.Space(l.shared)
		n, err := read(c.fd, space)
		if n == 0 && err == nil {
			err = io.EOF
		}
		if err == nil && n > 0 {
			err = p.Received(l.shared, n)
		}
		if err != nil {
			l.nodeLost(c, err)
			return
		}
		if n < len(space) {
			return
		}
	}
}

func (l *loop) flushNode(p *backend.Pipeline) {
	if p.Handle < 0 {
		return
	}
	c := l.conns[p.Handle]
	if c == nil || c.pipeline != p || c.connecting {
		return
	}
	out := p.Out()
	if len(out) > 0 {
		n, err := write(c.fd, out)
		if err != nil {
			l.nodeLost(c, err)
			return
		}
		p.Wrote(n)
		l.want(c, true, n < len(out))
		return
	}
	l.want(c, true, false)
}

func (l *loop) nodeLost(c *conn, err error) {
	p := c.pipeline
	l.drop(c)
	p.Handle = -1
	l.log.Debug("connection to a node was lost", "node", p.Node(), "err", err)
	p.Lost(err)
}

var errClosed = errors.New("the loop is going down")

// closeAll ends everything at once.
func (l *loop) closeAll() {
	l.stop = true
	l.runQueue() // clients that were handed over meanwhile
	for _, c := range l.conns {
		switch {
		case c == nil:
		case c.session != nil:
			l.closeClient(c, stats.Draining)
		case c.pipeline != nil:
			l.drop(c)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.poller.close()
}
