package session

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"shardis/proxy/command"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// Commands of class fan-out: asked of several masters, merged into one reply by
// the rule of the command table. Who is asked:
//
//	keys and key counts   the groups that own slots
//	scripts, functions    all groups: one without slots may get some later
//	MergeOne              the first owner: all would say the same
//
// A group may hold keys of slots it does not own: copies of a move under way, or
// what is left after one. Replies with names of keys are therefore filtered, by
// the table under which the request was sent: a slot that changes hands between
// two parts is then counted for exactly one of them. DBSIZE can not be filtered.
//
// Holds: FLUSHALL and FLUSHDB wait for every hold. The others only read, which a
// hand-over does not mind; they wait while all slots of a group are held, since
// then its master may be about to be replaced, or this proxy about to be evicted.

// gatherHandlers are all commands of that class, and SCAN.
var gatherHandlers = makeGatherHandlers()

func makeGatherHandlers() map[string]handler {
	m := map[string]handler{"scan": (*Session).scan}
	for id := range command.Count() {
		if c := command.ByID(uint16(id)); c != nil && c.Class == command.ClassFanOut {
			m[c.Name] = (*Session).gather
		}
	}
	return m
}

// changesData reports whether a fan-out writes keys, so that it must wait for holds.
func changesData(cmd *command.Command) bool {
	return cmd.Name == "flushall" || cmd.Name == "flushdb"
}

func (s *Session) gather(cmd *command.Command, args [][]byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	groups := s.owners()
	if changesData(cmd) && t.AnyHeld() || slices.ContainsFunc(groups, t.AllHeld) {
		return s.noRoute(cmd, router.Held)
	}
	switch name := cmd.Container(); {
	case len(groups) == 0:
		return s.noRoute(cmd, router.Unassigned)
	case cmd.Merge == command.MergeOne:
		groups = groups[:1]
	case name == "script" || name == "function":
		groups = allGroups(t)
	}
	r := s.ask(cmd, gatherMerges(cmd.Merge, t, s.Proto()))
	encoded := resp.AppendCommand(nil, args)
	for _, g := range groups {
		r.to(g, encoded)
	}
	return true
}

func allGroups(t *router.Table) []int {
	groups := make([]int, len(t.Groups))
	for i := range groups {
		groups[i] = i
	}
	return groups
}

// gatherMerges gives the function for each rule. t is the table of the request,
// proto the protocol in which it came: the client may have changed it since.
func gatherMerges(rule command.Merge, t *router.Table, proto int) func(*Request, []byte) []byte {
	switch rule {
	case command.MergeSum:
		return mergeSum
	case command.MergeOK:
		return mergeOK
	case command.MergeMin:
		return mergeMin
	case command.MergeAnyOK:
		return mergeAny
	case command.MergeEach:
		return mergeEach
	case command.MergeUnion:
		return func(r *Request, dst []byte) []byte { return mergeUnion(r, dst, t) }
	case command.MergePick:
		return func(r *Request, dst []byte) []byte { return mergePick(r, dst, t, proto) }
	default:
		return mergeFirst
	}
}

// mergeFirst answers with the first group's reply, when all succeed.
func mergeFirst(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	return append(dst, r.reply(0)...)
}

// mergeAny answers with the first success; with an error when there is none.
func mergeAny(r *Request, dst []byte) []byte {
	for i := range r.parts {
		if reply := r.reply(i); reply[0] != '-' {
			return append(dst, reply...)
		}
	}
	return append(dst, r.reply(0)...)
}

// mergeMin answers with the smallest integer.
func mergeMin(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	least := 0
	for i := range r.parts {
		kind, n, _, ok := resp.Header(r.reply(i))
		if !ok || kind != ':' {
			return resp.AppendError(dst, errMerge)
		}
		if i == 0 || n < least {
			least = n
		}
	}
	return resp.AppendInt(dst, int64(least))
}

// mergeEach takes, at each place of arrays of integers, the smallest: a script
// exists when it does in all groups.
func mergeEach(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	var least []int
	for i := range r.parts {
		reply := r.reply(i)
		kind, n, size, ok := resp.Header(reply)
		if !ok || kind != '*' || i > 0 && n != len(least) {
			return resp.AppendError(dst, errMerge)
		}
		for j := range n {
			reply = reply[size:]
			var v int
			kind, v, size, ok = resp.Header(reply)
			if !ok || kind != ':' {
				return resp.AppendError(dst, errMerge)
			}
			if i == 0 {
				least = append(least, v)
			} else {
				least[j] = min(least[j], v)
			}
		}
	}
	dst = resp.AppendArray(dst, len(least))
	for _, v := range least {
		dst = resp.AppendInt(dst, int64(v))
	}
	return dst
}

