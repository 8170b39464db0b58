package session

import (
	"strconv"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// WATCH. What a connection watches is state of that connection, so from the first
// WATCH to EXEC, DISCARD or UNWATCH the client has a private pipeline:
//
//	WATCH k         private   nothing of the client is under way before its reply came
//	GET k …         shared
//	MULTI, queued   nothing is sent
//	EXEC            private   MULTI … EXEC as one block; the pipeline is given back
//
// Commands between the two may go the shared way: WATCH was answered before the
// first of them is sent, so whatever another client writes after what they read
// was written while the key was watched. EXEC is sent once they are answered, and
// what follows EXEC once that is.
//
// EXEC answers nil, as if a watched key had changed, when the watch can not be
// relied on any more: the connection was lost, or the slot has, or had meanwhile,
// another master. That is known for certain before EXEC is queued, and nothing can
// bring the block to another connection after: one that is given back unwritten is
// answered with nil, too, never sent again.
//
// Rejected: to compare values in a script at EXEC, which is no WATCH (A, B, A), and
// to keep the pipeline after EXEC for the client's next WATCH: idle clients would
// hold connections.

const (
	errPrivates     = "ERR too many clients wait in blocking commands or watch keys already"
	errWatchInMulti = "ERR WATCH inside MULTI is not allowed"
)

// watching is what a client watches, and where.
type watching struct {
	slot     topo.Slot
	pipeline *backend.Pipeline // nil once it was given back
	lane     *backend.Lane     // database and protocol the connection is in by now
	strayed  bool              // these changed: nobody else may have the pipeline
	calling  bool              // the reply to WATCH or EXEC has not come
	begun    bool              // a WATCH succeeded
	losses   uint32            // of the pipeline by then: one more, and the watch is gone
	broken   bool              // EXEC will answer nil
}

func (s *Session) watchKeys(cmd *command.Command, args [][]byte) bool {
	if s.tx != nil {
		s.answerOwn(cmd, errWatchInMulti)
		return true
	}
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	slot := t.Slot(args[1])
	for _, key := range args[2:] {
		if t.Slot(key) != slot {
			s.answerOwn(cmd, errCrossSlot)
			return true
		}
	}
	w := s.watch
	if w != nil && w.slot != slot {
		s.answerOwn(cmd, errCrossSlot)
		return true
	}
	if w != nil && w.lost() {
		s.answerOwn(cmd, "") // EXEC will tell
		return true
	}
	group, refusal := t.Route(slot)
	if refusal != router.OK {
		return s.noRoute(cmd, refusal)
	}
	if s.head != nil {
		s.pause |= pauseLane // until what came before is answered
		return false
	}
	if w == nil {
		if !s.env.mayHavePrivate() {
			s.answerOwn(cmd, errPrivates)
			return true
		}
		w = &watching{slot: slot, pipeline: s.lane.Private(group, false), lane: s.lane}
		s.watch = w
		s.env.watches[w] = struct{}{}
	}
	s.env.Stats.Slots[slot]++
	w.send(s, cmd, resp.AppendCommand(nil, args), 0, false)
	return true
}

// send queues commands on the private pipeline. The client gets the last reply;
// skip come before it. Nothing else of the client is sent until then.
func (w *watching) send(s *Session, cmd *command.Command, commands []byte, skip int, exec bool) {
	var follow []byte
	if w.lane.Proto() != s.Proto() {
		follow = resp.AppendCommandStrings(follow, "HELLO", strconv.Itoa(s.Proto()))
		skip++
	}
	if w.lane.Database() != s.Database() {
		follow = resp.AppendCommandStrings(follow, "SELECT", strconv.Itoa(s.Database()))
		skip++
	}
	if follow != nil {
		w.lane, w.strayed = s.lane, true
		commands = append(follow, commands...)
	}
	r := s.env.newRequest(s, cmd)
	r.how, r.slot, r.left = bySlot, w.slot, 1
	if exec {
		r.willWrite(replicas.SlotSet(uint16(w.slot)))
	}
	s.enqueue(r)
	s.pause |= pauseLane
	s.env.Stats.BackendRequests++
	w.calling = true
	w.pipeline.AddBlock(commands, &watchCall{w: w, request: r, exec: exec}, uint16(skip))
}

// lost reports whether the watch can not be relied on.
func (w *watching) lost() bool {
	return w.broken || w.begun && w.pipeline.Losses() != w.losses
}

// stop makes the watch a broken one.
func (w *watching) stop(e *Env) {
	w.broken = true
	w.giveBack(e, false)
}

// giveBack parts with the pipeline, unless a reply is to come: then that does.
func (w *watching) giveBack(e *Env, clean bool) {
	if w.pipeline == nil || w.calling {
		return
	}
	delete(e.watches, w)
	e.Pool.GiveBack(w.pipeline, clean && !w.strayed && !w.broken)
	w.pipeline, w.broken = nil, true
}

// watchCall takes the reply to WATCH, or to the EXEC that ends it.
type watchCall struct {
	w       *watching
	request *Request
	exec    bool
}

// Reply implements backend.Receiver.
func (c *watchCall) Reply(_ int, reply []byte) {
	w, e := c.w, c.request.env
	w.calling = false
	switch {
	case c.exec:
		w.giveBack(e, reply[0] != '-')
	case reply[0] == '-' && !w.begun:
		c.end()
	case w.broken: // by a new table, or the client is gone
		w.giveBack(e, false)
	case !w.begun && reply[0] != '-':
		w.begun, w.losses = true, w.pipeline.Losses()
	}
	c.request.Reply(0, reply)
}

// end stops the watch; the client knows that it watches nothing unless an
// earlier WATCH succeeded.
func (c *watchCall) end() {
	c.w.calling = false
	c.w.stop(c.request.env)
	if s := c.request.session; s != nil && s.watch == c.w && !c.w.begun {
		s.watch = nil
	}
}

// Resend implements backend.Receiver: the commands were not executed. They are
// not sent again: nobody could tell what happened to the keys meanwhile.
func (c *watchCall) Resend(int, []byte, backend.Again) {
	c.w.calling, c.w.begun = false, true
	c.w.stop(c.request.env)
	if !c.exec {
		c.request.Reply(0, resp.AppendOK(nil)) // EXEC will tell
		return
	}
	proto := 2
	if s := c.request.session; s != nil {
		proto = s.Proto()
	}
	c.request.Reply(0, resp.AppendNullArray(nil, proto))
}

// Fail implements backend.Receiver.
func (c *watchCall) Fail(part int, cause backend.Cause) {
	if !c.exec && cause == backend.Lost {
		c.Resend(part, nil, backend.Again{})
		return
	}
	c.end()
	c.request.Fail(part, cause)
}

// execWatched is EXEC of a client that watches keys.
func (s *Session) execWatched(cmd *command.Command) bool {
	w, t := s.watch, s.tx
	switch {
	case s.head != nil:
		s.pause |= pauseLane // until what came before is answered
		return false
	case w.lost():
	case s.env.Table.Held(w.slot):
		return s.noExec(cmd, router.Held)
	default:
		s.tx, s.watch = nil, nil
		s.env.Stats.Slots[w.slot] += uint64(t.count)
		w.send(s, cmd, append(t.block, execCommand...), t.count+1, true)
		return true
	}
	s.tx = nil
	s.unwatch()
	s.countOwn(cmd)
	s.reply(resp.AppendNullArray(s.buffer(), s.Proto()))
	return true
}

func (s *Session) unwatchKeys(cmd *command.Command, _ [][]byte) bool {
	s.unwatch()
	s.answerOwn(cmd, "")
	return true
}

// unwatch ends what the client watches.
func (s *Session) unwatch() {
	w, e := s.watch, s.env
	if w == nil {
		return
	}
	s.watch = nil
	if w.calling || w.strayed || w.lost() {
		w.stop(e)
		return
	}
	delete(e.watches, w)
	w.pipeline.Add(unwatchCommand, &unwatcher{e, w.pipeline}, 0, false)
	w.pipeline, w.broken = nil, true
}

var unwatchCommand = resp.AppendCommandStrings(nil, "UNWATCH")

// unwatcher gives a pipeline back once it watches nothing.
type unwatcher struct {
	env      *Env
	pipeline *backend.Pipeline
}

func (u *unwatcher) Reply(_ int, reply []byte)         { u.env.Pool.GiveBack(u.pipeline, reply[0] == '+') }
func (u *unwatcher) Resend(int, []byte, backend.Again) { u.env.Pool.GiveBack(u.pipeline, false) }
func (u *unwatcher) Fail(int, backend.Cause)           { u.env.Pool.GiveBack(u.pipeline, false) }

// applyWatches follows a new table: a watch is over when its slot has another
// master, even if it gets the old one back later.
func (e *Env) applyWatches() {
	for w := range e.watches {
		owner := e.Table.Owner(w.slot)
		if owner < 0 || e.Table.Groups[owner].Master != w.pipeline.Node() {
			w.stop(e)
		}
	}
}

// mayHavePrivate reports whether one more client may have a connection to a
// node for itself.
func (e *Env) mayHavePrivate() bool { return len(e.blocked)+len(e.watches) < e.Config.MaxBlocked }

// answerOwn answers a command of a transaction without asking a node: with OK
// or an error.
func (s *Session) answerOwn(cmd *command.Command, problem string) {
	s.countOwn(cmd)
	if problem == "" {
		s.replyOK()
	} else {
		s.replyError(problem)
	}
}
