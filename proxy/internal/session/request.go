package session

import (
	"strings"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// The texts of errors that the proxy itself answers with.
const (
	errNoAuth     = "NOAUTH Authentication required."
	errCrossSlot  = "CROSSSLOT Keys in request don't hash to the same slot"
	errNotServed  = "CLUSTERDOWN Hash slot not served"
	errDown       = "CLUSTERDOWN no connection to the master of this slot"
	errTryAgain   = "TRYAGAIN the slot is being handed over to another group"
	errSplitMoved = "TRYAGAIN the slots of this command moved to different groups"
	errLost       = "ERR the connection to the master was lost; the command may or may not have been applied"
	errTimedOut   = "ERR the master did not answer in time; the command may or may not have been applied"
	errGarbled    = "ERR the master sent an invalid reply; the command may or may not have been applied"
	errGroupGone  = "TRYAGAIN the group left the cluster"
	errNoReplica  = "CLUSTERDOWN no replica of this slot may answer reads now"
)

func causeText(c backend.Cause) string {
	switch c {
	case backend.TimedOut:
		return errTimedOut
	case backend.Down:
		return errDown
	case backend.Garbled:
		return errGarbled
	case backend.Moved:
		return errSplitMoved
	}
	return errLost
}

// Request is one command of a client on its way: one part for a plain command,
// several for one that was split or asks several groups. It lives from dispatch
// to the moment its reply moved to the output; the stock of its Env reuses it.
type Request struct {
	env     *Env
	session *Session // nil when the client is gone
	next    *Request // in the client's order
	cmd     *command.Command
	lane    *backend.Lane
	at      int64 // when it was dispatched

	skip   uint16 // of a transaction: replies before the one of EXEC
	how    routing
	slot   topo.Slot // for bySlot
	silent bool      // CLIENT REPLY: no reply wanted
	failed bool      // some part's reply is an error

	reads  replicas.Mode  // how it was sent to a replica; Master: it was not
	writes replicas.Slots // what it writes, of a client that may read from replicas

	left  int      // parts without a reply
	buf   []byte   // replies of the parts, in the order they came
	parts []part   // only for requests with a merge
	order []uint16 // which part has each key, in the client's order
	merge func(r *Request, dst []byte) []byte
}

// routing is how a request that was given back finds its way again.
type routing uint8

const (
	bySlot  routing = iota // all keys in one slot
	byKeys                 // each part's keys decide
	byGroup                // each part is bound to a group
)

// part is one piece of a request on one group.
type part struct {
	group      string // id
	keys       int    // number of keys
	start, end int    // its reply in buf
	unknown    bool   // failed after it was written: may or may not have been applied
}

// keep stores the reply of a request of one part until its turn.
func (r *Request) keep(b []byte) {
	r.store(b)
	r.session.waiting += len(b)
	if r.session.waiting > r.env.Config.OutputSoft {
		r.session.checkOutput(len(b))
	}
}

func (r *Request) store(b []byte) {
	if cap(r.buf)-len(r.buf) < len(b) {
		r.buf = r.env.Buffers.Grow(r.buf, len(b))
	}
	r.buf = append(r.buf, b...)
}

// Reply implements backend.Receiver.
func (r *Request) Reply(part int, reply []byte) {
	if r.merge != nil {
		r.partReply(part, reply)
		return
	}
	r.left = 0
	r.count(reply[0] == '-')
	s := r.session
	switch {
	case s == nil:
		r.env.release(r)
	case s.head != r:
		if !r.silent {
			r.keep(reply)
		}
	default:
		if !r.silent {
			s.send(reply)
		}
		s.pop(r)
		r.env.release(r)
		if s.head != nil && s.head.left == 0 {
			s.advance()
		}
	}
}

// partReply takes the reply of one of several parts.
func (r *Request) partReply(i int, reply []byte) {
	p := &r.parts[i]
	p.start = len(r.buf)
	if r.session != nil {
		r.store(reply)
	}
	p.end = len(r.buf)
	if reply[0] == '-' {
		r.failed = true
	}
	r.left--
	if s := r.session; s != nil {
		s.waiting += p.end - p.start
		if s.waiting > r.env.Config.OutputSoft {
			s.checkOutput(len(r.buf))
		}
	}
	if r.left > 0 {
		return
	}
	r.count(r.failed)
	switch s := r.session; {
	case s == nil:
		r.env.release(r)
	case s.head == r:
		s.advance()
	}
}

// count adds the finished command to the statistics.
func (r *Request) count(failed bool) {
	st := r.env.Stats
	st.Commands++
	if failed {
		st.Errors++
	}
	if r.writes != 0 {
		r.wrote()
	}
	cmd := r.cmd
	if cmd == nil {
		return
	}
	st.Calls[cmd.ID]++
	if failed {
		st.Failed[cmd.ID]++
	}
	class := stats.Write
	if r.merge != nil {
		class = stats.Multi
	} else if cmd.ReadOnly() {
		class = stats.Read
	}
	st.Latency[class].Observe(uint64(r.env.Now-r.at) / 1000)
}

// Fail implements backend.Receiver.
func (r *Request) Fail(part int, cause backend.Cause) {
	if r.merge != nil && (cause == backend.Lost || cause == backend.TimedOut || cause == backend.Garbled) {
		r.parts[part].unknown = true
	}
	text := causeText(cause)
	if r.cmd != nil && r.cmd.ReadOnly() {
		// Nothing to be unsure about.
		text, _, _ = strings.Cut(text, "; ")
	}
	if r.reads == replicas.Only {
		text = errNoReplica
	}
	r.fail(part, text)
}

// fail answers a part with an error.
func (r *Request) fail(part int, text string) {
	var line [256]byte
	r.Reply(part, resp.AppendError(line[:0], text))
}

// Resend implements backend.Receiver: it routes a request that was given back
// by the table in force. Requests of one client stay in order: while one of
// them waits for a hold, so do those after it, and so does the client.
func (r *Request) Resend(part int, command []byte, again backend.Again) {
	group, refusal := r.route(part, command)
	if s := r.session; s != nil && (refusal == router.Held || refusal == router.OK && s.parked > 0) {
		refusal = router.Held
		s.parked++
		s.wait()
	}
	switch refusal {
	case router.OK:
		if r.skip > 0 {
			r.lane.To(group).AddBlockAgain(command, r, r.skip, again)
			break
		}
		if r.reads != replicas.Master {
			r.readAgain(group, part, command, again)
			break
		}
		r.lane.To(group).AddAgain(command, r, part, again)
	case router.Held:
		r.env.parked = append(r.env.parked, parked{r, part, append([]byte(nil), command...), again})
	case router.Unassigned:
		r.fail(part, errNotServed)
	case groupGone:
		r.fail(part, errGroupGone)
	default:
		r.Fail(part, backend.Moved)
	}
}

// More refusals, of requests that were given back.
const (
	scattered router.Refusal = 100 + iota // keys of one part have several owners now
	groupGone
)

func (r *Request) route(part int, command []byte) (group int, refusal router.Refusal) {
	t := r.env.Table
	switch r.how {
	case bySlot:
		return t.Route(r.slot)
	case byGroup:
		group := t.GroupByID(r.parts[part].group)
		if group < 0 {
			return group, groupGone
		}
		if t.AllHeld(group) {
			return group, router.Held
		}
		return group, router.OK
	}
	var framer resp.Framer
	args, n, err := framer.Next(command)
	if n == 0 || err != nil {
		return 0, scattered
	}
	keys, err := r.cmd.Keys(args, nil)
	if err != nil || len(keys) == 0 {
		return 0, scattered
	}
	for i, k := range keys {
		owner, refusal := t.Route(t.Slot(args[k]))
		if refusal != router.OK {
			return owner, refusal
		}
		if i > 0 && owner != group {
			return 0, scattered
		}
		group = owner
	}
	return group, router.OK
}