// mergeUnion joins arrays of keys, without those that a group does not own.
func mergeUnion(r *Request, dst []byte, t *router.Table) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	var keys []byte
	total := 0
	for i := range r.parts {
		n := 0
		var ok bool
		if keys, n, ok = appendOwned(keys, r.reply(i), t, t.GroupByID(r.parts[i].group)); !ok {
			return resp.AppendError(dst, errMerge)
		}
		total += n
	}
	dst = resp.AppendArray(dst, total)
	return append(dst, keys...)
}

// appendOwned appends the elements of an array of keys that group owns.
func appendOwned(dst, array []byte, t *router.Table, group int) (kept []byte, n int, ok bool) {
	kind, count, size, ok := resp.Header(array)
	if !ok || kind != '*' {
		return dst, 0, false
	}
	array = array[size:]
	for range count {
		kind, length, size, ok := resp.Header(array)
		if !ok || kind != '$' || length < 0 || len(array) < size+length+2 {
			return dst, n, false
		}
		if t.Owner(t.Slot(array[size:size+length])) == group {
			dst = append(dst, array[:size+length+2]...)
			n++
		}
		array = array[size+length+2:]
	}
	return dst, n, true
}

// mergePick answers with one of the keys the groups returned, at random.
func mergePick(r *Request, dst []byte, t *router.Table, proto int) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	var keys []int
	for i := range r.parts {
		kind, length, size, ok := resp.Header(r.reply(i))
		if !ok || kind != '$' || length < 0 {
			continue // nil: the group has no keys
		}
		key := r.reply(i)[size : size+length]
		if t.Owner(t.Slot(key)) == t.GroupByID(r.parts[i].group) {
			keys = append(keys, i)
		}
	}
	if len(keys) == 0 {
		return resp.AppendNull(dst, proto)
	}
	return append(dst, r.reply(keys[rand.IntN(len(keys))])...)
}

// scan is SCAN: one group's part of it. See cursor.go.
func (s *Session) scan(cmd *command.Command, args [][]byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	number, ok := parseCursor(args[1])
	if !ok {
		s.refuse(cmd, resp.AppendError(s.buffer(), "ERR invalid cursor"))
		return true
	}
	log := &s.env.Local.scans
	point := log.decode(number)
	group := t.GroupByID(point.group)
	if group < 0 {
		if len(s.owners()) == 0 {
			return s.noRoute(cmd, router.Unassigned)
		}
		s.countLocal(cmd)
		s.reply(append(s.buffer(), "*2\r\n$1\r\n0\r\n*0\r\n"...))
		return true
	}
	if t.AllHeld(group) {
		return s.noRoute(cmd, router.Held)
	}
	r := s.ask(cmd, func(r *Request, dst []byte) []byte { return mergeScan(r, dst, t, log, point) })
	sent := append([][]byte(nil), args...)
	sent[1] = strconv.AppendUint(nil, point.master, 10)
	r.to(group, resp.AppendCommand(nil, sent))
	return true
}

func mergeScan(r *Request, dst []byte, t *router.Table, log *scanLog, point scanPoint) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	reply := r.reply(0)
	kind, n, size, ok := resp.Header(reply)
	if !ok || kind != '*' || n != 2 {
		return resp.AppendError(dst, errMerge)
	}
	reply = reply[size:]
	kind, length, size, ok := resp.Header(reply)
	if !ok || kind != '$' || length < 0 || len(reply) < size+length+2 {
		return resp.AppendError(dst, errMerge)
	}
	master, ok := parseCursor(reply[size : size+length])
	if !ok {
		return resp.AppendError(dst, errMerge)
	}
	keys, count, ok := appendOwned(nil, reply[size+length+2:], t, t.GroupByID(point.group))
	if !ok {
		return resp.AppendError(dst, errMerge)
	}
	next, ok := log.encode(log.advance(point, master))
	if !ok {
		return resp.AppendError(dst, "ERR the cursor of group "+point.group+" is too large for the proxy")
	}
	dst = resp.AppendArray(dst, 2)
	dst = resp.AppendBulkString(dst, strconv.FormatUint(next, 10))
	dst = resp.AppendArray(dst, count)
	return append(dst, keys...)
}
