// Package session is one client of the proxy: it takes bytes as they arrive,
// routes the commands in them, and puts the replies in order. It touches no
// socket; the loop that owns it does.
//
//	socket ──► Received ──► framer ──► dispatch ─┬─ answered here ──────────┐
//	                                             ├─ one part ──► pipeline   │
//	                                             └─ parts ─────► pipelines  │
//	                  head                tail        │                     │
//	requests, in the   [ ]──►[ ]──►[ ]──►[ ]    ◄─────┴─────────────────────┘
//	client's order      │ answered, and nothing before it waits
//	socket ◄── out ◄────┘
//
// Every command is one Request; the exception is one that is answered at once
// while nothing waits before it. A reply that comes while an earlier one is
// missing is copied into its request and waits there. A plain command is a
// request of one part.
//
// A session stops reading its client for one of the reasons below; then the
// rest of its input waits in the inbox. A command for a held slot is not taken
// out of the inbox at all, so order needs no thought: the session goes on with
// it when the next table comes.
//
// To add a command that the proxy answers itself, see local.go; to add one that
// asks several groups, see fanout.go. A blocking command takes a private
// pipeline (blocking.go), and so does WATCH (watch.go). Messages of subscriptions (hub.go) go to out between replies.
package session

import (
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
	"shardis/proxy/rights"
)

// pause is a set of reasons not to read a client.
type pause uint16

const (
	pauseHold     pause = 1 << iota // its next command waits for the next table
	pauseInflight                   // too many commands without a reply
	pauseOutput                     // it does not read its replies fast enough
	pausePipeline                   // a pipeline it used has too much queued
	pauseLane                       // it changed its protocol or database with commands inflight
	pauseClosing                    // no more commands are taken
	pauseLearn                      // a master is asked what its next command is
	pauseBlocked                    // it waits in a blocking command
	pauseLogin                      // its password is being checked
)

// Session is one client connection.
type Session struct {
	ID     int64
	Handle int32  // the loop's: the socket
	Addr   string // host:port of the client
	Laddr  string // host:port it connected to
	Since  int64  // when it connected, nanoseconds on the loop's clock
	Active int64  // when it last sent something

	Name            string // CLIENT SETNAME
	LibName, LibVer string // CLIENT SETINFO
	Commands        uint64 // dispatched since it connected
	LastCommand     uint16 // ID of the last command

	Reason stats.Reason // why the session ends, once it takes no more commands
	Abort  bool         // the connection is to be closed at once, output unsent

	env  *Env
	lane *backend.Lane

	framer resp.Framer
	inbox  resp.Inbox

	// out[written:] is to be written to the client.
	out     []byte
	written int
	largest int // reply that came since out was empty, if above the soft limit

	head, tail *Request // without a reply or waiting for an earlier one
	inflight   int      // requests in that list
	waiting    int      // bytes of replies in that list

	heldAt int64 // when it stopped for a hold
	parked int   // of its requests, how many were given back and wait for the hold

	subs *subscriptions // nil without any
	tx   *transaction   // nil outside of MULTI

	watch *watching // nil while nothing is watched

	blocked *blocking // the command it waits in

	db    uint16
	proto uint8
	pause pause
	mute  mute
	reads replicas.Mode // where its reads go
	home  replicas.Mode // the same, as its listener says

	writes *replicas.Writes // nil until it wrote with reads elsewhere

	user     *rights.User
	rights   *rights.Rights // what to check commands by, nil: everything is allowed
	proof    *rights.Proof  // of the password that was checked last
	loggedIn bool
	holdOver bool // waited too long for the hold in force
	dirty    bool // listed in env.dirty
	resuming bool // listed in env.resume
	closed   bool
}

// mute says what CLIENT REPLY asked for.
type mute uint8

const (
	speak    mute = iota
	muteAll       // OFF
	muteNext      // SKIP was just called
	muteThis      // the command at hand is the one to skip
)

// New makes the session of a connection that was accepted.
func New(env *Env, id int64, handle int32, addr, laddr string) *Session {
	s := &Session{ID: id, Handle: handle, Addr: addr, Laddr: laddr, Since: env.Now, Active: env.Now, env: env}
	s.reset()
	env.sessions[id] = s
	env.Stats.Clients++
	env.Stats.Accepted++
	return s
}

// reset makes a session as it was when the client connected.
func (s *Session) reset() {
	s.proto, s.db, s.mute, s.Name = 2, 0, speak, ""
	s.reads = s.home
	s.unsubscribeAll()
	s.tx = nil
	s.unwatch()
	s.setLane()
	s.setUser(s.env.users.Default)
	s.setLoggedIn(s.user.Open())
}

