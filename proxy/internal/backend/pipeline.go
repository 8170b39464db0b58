// Package backend keeps the connections of one loop to the nodes.
//
// A Pipeline is one connection to one node, in one protocol version and one
// database, shared by all clients of the loop. It reads and writes no socket:
// the loop asks it for bytes to write, hands it bytes that were read, and tells
// it when the socket connected or was lost.
//
//	sessions ──► buf ───────────────────────────► socket
//	             │ retired │ inflight │ unsent │
//	             0        head       sent    len(buf)
//	             ring: one entry for each command in inflight and unsent
//	sessions ◄── Reply(first of ring) ◄── framer ◄── socket
//
// Replies match requests strictly first in, first out. A command's bytes stay
// in buf until its reply came: a command that was not written, or a read whose
// reply was lost, is sent again when the connection breaks. Commands may be
// queued before there is a connection.
//
// What a lost connection means for its requests:
//
//	not fully written          given back with Resend
//	written, read-only, once   given back with Resend
//	written, else              Fail: it may or may not have been applied
//
// A block, MULTI to EXEC, is one entry: of its replies only the last is handed
// on, and it is sent again only when no part of it can have been executed, which
// is so while its EXEC was not written. Pushes are a fault, but on the pipelines of feed.go.
package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"shardis/proxy/resp"
)

// Receiver is who waits for the reply to a request: a part of a client's
// command. Exactly one of the methods is called for each request added.
type Receiver interface {
	// Reply delivers the reply. It is valid only during the call.
	Reply(part int, reply []byte)
	// Resend gives the request back: it certainly was not executed, or does no
	// harm when executed twice. The receiver routes it anew. The command is
	// valid only during the call.
	Resend(part int, command []byte, again Again)
	// Fail tells that there will be no reply.
	Fail(part int, cause Cause)
}

// Again carries what a request keeps when it is sent again.
type Again struct {
	At       int64 // when it was queued first
	Tries    uint8
	ReadOnly bool
}

// Cause is why a request got no reply.
type Cause uint8

const (
	// Lost: the connection ended after the request was written.
	Lost Cause = iota
	// TimedOut: no reply within the command timeout.
	TimedOut
	// Down: no connection within the time a command may wait for one.
	Down
	// Garbled: the node sent bytes that are no reply, or one too many.
	Garbled
	// Moved: its slots left for several groups before it was sent.
	Moved
)

type state uint8

const (
	idle       state = iota // no connection and no need for one
	waiting                 // for the next attempt
	connecting              // socket is being opened
	greeting                // login is under way
	ready
)

func (s state) String() string {
	return [...]string{"idle", "down", "connecting", "connecting", "connected"}[s]
}

var (
	errUnexpected = errors.New("a reply nobody asked for")
	errTimeout    = errors.New("no reply within the command timeout")
	errAbandoned  = errors.New("the replica did not answer in time")
	errNoConnect  = errors.New("no connection within the connect timeout")
	errGivenUp    = errors.New("the group gets another master")
)

// Pipeline is one connection. All methods are for the owning loop.
type Pipeline struct {
	node  string // host:port
	proto int
	db    int
	pool  *Pool

	// Handle is the loop's: the socket while there is one.
	Handle int32

	state    state
	since    int64 // when state was entered
	heard    int64 // when the last reply came
	attempts int   // since the last reply; drives the back-off
	retryAt  int64 // when waiting ends
	reason   error // why the last connection ended
	id       int64 // CLIENT ID on the node, 0 until known
	user     string
	hello    greeter

	buf        []byte
	head, sent int // offsets in buf, see the drawing
	ring       ring
	framer     resp.ReplyFramer
	inbox      resp.Inbox

	dirty    bool     // listed in pool.dirty
	blocked  []Waiter // sessions that stopped reading because buf is full
	drainTo  uint64   // drained when ring.head reached it
	requests uint64   // answered since start
	feed     Feed     // of a pipeline for subscriptions, see feed.go

	// See private.go.
	private   bool
	patient   bool   // waits for a reply for ever
	lent      bool   // a client has it
	spent     bool   // nobody may have it any more
	closed    bool   // it is on no list
	idleSince int64  // when it was given back
	losses    uint32 // connections that ended, or were not made
}

// Waiter is told when a full pipeline has room again.
type Waiter interface{ PipelineDrained() }

// Begin makes room for a command of about size bytes and returns the buffer to
// append it to. End must follow at once.
func (p *Pipeline) Begin(size int) []byte {
	if cap(p.buf)-len(p.buf) < size {
		p.makeRoom(size)
	}
	return p.buf
}

// End takes the buffer that Begin gave, with one command appended, and queues
// the request.
func (p *Pipeline) End(buf []byte, r Receiver, part int, readOnly bool) {
	e := entry{receiver: r, part: uint16(part), size: uint32(len(buf) - len(p.buf)), at: p.pool.now, kind: kindOf(readOnly)}
	p.buf = buf
	p.queue(e)
}

