package session

import (
	"bytes"

	"shardis/proxy/command"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// splitter sorts the keys of one command by group. Its memory serves one
// command after the other.
type splitter struct {
	partOf []int    // by group: its part, -1 without one
	groups []int    // by part
	first  []int    // by part: its first key
	last   []int    // by part: its last key
	next   []int    // by key: the next key of the same part, -1 at the end
	parts  []uint16 // by key
	bytes  []int    // by part: bytes of its arguments
}

func (x *splitter) grow(groups int) {
	for len(x.partOf) < groups {
		x.partOf = append(x.partOf, -1)
	}
}

// reset forgets the command at hand.
func (x *splitter) reset() {
	const keep = 4096
	for _, g := range x.groups {
		x.partOf[g] = -1
	}
	x.groups, x.first, x.last, x.bytes = x.groups[:0], x.first[:0], x.last[:0], x.bytes[:0]
	if cap(x.next) > keep {
		x.next, x.parts = nil, nil
	}
	x.next, x.parts = x.next[:0], x.parts[:0]
}

// add puts the next key into the part of group.
func (x *splitter) add(group, size int) {
	key := len(x.next)
	part := x.partOf[group]
	if part < 0 {
		part = len(x.groups)
		x.partOf[group] = part
		x.groups = append(x.groups, group)
		x.first = append(x.first, key)
		x.last = append(x.last, key)
		x.bytes = append(x.bytes, 0)
	} else {
		x.next[x.last[part]] = key
		x.last[part] = key
	}
	x.bytes[part] += size
	x.next = append(x.next, -1)
	x.parts = append(x.parts, uint16(part))
}

// split sends a command with keys of any slots: each group gets a command with
// its keys. When one group has them all, the command is passed on as it is.
func (s *Session) split(cmd *command.Command, args [][]byte, raw []byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	if (len(args)-1)%cmd.Step != 0 {
		s.refuse(cmd, command.AppendErrArity(s.buffer(), cmd))
		return true
	}
	x := &s.env.split
	defer x.reset()
	for i := 1; i < len(args); i += cmd.Step {
		group, refusal := t.Route(t.Slot(args[i]))
		if refusal != router.OK {
			return s.noRoute(cmd, refusal)
		}
		size := 0
		for _, a := range args[i : i+cmd.Step] {
			size += len(a) + 16
		}
		x.add(group, size)
	}
	var slots replicas.Slots
	for i := 1; i < len(args); i += cmd.Step {
		slot := t.Slot(args[i])
		s.env.Stats.Slots[slot]++
		slots |= replicas.SlotSet(uint16(slot))
	}
	r := s.env.newRequest(s, cmd)
	r.how = byKeys
	if len(x.groups) == 1 {
		r.left = 1
		s.enqueue(r)
		s.queueByMode(r, slots, x.groups[0], args, raw)
		return true
	}
	r.reads = s.readMode(r, slots)
	r.merge = merges[cmd.Merge]
	r.order = append(r.order, x.parts...)
	r.left = len(x.groups)
	s.enqueue(r)
	for i := range x.groups {
		s.sendPart(r, x, i, args)
	}
	return true
}

// sendPart queues one part of a split command.
func (s *Session) sendPart(r *Request, x *splitter, i int, args [][]byte) {
	group, step := x.groups[i], r.cmd.Step
	keys := 0
	for k := x.first[i]; k >= 0; k = x.next[k] {
		keys++
	}
	r.parts = append(r.parts, part{group: s.env.Table.Groups[group].ID, keys: keys})
	p, movable := r.target(group)
	if p == nil {
		r.fail(i, errNoReplica)
		return
	}
	b := p.Begin(x.bytes[i] + len(args[0]) + 32)
	b = resp.AppendArray(b, 1+keys*step)
	b = resp.AppendBulk(b, args[0])
	for k := x.first[i]; k >= 0; k = x.next[k] {
		for _, a := range args[1+k*step : 1+(k+1)*step] {
			b = resp.AppendBulk(b, a)
		}
	}
	p.End(b, r, i, r.cmd.ReadOnly())
	if movable {
		p.Movable()
	}
	s.env.Stats.BackendRequests++
	if p.Full() {
		s.pause |= pausePipeline
		p.Notify(s)
	}
}

// merges builds the reply of split commands from complete parts.
var merges = map[command.Merge]func(*Request, []byte) []byte{
	command.MergeArray: mergeArray,
	command.MergeSum:   mergeSum,
	command.MergeOK:    mergeOK,
}

// merge appends the reply of a request of several parts to the output.
func (s *Session) merge(r *Request) {
	s.out = s.env.Buffers.Grow(s.out, len(r.buf)+64)
	before := len(s.out)
	s.out = r.merge(r, s.out)
	s.sent(len(s.out) - before)
}

// reply is what a part's group answered.
func (r *Request) reply(part int) []byte {
	p := &r.parts[part]
	return r.buf[p.start:p.end]
}

// firstError returns the reply of the first part that failed, nil if none did.
func (r *Request) firstError() []byte {
	if !r.failed {
		return nil
	}
	for i := range r.parts {
		if reply := r.reply(i); reply[0] == '-' {
			return reply
		}
	}
	return nil
}

// errMerge answers when a group's reply has not the shape that the command's
// replies have.
const errMerge = "ERR a group sent a reply of an unexpected type"

// mergeArray puts the elements of the parts' arrays into the order of the keys.
func mergeArray(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	for i := range r.parts {
		p := &r.parts[i]
		kind, n, size, ok := resp.Header(r.buf[p.start:p.end])
		if !ok || kind != '*' || n != p.keys {
			return resp.AppendError(dst, errMerge)
		}
		p.start += size // from here on the next element not yet taken
	}
	dst = resp.AppendArray(dst, len(r.order))
	for _, i := range r.order {
		p := &r.parts[i]
		n := resp.Skip(r.buf[p.start:p.end])
		dst = append(dst, r.buf[p.start:p.start+n]...)
		p.start += n
	}
	return dst
}

// mergeSum adds the parts' integers.
func mergeSum(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	sum := 0
	for i := range r.parts {
		kind, n, _, ok := resp.Header(r.reply(i))
		if !ok || kind != ':' {
			return resp.AppendError(dst, errMerge)
		}
		sum += n
	}
	return resp.AppendInt(dst, int64(sum))
}

// mergeOK answers OK when all parts are. When some are not, it answers with the
// first error and names the groups on which keys were set, or may have been.
func mergeOK(r *Request, dst []byte) []byte {
	e := r.firstError()
	if e == nil {
		return resp.AppendOK(dst)
	}
	dst = append(dst, bytes.TrimRight(e, "\r\n")...)
	applied := false
	for i := range r.parts {
		if p := &r.parts[i]; r.reply(i)[0] != '-' || p.unknown {
			if applied {
				dst = append(dst, ", "...)
			} else {
				dst = append(dst, " (applied, at least in part, on: "...)
			}
			applied = true
			dst = append(dst, p.group...)
			if p.unknown {
				dst = append(dst, " perhaps"...)
			}
		}
	}
	if applied {
		dst = append(dst, ')')
	}
	return append(dst, '\r', '\n')
}