// setLane follows a change of protocol or database. Commands in different lanes
// travel on different connections, so for the order to hold the session goes on
// only when all before were answered.
func (s *Session) setLane() {
	lane := s.env.Pool.Lane(int(s.proto), int(s.db))
	if lane != s.lane && s.head != nil {
		s.pause |= pauseLane
	}
	s.lane = lane
}

func (s *Session) setLoggedIn(yes bool) {
	s.loggedIn = yes
	limits := s.env.Config.Limits
	limits.Unauthenticated = !yes
	s.framer.SetLimits(limits)
}

// Proto is the client's protocol version, 2 or 3.
func (s *Session) Proto() int { return int(s.proto) }

// Database is the client's selected database.
func (s *Session) Database() int { return int(s.db) }

// Inflight is the number of commands without a reply.
func (s *Session) Inflight() int { return s.inflight }

// OutputPending is the number of bytes of replies not yet written.
func (s *Session) OutputPending() int { return len(s.out) - s.written + s.waiting }

// Space returns where to read to; see resp.Inbox.
func (s *Session) Space(shared []byte) []byte {
	return s.inbox.Space(shared, s.framer.Need(), s.env.Buffers)
}

// Received consumes n bytes that were read into Space.
func (s *Session) Received(shared []byte, n int) {
	s.Active = s.env.Now
	s.env.Stats.BytesIn += uint64(n)
	data := s.inbox.Filled(shared, n)
	s.inbox.Keep(s.process(data), s.env.Buffers)
}

// Resume goes on with input that was left when the session was paused.
func (s *Session) Resume() {
	if s.closed || s.pause != 0 {
		return
	}
	if rest := s.inbox.Rest(); len(rest) > 0 {
		s.inbox.Keep(s.process(rest), s.env.Buffers)
	}
}

// process takes commands from data until it ends or the session pauses, and
// returns what is left.
func (s *Session) process(data []byte) []byte {
	for s.pause == 0 && len(data) > 0 {
		args, n, err := s.framer.Next(data)
		if err != nil {
			s.reply(resp.AppendError(s.buffer(), "ERR "+err.Error()))
			s.Close(stats.ProtocolFault)
			return nil
		}
		if n == 0 {
			break
		}
		if len(args) > 0 && !s.dispatch(args, data[:n]) {
			if s.pause&(pauseLearn|pauseLane|pauseLogin) == 0 {
				s.wait()
			}
			break
		}
		data = data[n:]
	}
	s.framer.Rest()
	if s.pause&pauseClosing != 0 {
		return nil
	}
	return data
}

// wait stops at the command at hand until the next table.
func (s *Session) wait() {
	if s.pause&pauseHold != 0 {
		return
	}
	s.env.Stats.Held++
	s.pause |= pauseHold
	s.heldAt = s.env.Now
	s.env.held = append(s.env.held, s)
}

// WantRead reports whether the client is to be read. One that waits in a
// blocking command is, a little, so that its end is noticed.
func (s *Session) WantRead() bool {
	return s.pause == 0 || s.pause == pauseBlocked && s.inbox.Len() < 64<<10
}

// unpause takes a reason away; without any left the loop will call Resume.
func (s *Session) unpause(reason pause) {
	s.pause &^= reason
	if s.pause == 0 && !s.resuming && !s.closed {
		s.resuming = true
		s.env.resume = append(s.env.resume, s)
	}
}

// PipelineDrained implements backend.Waiter.
func (s *Session) PipelineDrained() { s.unpause(pausePipeline) }

// Close takes no more commands: the session is done once the replies to
// earlier ones are written.
func (s *Session) Close(why stats.Reason) {
	if s.pause&pauseClosing == 0 {
		s.pause |= pauseClosing
		s.Reason = why
		if s.blocked != nil {
			s.Abort = why == stats.ClientClosed
			s.endBlocked()
		}
	}
	s.markDirty()
}

// Done reports whether the connection can be closed.
func (s *Session) Done() bool {
	return s.closed || s.Abort || s.pause&pauseClosing != 0 && s.head == nil && s.written == len(s.out)
}

// Idle reports whether nothing the client sent is still being worked on. One
// with subscriptions waits for messages, and is not idle.
func (s *Session) Idle() bool {
	return s.head == nil && s.written == len(s.out) && s.inbox.Len() == 0 && s.subs.count(ofChannel)+s.subs.count(ofShard) == 0
}

