package session

import (
	"bytes"
	"strconv"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// Transactions. MULTI starts a queue here, nothing is sent; each command is
// checked as Redis checks it when it is queued, from the command table, and has
// to be about the one slot of the transaction. EXEC sends
//
//	MULTI command … command EXEC
//
// as one block on the shared pipeline: on the node nothing of another client
// comes between, and the client gets the last of the replies. Until then the
// transaction touches no group, so slots may move meanwhile; while its slot is
// held EXEC waits like any command.
//
// What can not be in a block is refused when it is queued, and EXEC then answers
// EXECABORT: commands that change the shared connection (SELECT), that several
// groups would have to answer (DBSIZE, SCRIPT LOAD), or that the proxy answers
// itself (CLIENT, INFO), but for PING, ECHO and TIME, which the node answers
// alike. A channel counts as a key: PUBLISH must go where its subscribers are.

const (
	errNested       = "ERR MULTI calls can not be nested"
	errExecWithout  = "ERR EXEC without MULTI"
	errDiscardWhat  = "ERR DISCARD without MULTI"
	errExecAbort    = "EXECABORT Transaction discarded because of previous errors."
	errNotInMulti   = "ERR Command not allowed inside a transaction"
	maxTransaction  = 64 << 20 // bytes of the commands of one transaction
	maxTransactions = 60_000   // commands of one transaction
)

var transactionHandlers = map[string]handler{
	"multi":   (*Session).multi,
	"exec":    (*Session).exec,
	"discard": (*Session).discard,
	"watch":   (*Session).watchKeys,
	"unwatch": (*Session).unwatchKeys,
}

// transaction is what was queued since MULTI.
type transaction struct {
	block  []byte // MULTI and the commands, encoded
	count  int    // commands
	slot   topo.Slot
	bound  bool // slot is set
	failed bool // a command was refused: EXEC will be, too
}

var (
	multiCommand = []byte("*1\r\n$5\r\nMULTI\r\n")
	execCommand  = []byte("*1\r\n$4\r\nEXEC\r\n")
	queuedReply  = []byte("+QUEUED\r\n")
)

// ownInMulti are the commands that are not queued.
func ownInMulti(cmd *command.Command) bool {
	switch cmd.Name {
	case "multi", "exec", "discard", "watch", "quit", "reset":
		return true
	}
	return false
}

func (s *Session) multi(cmd *command.Command, _ [][]byte) bool {
	if s.tx != nil {
		s.answerOwn(cmd, errNested)
		return true
	}
	s.tx = &transaction{block: append([]byte(nil), multiCommand...)}
	if s.watch != nil {
		s.tx.slot, s.tx.bound = s.watch.slot, true
	}
	s.answerOwn(cmd, "")
	return true
}

func (s *Session) discard(cmd *command.Command, _ [][]byte) bool {
	if s.tx == nil {
		s.answerOwn(cmd, errDiscardWhat)
		return true
	}
	s.tx = nil
	s.unwatch()
	s.answerOwn(cmd, "")
	return true
}

// enqueueCommand queues a command of a transaction, or refuses it.
func (s *Session) enqueueCommand(cmd *command.Command, args [][]byte, raw []byte) {
	t := s.tx
	switch problem := s.fitTransaction(cmd, args); {
	case problem != "":
		s.refuse(cmd, resp.AppendError(s.buffer(), problem))
	case len(t.block)+len(raw) > maxTransaction || t.count == maxTransactions:
		t.block = nil
		s.refuse(cmd, resp.AppendError(s.buffer(), "ERR the transaction is too large: at most "+
			strconv.Itoa(maxTransactions)+" commands of "+strconv.Itoa(maxTransaction>>20)+" MiB together"))
	case t.failed: // Redis goes on queueing, too, for nothing
		s.reply(append(s.buffer(), queuedReply...))
	default:
		if raw[0] == '*' {
			t.block = append(t.block, raw...)
		} else {
			t.block = resp.AppendCommand(t.block, args)
		}
		t.count++
		s.reply(append(s.buffer(), queuedReply...))
	}
}

// fitTransaction says why a command can not be in the transaction, "" if it can,
// and binds the transaction to the slot of its keys.
func (s *Session) fitTransaction(cmd *command.Command, args [][]byte) (problem string) {
	if cmd.Flags&command.FlagNoMulti != 0 {
		return errNotInMulti
	}
	switch cmd.Class {
	case command.ClassSingleSlot, command.ClassScript, command.ClassSplit, command.ClassBlocking, command.ClassWait:
	case command.ClassPubSub:
		if cmd.Name == "publish" || cmd.Name == "spublish" {
			return s.bindTo(args[1])
		}
		return errNotInMulti
	case command.ClassRefused:
		return string(bytes.TrimSpace(command.AppendErrRefused(nil, cmd)[1:]))
	default:
		switch cmd.Name {
		case "ping", "echo", "time", "unwatch":
		default:
			return "ERR command '" + string(bytes.ReplaceAll([]byte(cmd.Name), []byte("|"), []byte(" "))) + "' is not allowed inside a transaction through the proxy"
		}
		return ""
	}
	keys, err := cmd.Keys(args, s.env.keys[:0])
	s.env.keys = keys[:0]
	if err != nil {
		return "" // the node will say so
	}
	for _, k := range keys {
		if problem := s.bindTo(args[k]); problem != "" {
			return problem
		}
	}
	for _, i := range cmd.SortPatterns(args, nil) {
		if !tagged(args[i]) || s.bindTo(args[i]) != "" {
			return command.ErrPattern.Error()
		}
	}
	return ""
}

// bindTo has the transaction be about the slot of key, if it is not about
// another one.
func (s *Session) bindTo(key []byte) (problem string) {
	if s.env.Table == nil {
		return errNotServed
	}
	slot := s.env.Table.Slot(key)
	if s.tx.bound && s.tx.slot != slot {
		return errCrossSlot
	}
	s.tx.slot, s.tx.bound = slot, true
	return ""
}

func (s *Session) exec(cmd *command.Command, _ [][]byte) bool {
	t := s.tx
	switch {
	case t == nil:
		s.answerOwn(cmd, errExecWithout)
		return true
	case t.failed:
		s.tx = nil
		s.unwatch()
		s.answerOwn(cmd, errExecAbort)
		return true
	case s.watch != nil:
		return s.execWatched(cmd)
	case t.count == 0:
		s.tx = nil
		s.countOwn(cmd)
		s.reply(resp.AppendArray(s.buffer(), 0))
		return true
	case s.env.Table == nil:
		return s.noExec(cmd, router.Held)
	}
	if !t.bound {
		slot, ok := s.env.anchor()
		if !ok {
			return s.noExec(cmd, router.Unassigned)
		}
		t.slot = slot
	}
	group, refusal := s.env.Table.Route(t.slot)
	if refusal != router.OK {
		return s.noExec(cmd, refusal)
	}
	s.tx = nil
	r := s.env.newRequest(s, cmd)
	r.how, r.slot, r.left, r.skip = bySlot, t.slot, 1, uint16(t.count+1)
	r.willWrite(replicas.SlotSet(uint16(t.slot)))
	s.enqueue(r)
	st := s.env.Stats
	st.Slots[t.slot] += uint64(t.count)
	st.BackendRequests += uint64(t.count)
	p := s.lane.To(group)
	p.AddBlock(append(t.block, execCommand...), r, r.skip)
	if p.Full() {
		s.pause |= pausePipeline
		p.Notify(s)
	}
	return true
}

// noExec has EXEC wait, or fail and the transaction with it.
func (s *Session) noExec(cmd *command.Command, refusal router.Refusal) bool {
	if refusal == router.Held && !s.holdOver {
		return false
	}
	s.tx = nil
	s.unwatch()
	if s.env.Table == nil {
		return s.noTable(cmd)
	}
	return s.noRoute(cmd, refusal)
}