// Add queues a request whose command is encoded already.
func (p *Pipeline) Add(command []byte, r Receiver, part int, readOnly bool) {
	p.End(append(p.Begin(len(command)), command...), r, part, readOnly)
}

// AddAgain queues a request that was given back by a pipeline.
func (p *Pipeline) AddAgain(command []byte, r Receiver, part int, again Again) {
	p.buf = append(p.Begin(len(command)), command...)
	p.queue(entry{
		receiver: r, part: uint16(part), size: uint32(len(command)),
		at: again.At, tries: again.Tries, kind: kindOf(again.ReadOnly),
	})
}

// AddBlock queues commands that nothing may come between, MULTI to EXEC. The
// receiver gets the reply of the last one; skip tells how many come before.
func (p *Pipeline) AddBlock(commands []byte, r Receiver, skip uint16) {
	p.AddBlockAgain(commands, r, skip, Again{At: p.pool.now})
}

// AddBlockAgain queues a block that was given back by a pipeline.
func (p *Pipeline) AddBlockAgain(commands []byte, r Receiver, skip uint16, again Again) {
	p.buf = append(p.Begin(len(commands)), commands...)
	p.queue(entry{receiver: r, part: skip, size: uint32(len(commands)), at: again.At, tries: again.Tries, kind: block})
}

// Movable says that the request queued last, a read sent to a replica, can be
// answered elsewhere: an error reply gives it back as a lost connection does,
// and it never fails here. One that was given back counts as new.
func (p *Pipeline) Movable() { p.ring.last().kind = movable }

func (p *Pipeline) queue(e entry) {
	p.ring.put(e)
	p.markDirty()
	if p.state == idle {
		p.wake()
	}
}

// Full reports whether so much is queued that clients should stop sending.
func (p *Pipeline) Full() bool { return len(p.buf)-p.head > p.pool.cfg.MaxQueue }

// Notify asks for w to be told once the pipeline is no more than half full.
func (p *Pipeline) Notify(w Waiter) { p.blocked = append(p.blocked, w) }

// makeRoom moves what is not retired to the front when that is at most half of
// the buffer, else to a larger one: so a byte is moved about once at most.
func (p *Pipeline) makeRoom(size int) {
	used := len(p.buf) - p.head
	if used+size <= cap(p.buf)/2 {
		p.buf = p.buf[:copy(p.buf, p.buf[p.head:])]
	} else {
		grown := append(p.pool.buffers.Get(2*(used+size)), p.buf[p.head:]...)
		p.pool.buffers.Put(p.buf)
		p.buf = grown
	}
	p.sent -= p.head
	p.head = 0
}

// Out returns the bytes to write now.
func (p *Pipeline) Out() []byte {
	switch p.state {
	case greeting:
		return p.hello.out
	case ready:
		return p.buf[p.sent:]
	}
	return nil
}

// Wrote tells how many bytes of Out were written.
func (p *Pipeline) Wrote(n int) {
	if p.state == greeting {
		p.hello.out = p.hello.out[n:]
		return
	}
	p.sent += n
	p.pool.stats.BackendBytesOut += uint64(n)
}

// Space returns where to read to; see resp.Inbox.
func (p *Pipeline) Space(shared []byte) []byte {
	return p.inbox.Space(shared, p.framer.Need(), p.pool.buffers)
}

// Received consumes n bytes read into Space. After an error the socket must be
// closed and Lost called with it.
func (p *Pipeline) Received(shared []byte, n int) error {
	p.pool.stats.BackendBytesIn += uint64(n)
	data := p.inbox.Filled(shared, n)
	for {
		size, err := p.framer.Next(data)
		if err != nil {
			return fmt.Errorf("node %s: %w", p.node, err)
		}
		if size == 0 {
			break
		}
		if err := p.reply(data[:size]); err != nil {
			return fmt.Errorf("node %s: %w", p.node, err)
		}
		data = data[size:]
	}
	p.inbox.Keep(data, p.pool.buffers)
	if len(p.blocked) > 0 && len(p.buf)-p.head <= p.pool.cfg.MaxQueue/2 {
		p.release()
	}
	return nil
}

// reply hands one reply to the oldest request.
func (p *Pipeline) reply(reply []byte) error {
	if p.state == greeting {
		return p.greeted(reply)
	}
	if reply[0] == '>' {
		if p.feed == nil {
			return errUnexpected
		}
		if isMessage(reply) {
			p.feed.Message(reply)
			return nil
		}
	}
	if p.ring.len() == 0 {
		return errUnexpected
	}
	e := p.ring.first()
	if e.kind == block && e.part > 0 && p.sent > p.head {
		e.part--
		return nil
	}
	if p.head+int(e.size) > p.sent {
		return errUnexpected
	}
	p.requests++
	p.heard = p.pool.now
	p.attempts = 0
	if reply[0] == '-' && e.kind == movable {
		p.giveBack(e)
		return nil
	}
	receiver, part := e.receiver, e.place()
	p.retire(e)
	receiver.Reply(part, reply)
	return nil
}

