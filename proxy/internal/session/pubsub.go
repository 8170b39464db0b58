package session

import (
	"maps"
	"slices"

	"shardis/proxy/command"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// Publish and subscribe, as clients see it; hub.go has what is behind it.
//
// A session reads no further command until its SUBSCRIBE is answered, so that
// what it publishes next reaches it. Messages go to the output between two
// replies. In RESP2 they look like replies, so a client with subscriptions may
// send few other commands, as on Redis; in RESP3 they are pushes. The bytes
// differ in the first one alone.
//
// PUBLISH answers with how many connections of proxies the group's master passed
// the message to, not how many clients they have: above 0 when anybody listens.
// PUBSUB NUMSUB counts the same.

var pubsubHandlers = map[string]handler{
	"subscribe":            (*Session).subscribe,
	"psubscribe":           (*Session).subscribe,
	"ssubscribe":           (*Session).subscribe,
	"unsubscribe":          (*Session).unsubscribe,
	"punsubscribe":         (*Session).unsubscribe,
	"sunsubscribe":         (*Session).unsubscribe,
	"pubsub|channels":      (*Session).pubsub,
	"pubsub|numpat":        (*Session).pubsub,
	"pubsub|numsub":        (*Session).pubsub,
	"pubsub|shardchannels": (*Session).pubsub,
	"pubsub|shardnumsub":   (*Session).pubsub,
}

// subscriptions are the topics of one session.
type subscriptions struct {
	topics [topicKinds]map[string]*topic
	over   int64 // since when more than the soft limit waits, 0: it does not
}

// count is the number in a confirmation: shard channels are counted apart.
func (u *subscriptions) count(kind topicKind) int {
	switch {
	case u == nil:
		return 0
	case kind == ofShard:
		return len(u.topics[ofShard])
	}
	return len(u.topics[ofChannel]) + len(u.topics[ofPattern])
}

// Subscriptions is how many channels, patterns and shard channels a client has.
func (s *Session) Subscriptions() (channels, patterns, shards int) {
	if s.subs == nil {
		return 0, 0, 0
	}
	return len(s.subs.topics[ofChannel]), len(s.subs.topics[ofPattern]), len(s.subs.topics[ofShard])
}

// confined reports whether the client may send few commands only: RESP2 has
// no other way to tell messages from replies.
func (s *Session) confined() bool {
	return s.proto == 2 && s.subs.count(ofChannel)+s.subs.count(ofShard) > 0
}

// allowedConfined are the commands such a client may send.
func allowedConfined(cmd *command.Command) bool {
	switch cmd.Name {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping", "quit", "reset":
		return true
	}
	return false
}

func kindOf(cmd *command.Command) topicKind {
	switch cmd.Name[0] {
	case 'p':
		return ofPattern
	case 's':
		if cmd.Name[1] == 's' || cmd.Name[1] == 'u' && cmd.Name[2] == 'n' {
			return ofShard
		}
	}
	return ofChannel
}

// subscribe is SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE. It gives one answer for
// each name.
func (s *Session) subscribe(cmd *command.Command, args [][]byte) bool {
	kind, h := kindOf(cmd), &s.env.Local.hub
	if s.env.Table == nil {
		return s.noTable(cmd)
	}
	for _, name := range args[1:] {
		if onAll(kind, name) {
			if len(s.owners()) == 0 {
				return s.noRoute(cmd, router.Unassigned)
			}
			continue
		}
		if _, refusal := s.env.Table.Route(s.env.Table.Slot(name)); refusal != router.OK {
			return s.noRoute(cmd, refusal)
		}
	}
	if s.subs == nil {
		s.subs = &subscriptions{}
	}
	u := s.subs
	topics, counts := make([]*topic, len(args)-1), make([]int, len(args)-1)
	r, silent := s.ask(cmd, nil), s.mute != speak
	r.silent = false // what CLIENT REPLY asks for does not concern pushes
	for i, name := range args[1:] {
		t := h.join(s, kind, string(name))
		if u.topics[kind] == nil {
			u.topics[kind] = map[string]*topic{}
		}
		u.topics[kind][t.name] = t
		topics[i], counts[i] = t, u.count(kind)
		r.own()
	}
	word, proto := subscribeWords[kind][0], s.Proto()
	r.merge = func(r *Request, dst []byte) []byte {
		for i, t := range topics {
			if reply := r.reply(i); reply[0] == '-' {
				s.drop(t)
				if !silent {
					dst = append(dst, reply...)
				}
				continue
			}
			if _, is := t.members[s]; is {
				t.members[s] = memberTold
			}
			dst = appendConfirmation(dst, proto, word, t.name, counts[i])
		}
		return dst
	}
	// Answers may come at once, and the last of them ends the request.
	for i, t := range topics {
		if t.settled() {
			t.confirm(s)
			r.Reply(i, okReply)
		} else {
			t.waiting = append(t.waiting, confirmation{r, i})
		}
	}
	if s.head != nil {
		s.pause |= pauseLane
	}
	return true
}

func appendConfirmation(dst []byte, proto int, word, name string, count int) []byte {
	dst = appendPush(dst, proto, 3)
	dst = resp.AppendBulkString(dst, word)
	dst = resp.AppendBulkString(dst, name)
	return resp.AppendInt(dst, int64(count))
}

// appendPush appends the header of a push of n elements.
func appendPush(dst []byte, proto, n int) []byte {
	start := len(dst)
	dst = resp.AppendArray(dst, n)
	if proto == 3 {
		dst[start] = '>'
	}
	return dst
}

// drop ends one subscription.
func (s *Session) drop(t *topic) {
	if s.subs != nil && s.subs.topics[t.kind][t.name] == t {
		delete(s.subs.topics[t.kind], t.name)
	}
	s.env.Local.hub.leave(s, t)
}

// unsubscribe is UNSUBSCRIBE, PUNSUBSCRIBE and SUNSUBSCRIBE: of the names given,
// or all.
func (s *Session) unsubscribe(cmd *command.Command, args [][]byte) bool {
	kind, proto := kindOf(cmd), s.Proto()
	var names []string
	for _, a := range args[1:] {
		names = append(names, string(a))
	}
	word, b := subscribeWords[kind][1], s.buffer()
	if len(args) == 1 && s.subs != nil {
		names = slices.Collect(maps.Keys(s.subs.topics[kind]))
	}
	for _, name := range names {
		if s.subs != nil {
			if t := s.subs.topics[kind][name]; t != nil {
				s.drop(t)
			}
		}
		b = appendConfirmation(b, proto, word, name, s.subs.count(kind))
	}
	if len(names) == 0 {
		b = appendPush(b, proto, 3)
		b = resp.AppendBulkString(b, word)
		b = resp.AppendNull(b, proto)
		b = resp.AppendInt(b, int64(s.subs.count(kind)))
	}
	s.countOwn(cmd)
	mute := s.mute
	s.mute = speak // what CLIENT REPLY asks for does not concern pushes
	s.reply(b)
	s.mute = mute
	return true
}

// unsubscribeAll ends all subscriptions without a word.
func (s *Session) unsubscribeAll() {
	u, h := s.subs, &s.env.Local.hub
	if u == nil {
		return
	}
	s.subs = nil
	delete(h.slow, s)
	for _, topics := range u.topics {
		for _, t := range topics {
			h.leave(s, t)
		}
	}
}

// push gives the client a message. One that does not read its messages is
// closed, as on Redis: they have no end, and others must not wait for it.
func (s *Session) push(message []byte) {
	if s.closed || s.pause&pauseClosing != 0 {
		return
	}
	start := len(s.out)
	s.send(message)
	if s.proto == 2 {
		s.out[start] = '*'
	}
	s.env.Stats.Messages++
	if s.OutputPending() > s.env.Config.SubscriberSoft {
		s.checkSlow()
	}
}

// checkSlow closes a subscriber that has too much unread, or much for too long.
func (s *Session) checkSlow() {
	u, h, cfg, pending := s.subs, &s.env.Local.hub, &s.env.Config, s.OutputPending()
	switch {
	case u == nil:
		delete(h.slow, s)
	case pending <= cfg.SubscriberSoft || u.count(ofChannel)+u.count(ofShard) == 0:
		u.over = 0
		delete(h.slow, s)
	case pending > cfg.SubscriberHard, u.over != 0 && s.env.Now-u.over > int64(cfg.SubscriberTime):
		s.Close(stats.OutputLimit)
		s.Abort = true
	case u.over == 0:
		u.over = s.env.Now
		if h.slow == nil {
			h.slow = map[*Session]struct{}{}
		}
		h.slow[s] = struct{}{}
	}
}

// publish is PUBLISH and SPUBLISH: to the group of the channel's slot.
func (s *Session) publish(cmd *command.Command, args [][]byte, raw []byte) bool {
	if s.env.Table == nil {
		return s.noTable(cmd)
	}
	return s.sendToSlot(cmd, s.env.Table.Slot(args[1]), args, raw)
}

// pubsub asks all groups: a channel is on one of them, or alike on all.
func (s *Session) pubsub(cmd *command.Command, args [][]byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	groups := s.owners()
	if len(groups) == 0 {
		return s.noRoute(cmd, router.Unassigned)
	}
	var merge func(*Request, []byte) []byte
	switch cmd.Name {
	case "pubsub|numpat":
		merge = mergeMost
	case "pubsub|numsub", "pubsub|shardnumsub":
		merge = mergeCounts
	default:
		merge = mergeNames
	}
	r := s.ask(cmd, merge)
	encoded := resp.AppendCommand(nil, args)
	for _, g := range groups {
		r.to(g, encoded)
	}
	return true
}

// mergeMost answers with the largest number.
func mergeMost(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	most := 0
	for i := range r.parts {
		_, n, _, _ := resp.Header(r.reply(i))
		most = max(most, n)
	}
	return resp.AppendInt(dst, int64(most))
}

// mergeNames joins arrays of strings, each string once.
func mergeNames(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	seen := map[string]bool{}
	var all []byte
	for i := range r.parts {
		eachElement(r.reply(i), func(element []byte) {
			if !seen[string(element)] {
				seen[string(element)] = true
				all = append(all, element...)
			}
		})
	}
	return append(resp.AppendArray(dst, len(seen)), all...)
}

// mergeCounts takes the largest of the numbers at each place of name, number, …
func mergeCounts(r *Request, dst []byte) []byte {
	if e := r.firstError(); e != nil {
		return append(dst, e...)
	}
	var names [][]byte
	var most []int
	for i := range r.parts {
		at := 0
		eachElement(r.reply(i), func(element []byte) {
			place := at / 2
			if at%2 == 0 {
				if place == len(names) {
					names, most = append(names, element), append(most, 0)
				}
			} else {
				_, n, _, _ := resp.Header(element)
				most[place] = max(most[place], n)
			}
			at++
		})
	}
	dst = resp.AppendArray(dst, 2*len(names))
	for i, name := range names {
		dst = resp.AppendInt(append(dst, name...), int64(most[i]))
	}
	return dst
}

// eachElement calls f with each element of an array or map reply.
func eachElement(reply []byte, f func(element []byte)) {
	_, n, size, ok := resp.Header(reply)
	if !ok {
		return
	}
	if reply[0] == '%' {
		n *= 2
	}
	for rest := reply[size:]; n > 0; n-- {
		size := resp.Skip(rest)
		if size == 0 {
			return
		}
		f(rest[:size])
		rest = rest[size:]
	}
}
