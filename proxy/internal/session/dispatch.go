package session

import (
	"bytes"
	"errors"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// dispatch starts one command. args and raw, its bytes as they came, are views
// that end with the call. It returns false when the command must wait, for the
// next table or to be learned: nothing was done then, and it is to be tried again.
func (s *Session) dispatch(args [][]byte, raw []byte) bool {
	if s.mute != muteNext {
		return s.run(args, raw)
	}
	s.mute = muteThis
	taken := s.run(args, raw)
	if s.mute == muteThis {
		s.mute = speak
		if !taken {
			s.mute = muteNext
		}
	}
	return taken
}

func (s *Session) run(args [][]byte, raw []byte) bool {
	cmd := command.Lookup(args)
	if cmd == nil {
		var wait bool
		if cmd, wait = s.learned(args); wait {
			return false
		}
	}
	switch {
	case cmd == nil:
		s.refuse(nil, command.AppendErrUnknown(s.buffer(), args))
		return true
	case !cmd.CheckArity(len(args)):
		s.refuse(cmd, command.AppendErrArity(s.buffer(), cmd))
		return true
	case !s.loggedIn && cmd.Flags&command.FlagNoAuth == 0:
		s.refuse(cmd, resp.AppendError(s.buffer(), errNoAuth))
		return true
	case s.rights != nil && !s.permitted(cmd, args):
		return true
	case s.subs != nil && s.confined() && !allowedConfined(cmd):
		s.refuse(cmd, resp.AppendError(s.buffer(), "ERR Can't execute '"+cmd.Name+"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"))
		return true
	}
	s.Commands++
	s.LastCommand = cmd.ID
	if s.tx != nil && !ownInMulti(cmd) {
		s.enqueueCommand(cmd, args, raw)
		return true
	}
	switch cmd.Class {
	case command.ClassSingleSlot:
		if cmd.Flags&command.FlagBlocking != 0 && cmd.Blocks(args) {
			return s.block(cmd, args)
		}
		if cmd.KeyPos > 0 {
			return s.sendToKey(cmd, args, raw)
		}
		return s.sendToKeys(cmd, args, raw)
	case command.ClassScript:
		return s.sendToKeys(cmd, args, raw)
	case command.ClassSplit:
		return s.split(cmd, args, raw)
	case command.ClassBlocking:
		return s.block(cmd, args)
	case command.ClassPubSub:
		if cmd.Name == "publish" || cmd.Name == "spublish" {
			return s.publish(cmd, args, raw)
		}
	case command.ClassRefused:
		s.refuse(cmd, command.AppendErrRefused(s.buffer(), cmd))
		return true
	}
	handle := handlers[cmd.ID]
	if handle == nil {
		s.refuseYet(cmd)
		return true
	}
	taken := handle(s, cmd, args)
	if taken {
		s.countLocal(cmd)
	}
	return taken
}

// countLocal counts a command that has no request to do so.
func (s *Session) countLocal(cmd *command.Command) {
	switch cmd.Class {
	case command.ClassFanOut, command.ClassScan, command.ClassPubSub, command.ClassTransaction:
		return
	}
	s.countOwn(cmd)
}

// countOwn counts a command that was answered without a request.
func (s *Session) countOwn(cmd *command.Command) {
	st := s.env.Stats
	st.Commands++
	st.Local++
	st.Calls[cmd.ID]++
}

// refuse answers a command that is not executed with an error.
func (s *Session) refuse(cmd *command.Command, reply []byte) {
	st := s.env.Stats
	st.Commands++
	st.Errors++
	if cmd != nil {
		st.Failed[cmd.ID]++
	}
	if s.tx != nil {
		s.tx.failed = true
	}
	s.reply(reply)
}

// refuseYet refuses what the proxy does not support so far.
func (s *Session) refuseYet(cmd *command.Command) {
	s.refuse(cmd, resp.AppendError(s.buffer(), "ERR command '"+string(bytes.ReplaceAll([]byte(cmd.Name), []byte("|"), []byte(" ")))+"' is not supported by the proxy yet"))
}

// sendToKey sends a command with one key at a fixed place.
func (s *Session) sendToKey(cmd *command.Command, args [][]byte, raw []byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	slot := t.Slot(args[cmd.KeyPos])
	group, refusal := t.Route(slot)
	if refusal != router.OK {
		return s.noRoute(cmd, refusal)
	}
	s.sendPlain(cmd, group, slot, args, raw)
	return true
}

// sendToKeys sends a command whose keys must all be in one slot. Without keys,
// or when they can not be told, any group gives Redis's own answer.
func (s *Session) sendToKeys(cmd *command.Command, args [][]byte, raw []byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	keys, err := cmd.Keys(args, s.env.keys[:0])
	s.env.keys = keys[:0]
	if err != nil && (cmd.ID == 0 || !errors.Is(err, command.ErrSyntax)) {
		// Of a learned command it is not certain that every server refuses it.
		s.refuse(cmd, resp.AppendError(s.buffer(), "ERR "+err.Error()))
		return true
	}
	if err != nil || len(keys) == 0 {
		slot, ok := s.env.anchor()
		if !ok {
			return s.noRoute(cmd, router.Unassigned)
		}
		return s.sendToSlot(cmd, slot, args, raw)
	}
	slot := t.Slot(args[keys[0]])
	for _, k := range keys[1:] {
		if t.Slot(args[k]) != slot {
			s.refuse(cmd, resp.AppendError(s.buffer(), errCrossSlot))
			return true
		}
	}
	for _, i := range cmd.SortPatterns(args, nil) {
		if !tagged(args[i]) || t.Slot(args[i]) != slot {
			s.refuse(cmd, resp.AppendError(s.buffer(), command.ErrPattern.Error()))
			return true
		}
	}
	return s.sendToSlot(cmd, slot, args, raw)
}

// tagged reports whether a pattern of SORT has a hash tag without a star.
func tagged(pattern []byte) bool {
	open := bytes.IndexByte(pattern, '{')
	if open < 0 {
		return false
	}
	end := bytes.IndexByte(pattern[open:], '}')
	return end > 1 && bytes.IndexByte(pattern[open:open+end], '*') < 0
}

func (s *Session) sendToSlot(cmd *command.Command, slot topo.Slot, args [][]byte, raw []byte) bool {
	group, refusal := s.env.Table.Route(slot)
	if refusal != router.OK {
		return s.noRoute(cmd, refusal)
	}
	s.sendPlain(cmd, group, slot, args, raw)
	return true
}

// sendPlain queues a request of one part.
func (s *Session) sendPlain(cmd *command.Command, group int, slot topo.Slot, args [][]byte, raw []byte) {
	r := s.env.newRequest(s, cmd)
	r.how, r.slot, r.left = bySlot, slot, 1
	s.enqueue(r)
	s.env.Stats.Slots[slot]++
	if s.reads != replicas.Master {
		s.queueByMode(r, replicas.SlotSet(uint16(slot)), group, args, raw)
		return
	}
	s.queue(r, s.lane.To(group), args, raw)
}

// queue hands a request of one part to a pipeline. Commands that came as arrays
// are passed on as they are.
func (s *Session) queue(r *Request, p *backend.Pipeline, args [][]byte, raw []byte) {
	if raw[0] == '*' {
		p.Add(raw, r, 0, r.cmd.ReadOnly())
	} else {
		p.End(resp.AppendCommand(p.Begin(len(raw)+16*len(args)), args), r, 0, r.cmd.ReadOnly())
	}
	s.env.Stats.BackendRequests++
	if p.Full() {
		s.pause |= pausePipeline
		p.Notify(s)
	}
}

// noTable has the command wait for the first table, for as long as for a hold.
func (s *Session) noTable(cmd *command.Command) bool {
	if !s.holdOver {
		return false
	}
	s.refuse(cmd, resp.AppendError(s.buffer(), errNotServed))
	return true
}

// noRoute answers a command, or has it wait, for each refusal.
func (s *Session) noRoute(cmd *command.Command, refusal router.Refusal) bool {
	if refusal == router.Held {
		if !s.holdOver {
			return false
		}
		s.refuse(cmd, resp.AppendError(s.buffer(), errTryAgain))
		return true
	}
	s.refuse(cmd, resp.AppendError(s.buffer(), errNotServed))
	return true
}