// giveBack takes the oldest entry, which is movable, away and returns it to its
// receiver. The receiver may queue to this very pipeline, so its command is
// copied; that is rare.
func (p *Pipeline) giveBack(e *entry) {
	receiver, part := e.receiver, int(e.part)
	command := append(p.pool.buffers.Get(int(e.size)), p.buf[p.head:p.head+int(e.size)]...)
	p.retire(e)
	receiver.Resend(part, command, p.moved())
	p.pool.buffers.Put(command)
}

func (p *Pipeline) moved() Again {
	p.pool.stats.ReplicaRetries++
	return Again{At: p.pool.now, ReadOnly: true}
}

// retire takes the oldest entry and its bytes away.
func (p *Pipeline) retire(e *entry) {
	p.head += int(e.size)
	p.ring.drop()
	if p.head == len(p.buf) {
		p.buf, p.head, p.sent = p.buf[:0], 0, 0
		if cap(p.buf) > 256<<10 {
			p.pool.buffers.Put(p.buf)
			p.buf = nil
		}
	}
}

func (p *Pipeline) release() {
	blocked := p.blocked
	p.blocked = nil
	for _, w := range blocked {
		w.PipelineDrained()
	}
}

// Connected tells that the socket is open.
func (p *Pipeline) Connected() {
	p.enter(greeting)
	p.pool.stats.BackendConnects++
	p.greet()
	p.markDirty()
}

func (p *Pipeline) markDirty() {
	if !p.dirty {
		p.dirty = true
		p.pool.dirty = append(p.pool.dirty, p)
	}
}

// Lost tells that the socket is closed, or could not be opened.
func (p *Pipeline) Lost(err error) {
	cause := Lost
	var fault resp.ProtocolError
	switch {
	case errors.Is(err, errTimeout):
		cause = TimedOut
		p.pool.stats.BackendTimeouts++
	case errors.Is(err, errUnexpected), errors.As(err, &fault):
		cause = Garbled
		p.pool.stats.BackendFaults++
	}
	p.losses++
	wasReady := p.state == ready
	debt, owed := p.pool.lost(p)
	p.reason = err
	p.id = 0
	p.framer, p.hello = resp.ReplyFramer{}, greeter{}
	p.inbox.Keep(nil, p.pool.buffers)
	if !wasReady {
		// Nothing was written: requests wait where they are.
		p.retreat()
		return
	}
	p.pool.stats.BackendLosses++
	p.enter(idle)
	p.takeBack(cause)
	if p.feed != nil {
		p.feed.Lost()
	}
	if p.private && owed {
		p.pool.collect(p.node, debt)
	}
	if p.state == idle && !p.closed && (p.ring.len() > 0 || !p.private && (p.pool.owes(p.node) || p.feed == nil && p.pool.wants(p.node))) {
		p.wake() // without requests, too: the next need not wait, and whether it can be reached is asked for
	}
	p.release()
}

// takeBack empties the pipeline: each request is given back or failed, oldest
// first. Those given back may well be queued here again meanwhile.
func (p *Pipeline) takeBack(cause Cause) {
	buf, head, sent, old := p.buf, p.head, p.sent, p.ring
	p.buf, p.head, p.sent = nil, 0, 0
	p.ring = ring{head: old.tail, tail: old.tail}
	first := true
	for old.len() > 0 {
		e := *old.first()
		old.drop()
		command := buf[head : head+int(e.size)]
		head += int(e.size)
		written := head <= sent
		why := cause
		if cause == TimedOut && !first {
			why = Lost
		}
		switch {
		case e.kind == movable:
			e.receiver.Resend(int(e.part), command, p.moved())
		case !written && e.tries < 3:
			e.receiver.Resend(e.place(), command, Again{At: p.pool.now, Tries: e.tries + 1, ReadOnly: e.kind.readOnly()})
		case !written:
			e.receiver.Fail(e.place(), Down)
		case e.kind == read && e.tries == 0 && why == Lost:
			p.pool.stats.Retried++
			e.receiver.Resend(e.place(), command, Again{At: p.pool.now, Tries: 1, ReadOnly: true})
		default:
			e.receiver.Fail(e.place(), why)
		}
		first = false
	}
	p.pool.buffers.Put(buf)
}

