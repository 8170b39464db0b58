package session

import (
	"bytes"
	"strconv"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// Commands that wait for something to happen to their keys: BLPOP and the like,
// XREAD and XREADGROUP with BLOCK. Such a command goes out on a private pipeline,
// once everything the client sent before is answered; the client is not read
// before it is, as on Redis.
//
// When its slot is to be held the wait is ended by CLIENT UNBLOCK, so that the
// hold can drain. If the command had taken an element by then, the client gets
// it; otherwise the wait goes on, with the time that is left, at whoever owns the
// slot afterwards. XREAD from "$" goes on from the last entry there was, which is
// asked for while the slot is held and nothing is added.
//
// When the client goes, so does its connection to the node. A node that dies
// with a command blocked on it leaves it open whether that took an element, and
// the client is told so.

// blocking is one such command.
type blocking struct {
	session *Session // nil when the client is gone
	request *Request
	cmd     *command.Command
	args    [][]byte
	slot    topo.Slot
	timeout int   // place of the timeout in args
	until   int64 // when the time is over, on the loop's clock; 0: never

	pipeline *backend.Pipeline // nil while it waits for the next table
	state    blockState
	asking   bool // CLIENT UNBLOCK is on its way
	told     bool // it has ended the wait: the answer is on its way
	dollars  int  // answers to come about last entries
	resolve  []int
}

type blockState uint8

const (
	blockWaits    blockState = iota // at the node, or on the way to it
	blockEnds                       // CLIENT UNBLOCK is to end it, for a hold
	blockResolves                   // the last entries of streams are asked for
	blockParked                     // for the next table
)

// block starts a command that may block. It returns false when that must wait.
func (s *Session) block(cmd *command.Command, args [][]byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	keys, err := cmd.Keys(args, s.env.keys[:0])
	s.env.keys = keys[:0]
	var slot topo.Slot
	if err != nil || len(keys) == 0 {
		var ok bool
		if slot, ok = s.env.anchor(); !ok { // any node says what is wrong
			return s.noRoute(cmd, router.Unassigned)
		}
	} else {
		slot = t.Slot(args[keys[0]])
		for _, k := range keys[1:] {
			if t.Slot(args[k]) != slot {
				s.refuse(cmd, resp.AppendError(s.buffer(), errCrossSlot))
				return true
			}
		}
	}
	group, refusal := t.Route(slot)
	if refusal != router.OK {
		return s.noRoute(cmd, refusal)
	}
	if s.head != nil {
		s.pause |= pauseLane // until what came before is answered
		return false
	}
	e := s.env
	if !e.mayHavePrivate() {
		s.refuse(cmd, resp.AppendError(s.buffer(), errPrivates))
		return true
	}
	b := &blocking{session: s, cmd: cmd, slot: slot, args: make([][]byte, len(args))}
	b.timeout, b.until = s.blockTime(cmd, args)
	for i, a := range args {
		b.args[i] = bytes.Clone(a)
	}
	r := e.newRequest(s, cmd)
	r.how, r.slot, r.left = bySlot, slot, 1
	r.willWrite(replicas.SlotSet(uint16(slot)))
	s.enqueue(r)
	b.request = r
	s.blocked = b
	s.pause |= pauseBlocked
	e.blocked[b] = struct{}{}
	e.Stats.Blocked++
	e.Stats.Slots[slot]++
	b.send(group)
	return true
}

// blockTime finds the place of the timeout, and when it ends: 0 for never, and
// for what only the node can judge.
func (s *Session) blockTime(cmd *command.Command, args [][]byte) (at int, until int64) {
	unit := 1e9
	switch at = len(args) - 1; cmd.Name {
	case "blmpop", "bzmpop":
		at = 1
	case "xread", "xreadgroup":
		unit = 1e6
		for i := len(args) - 2; i > 0; i-- {
			if equalFold(string(args[i]), "block") {
				at = i + 1
			}
		}
	}
	const forever = 1e9 * 1e9 // 30 years
	if n, err := strconv.ParseFloat(string(args[at]), 64); err == nil && n > 0 && n*unit < forever {
		until = s.env.Now + max(1, int64(n*unit))
	}
	return at, until
}

// send puts the command on a pipeline to the group's master.
func (b *blocking) send(group int) {
	b.state, b.told = blockWaits, false
	b.pipeline = b.request.lane.Private(group, true)
	b.pipeline.Add(resp.AppendCommand(nil, b.args), b, 0, false)
	b.session.env.Stats.BackendRequests++
}

// park has the command wait for the next table, with the time that is left.
func (b *blocking) park() {
	b.state, b.pipeline = blockParked, nil
	e := b.session.env
	if t := e.Table; !t.Held(b.slot) {
		b.retry()
	}
}

// retry sends a parked command again, or ends it.
func (b *blocking) retry() {
	e := b.session.env
	group, refusal := e.Table.Route(b.slot)
	switch {
	case refusal == router.Held:
		return
	case refusal != router.OK:
		b.answerError(errNotServed)
		return
	}
	if b.until != 0 {
		left := max(int64(1e6), b.until-e.Now)
		if b.cmd.Name[0] == 'x' {
			b.args[b.timeout] = strconv.AppendInt(nil, max(1, left/1e6), 10)
		} else {
			b.args[b.timeout] = strconv.AppendFloat(nil, float64(left)/1e9, 'f', 3, 64)
		}
	}
	b.send(group)
}

// Reply implements backend.Receiver.
func (b *blocking) Reply(_ int, reply []byte) {
	s := b.session
	if s == nil {
		return
	}
	if b.state == blockEnds && isNull(reply) && (b.until == 0 || b.until > s.env.Now) && s.pause&pauseClosing == 0 {
		b.state = blockResolves
		if b.askLast(); b.dollars > 0 {
			return
		}
		s.env.Pool.GiveBack(b.pipeline, !b.asking)
		b.park()
		return
	}
	if isNull(reply) && s.pause&pauseClosing != 0 {
		b.answerError("UNBLOCKED the proxy is going down")
		return
	}
	b.answer(reply)
}

func isNull(reply []byte) bool {
	return reply[0] == '_' || len(reply) == 5 && reply[1] == '-' && (reply[0] == '*' || reply[0] == '$')
}

// Resend implements backend.Receiver: it was not sent.
func (b *blocking) Resend(int, []byte, backend.Again) {
	if b.session == nil {
		return
	}
	b.session.env.Pool.GiveBack(b.pipeline, !b.asking)
	b.park()
}

// Fail implements backend.Receiver.
func (b *blocking) Fail(_ int, cause backend.Cause) {
	if b.session == nil {
		return
	}
	b.answerError(causeText(cause))
}

func (b *blocking) answerError(text string) {
	var line [256]byte
	b.answer(resp.AppendError(line[:0], text))
}

// answer ends the command.
func (b *blocking) answer(reply []byte) {
	s, r := b.session, b.request
	if b.pipeline != nil {
		s.env.Pool.GiveBack(b.pipeline, !b.asking)
	}
	b.forget()
	s.unpause(pauseBlocked)
	r.Reply(0, reply)
}

// forget takes the command off the lists.
func (b *blocking) forget() {
	delete(b.session.env.blocked, b)
	b.session.env.Stats.Blocked--
	b.session.blocked = nil
	b.session = nil
}

// abandon ends the command of a client that is gone.
func (b *blocking) abandon() {
	pool := b.session.env.Pool
	b.forget()
	if b.pipeline != nil {
		pool.GiveBack(b.pipeline, false)
	}
}

// unblock asks the node to end the wait. The answer is the command's.
func (b *blocking) unblock(how string) {
	if b.pipeline == nil || b.asking || b.told {
		return
	}
	id := b.pipeline.ConnID()
	if id == 0 {
		return // not sent yet; see tickBlocked
	}
	b.asking = true
	e := b.session.env
	group := e.Table.GroupOfMaster(b.pipeline.Node())
	if group < 0 {
		b.asking = false
		return
	}
	e.Pool.Lane(2, 0).To(group).Add(resp.AppendCommandStrings(nil, "CLIENT", "UNBLOCK", strconv.FormatInt(id, 10), how), (*unblocker)(b), 0, true)
}

// unblocker takes the answer to CLIENT UNBLOCK. A node that says "not blocked"
// may not have read the command yet: tickBlocked asks again.
type unblocker blocking

func (u *unblocker) Reply(_ int, reply []byte)         { u.asking, u.told = false, string(reply) == ":1\r\n" }
func (u *unblocker) Resend(int, []byte, backend.Again) { u.asking = false }
func (u *unblocker) Fail(int, backend.Cause)           { u.asking = false }

// applyBlocked follows a new table: it ends the waits for slots that are held
// now, or not where they were, and takes up those that were parked.
func (e *Env) applyBlocked() {
	for b := range e.blocked {
		switch b.state {
		case blockParked:
			b.retry()
		case blockWaits:
			group, refusal := e.Table.Route(b.slot)
			if refusal != router.OK || e.Table.Groups[group].Master != b.pipeline.Node() {
				b.state = blockEnds
				b.unblock("TIMEOUT")
			}
		}
	}
}

// tickBlocked asks again to end waits, and ends those parked for too long. It
// reports whether it has to be called again soon.
func (e *Env) tickBlocked() bool {
	soon := false
	for b := range e.blocked {
		switch b.state {
		case blockEnds:
			b.unblock("TIMEOUT")
			soon = true
		case blockParked:
			soon = true
			if b.until != 0 && b.until <= e.Now {
				b.answer(resp.AppendNullArray(nil, b.session.Proto()))
			}
		}
	}
	return soon
}

// endBlocked ends the wait of a session that is to be closed: gently, so that
// an element just taken reaches the client.
func (s *Session) endBlocked() {
	b := s.blocked
	if b == nil {
		return
	}
	if b.state == blockParked {
		b.answerError("UNBLOCKED the proxy is going down")
		return
	}
	b.state = blockEnds
	b.unblock("TIMEOUT")
}

// askLast asks for the last entry of each stream that is read from "$".
func (b *blocking) askLast() {
	if b.cmd.Name != "xread" {
		return
	}
	keys, err := b.cmd.Keys(b.args, nil)
	if err != nil || len(keys) == 0 {
		return
	}
	b.resolve = b.resolve[:0]
	for _, k := range keys {
		id := k + len(keys)
		if id < len(b.args) && string(b.args[id]) == "$" {
			b.resolve = append(b.resolve, id)
			b.dollars++
			b.pipeline.Add(resp.AppendCommandStrings(nil, "XINFO", "STREAM", string(b.args[k])), (*lastEntry)(b), id, true)
		}
	}
}

// lastEntry takes the answers to askLast. Part is the place of the id.
type lastEntry blocking

func (l *lastEntry) Reply(part int, reply []byte) {
	if reply[0] == '-' {
		l.args[part] = []byte("0-0") // no such key; another type will be found out
	}
	_, after, found := bytes.Cut(reply, []byte("last-generated-id\r\n"))
	if found {
		if _, n, size, ok := resp.Header(after); ok && size+n <= len(after) {
			l.args[part] = bytes.Clone(after[size : size+n])
		}
	}
	l.done()
}

func (l *lastEntry) Resend(int, []byte, backend.Again) { l.done() }
func (l *lastEntry) Fail(int, backend.Cause)           { l.done() }

func (l *lastEntry) done() {
	b := (*blocking)(l)
	if b.dollars--; b.dollars > 0 || b.session == nil {
		return
	}
	b.session.env.Pool.GiveBack(b.pipeline, !b.asking)
	b.park()
}