// Detach ends the session after its socket was closed. Requests without a
// reply stay with their pipelines; their replies will be dropped.
func (s *Session) Detach(why stats.Reason) {
	if s.closed {
		return
	}
	s.closed = true
	if s.blocked != nil {
		s.blocked.abandon()
	}
	s.unwatch()
	if s.pause&pauseClosing != 0 {
		why = s.Reason
	}
	for r := s.head; r != nil; {
		next := r.next
		r.session, r.next = nil, nil
		if r.left == 0 {
			s.env.release(r)
		}
		r = next
	}
	s.head, s.tail = nil, nil
	s.unsubscribeAll()
	s.env.Buffers.Put(s.out)
	s.out = nil
	s.inbox.Keep(nil, s.env.Buffers)
	s.framer = resp.Framer{}
	if s.pause&pauseHold != 0 {
		for i, h := range s.env.held {
			if h == s {
				s.env.held = append(s.env.held[:i], s.env.held[i+1:]...)
				break
			}
		}
	}
	delete(s.env.sessions, s.ID)
	s.env.Stats.Clients--
	s.env.Stats.Closed[why]++
}

func (s *Session) markDirty() {
	if !s.dirty {
		s.dirty = true
		s.env.dirty = append(s.env.dirty, s)
	}
}

// Out returns what is to be written to the client.
func (s *Session) Out() []byte { return s.out[s.written:] }

// Wrote tells how much of Out was written.
func (s *Session) Wrote(n int) {
	s.env.Stats.BytesOut += uint64(n)
	s.written += n
	if s.written == len(s.out) {
		s.env.Buffers.Put(s.out)
		s.out, s.written, s.largest = nil, 0, 0
	}
	if s.pause&pauseOutput != 0 && s.OutputPending() <= s.env.Config.OutputSoft/2 {
		s.unpause(pauseOutput)
	}
}

// send appends bytes to the output.
func (s *Session) send(b []byte) {
	if cap(s.out)-len(s.out) < len(b) {
		s.out = s.env.Buffers.Grow(s.out, len(b))
	}
	s.out = append(s.out, b...)
	s.sent(len(b))
}

// sent must follow each growth of the output, by a reply of size bytes.
func (s *Session) sent(size int) {
	s.markDirty()
	if len(s.out)-s.written > s.env.Config.OutputSoft {
		s.checkOutput(size)
	}
}

// checkOutput follows each reply of size bytes that leaves more pending than
// the soft limit. The largest reply does not count for the hard limit: what a
// client could store it can read, and how much it leaves unread is no matter of
// how long one reply is.
func (s *Session) checkOutput(size int) {
	pending := s.OutputPending()
	if pending > s.env.Config.OutputSoft {
		s.pause |= pauseOutput
		s.largest = max(s.largest, size)
	}
	if pending-s.largest > s.env.Config.OutputHard {
		s.Reason = stats.OutputLimit
		s.pause |= pauseClosing
		s.Abort = true
		s.markDirty()
	}
}

// buffer returns an empty slice to build a reply in, for reply.
func (s *Session) buffer() []byte { return s.env.scratch[:0] }

// reply answers the command at hand: at once, or, while earlier commands have
// no reply, in its turn. b usually grew from buffer.
func (s *Session) reply(b []byte) {
	s.env.scratch = b[:0]
	if s.mute != speak {
		return
	}
	if s.head == nil {
		s.send(b)
		return
	}
	r := s.env.newRequest(s, nil)
	s.enqueue(r)
	r.keep(b)
}

// replyError answers the command at hand with an error such as "ERR no".
func (s *Session) replyError(text string) {
	s.env.Stats.Errors++
	s.reply(resp.AppendError(s.buffer(), text))
}

// enqueue puts a request behind those without a reply.
func (s *Session) enqueue(r *Request) {
	r.silent = s.mute != speak
	if s.tail == nil {
		s.head = r
	} else {
		s.tail.next = r
	}
	s.tail = r
	s.inflight++
	if s.inflight >= s.env.Config.MaxInflight {
		s.pause |= pauseInflight
	}
}

// advance moves replies to the output as far as they are in order.
func (s *Session) advance() {
	for r := s.head; r != nil && r.left == 0; r = s.head {
		s.waiting -= len(r.buf)
		if !r.silent {
			if r.merge == nil {
				s.send(r.buf)
			} else {
				s.merge(r)
			}
		}
		s.pop(r)
		s.env.release(r)
	}
}

// pop takes the first request out of the list.
func (s *Session) pop(r *Request) {
	s.head = r.next
	if s.head == nil {
		s.tail = nil
	}
	s.inflight--
	if s.pause&pauseInflight != 0 && s.inflight <= s.env.Config.MaxInflight/2 {
		s.unpause(pauseInflight)
	}
	if s.head == nil && s.pause&(pauseLane|pauseClosing) != 0 {
		s.unpause(pauseLane)
		s.markDirty()
	}
}