// reroute gives all requests back, keeping their age: none was written yet.
func (p *Pipeline) reroute() {
	if p.state == ready || p.ring.len() == 0 {
		return
	}
	buf, head, old := p.buf, p.head, p.ring
	p.buf, p.head, p.sent = nil, 0, 0
	p.ring = ring{head: old.tail, tail: old.tail}
	for old.len() > 0 {
		e := *old.first()
		old.drop()
		e.receiver.Resend(e.place(), buf[head:head+int(e.size)], Again{At: e.at, Tries: e.tries, ReadOnly: e.kind.readOnly()})
		head += int(e.size)
	}
	p.pool.buffers.Put(buf)
	p.release()
}

// onlyReads reports whether nothing without a reply may have changed anything.
func (p *Pipeline) onlyReads() bool {
	for i := p.ring.head; i < p.ring.tail; i++ {
		if !p.ring.slots[i&uint64(len(p.ring.slots)-1)].kind.readOnly() {
			return false
		}
	}
	return true
}

// abandon gives all requests back; those written were reads sent to a replica.
func (p *Pipeline) abandon() {
	if p.ring.len() == 0 {
		return
	}
	if p.state == ready {
		p.pool.dialer.Hangup(p)
		p.Lost(errAbandoned)
		return
	}
	p.reroute()
}

func (p *Pipeline) enter(s state) { p.state, p.since = s, p.pool.now }

// wake starts to connect, now or when the back-off allows it.
func (p *Pipeline) wake() {
	if p.pool.now < p.retryAt {
		p.enter(waiting)
		return
	}
	p.enter(connecting)
	p.pool.dialer.Dial(p)
}

// retreat waits for the next attempt, twice as long as before, with jitter.
func (p *Pipeline) retreat() {
	delay := p.pool.cfg.BackoffMin << min(p.attempts, 16)
	delay = min(delay, p.pool.cfg.BackoffMax)
	delay = delay/2 + rand.N(delay/2+1)
	p.attempts++
	p.retryAt = p.pool.now + int64(delay)
	p.enter(waiting)
}

// tick looks at the clock. It returns how long until it must be called again,
// 0 for "no need".
func (p *Pipeline) tick() time.Duration {
	now := p.pool.now
	if p.state != ready {
		p.expire()
	}
	switch p.state {
	case waiting:
		if p.ring.len() == 0 && (p.private || !p.pool.owes(p.node) && (p.feed != nil || !p.pool.wants(p.node))) {
			p.enter(idle)
			return 0
		}
		if now >= p.retryAt {
			p.wake()
		}
		return 10 * time.Millisecond
	case connecting, greeting:
		if now-p.since > int64(p.pool.cfg.ConnectTimeout) {
			p.pool.dialer.Hangup(p)
			p.Lost(errNoConnect)
		}
		return 10 * time.Millisecond
	case ready:
		limit := p.pool.cfg.CommandTimeout
		if p.ring.len() == 0 {
			return p.probe()
		}
		if limit <= 0 || p.patient {
			return 0
		}
		if now-p.ring.first().at > int64(limit) {
			p.pool.dialer.Hangup(p)
			p.Lost(errTimeout)
			return 10 * time.Millisecond
		}
		return 100 * time.Millisecond
	}
	return 0
}

var ping = resp.AppendCommandStrings(nil, "PING")

// nobody is the receiver of the reply to a probe.
type nobody struct{}

func (nobody) Reply(int, []byte)         {}
func (nobody) Resend(int, []byte, Again) {}
func (nobody) Fail(int, Cause)           {}

// probe asks a quiet master for a sign of life, so that a frozen one is noticed
// by proxies whose clients have nothing to say just now. What answers nothing is
// noticed by the requests that wait: see Silent in View.
func (p *Pipeline) probe() time.Duration {
	every := int64(p.pool.cfg.Probe)
	if every < 0 || p.feed != nil || p.private || !p.pool.wants(p.node) {
		return 0
	}
	quiet := p.pool.now - max(p.heard, p.since)
	if quiet >= every {
		p.Add(ping, nobody{}, 0, false)
		return 100 * time.Millisecond
	}
	return time.Duration(every - quiet)
}

// silent is for how long the oldest request has waited while nothing came.
func (p *Pipeline) silent() int64 {
	if p.state != ready || p.ring.len() == 0 {
		return 0
	}
	return p.pool.now - max(p.heard, p.ring.first().at)
}

// expire fails the requests that waited too long for a connection.
func (p *Pipeline) expire() {
	limit := int64(p.pool.cfg.Wait)
	for p.ring.len() > 0 {
		e := p.ring.first()
		if p.pool.now-e.at <= limit {
			break
		}
		if e.kind == movable {
			p.giveBack(e)
			p.sent = p.head
			continue
		}
		receiver, part := e.receiver, e.place()
		p.retire(e)
		p.sent = p.head // it is not to be written any more
		receiver.Fail(part, Down)
	}
	if len(p.blocked) > 0 && !p.Full() {
		p.release()
	}
}
