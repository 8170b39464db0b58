package session

import (
	"bytes"
	"slices"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// Subscriptions of a loop. Its clients share one feed a node, and one
// subscription there for each channel or pattern, however many of them want it:
//
//	sessions ◄── topic "news" ── leg ──┐
//	sessions ◄── topic "log*" ── leg ──┼── feed of node A
//	                        └─── leg ──┼── feed of node B
//
// A channel lives on the group that owns its slot, where PUBLISH goes as well.
// Patterns, and the channels of keyspace events, which every node publishes by
// itself, are on all groups that own slots.
//
// A client's SUBSCRIBE is answered once the nodes have confirmed: whatever
// anybody publishes after that answer reaches it. When a slot changes hands the
// topic gets a leg on the new owner before it loses the old one, and the client
// hears nothing of it.
//
// A node whose feed breaks has forgotten its subscriptions, and messages may be
// lost. Clients of one Redis would notice that by losing their connection, and
// some rely on it (a cache that is kept fresh by messages is emptied then), so
// sessions with a topic there are closed; libraries connect and subscribe again.
// Topics of all groups then do with the nodes in reach, and get the others when
// they are back, so that one dead group does not keep patterns from working.
//
// Rejected: a feed for each client (10,000 subscribers are 10,000 connections to
// each node), passing messages between proxies (one more thing to keep alive,
// with no better promise), and subscribing again without telling.

// topicKind is what a topic is named by.
type topicKind uint8

const (
	ofChannel topicKind = iota
	ofPattern
	ofShard // a shard channel
	topicKinds
)

var subscribeWords = [topicKinds][2]string{{"subscribe", "unsubscribe"}, {"psubscribe", "punsubscribe"}, {"ssubscribe", "sunsubscribe"}}

// hub is the topics of one loop.
type hub struct {
	env    *Env
	topics [topicKinds]map[string]*topic
	feeds  map[string]*feed // by node
	slow   map[*Session]struct{}

	groups []int // scratch of place
	copied int   // bytes of messages in outputs since these were written last
}

// feed is the subscriptions on one node.
type feed struct {
	hub      *hub
	node     string
	pipeline *backend.Pipeline
	legs     map[*leg]struct{}
	asked    int64 // when it was asked last whether it is there
	used     int64 // when it was seen to have legs
}

// topic is one channel or pattern that clients of the loop want.
type topic struct {
	kind    topicKind
	name    string
	slot    topo.Slot
	all     bool // on all groups
	members map[*Session]membership
	legs    []*leg
	waiting []confirmation
}

// membership is how far a client's subscription to a topic has come.
type membership uint8

const (
	memberWaits     membership = iota // for the nodes
	memberConfirmed                   // by the nodes; other parts of its command are not yet
	memberTold                        // it has its answer, and gets messages
)

// confirmation is a part of a request that is answered when a topic is settled.
type confirmation struct {
	request *Request
	part    int
}

// leg is a topic on one node.
type leg struct {
	topic *topic
	feed  *feed
	group string // whose master the node is, or was
	state legState
	out   bool // its SUBSCRIBE is on its way
	over  bool // not wanted any more
}

type legState uint8

const (
	legAsked  legState = iota
	legOn              // the node confirmed
	legFailed          // out of reach; a topic of all groups goes on trying
)

const (
	// feedPing is how often a feed is asked for a sign of life.
	feedPing = int64(5e9)
	// feedIdle is for how long one without legs is kept, for the next client.
	feedIdle = int64(10e9)
	// flushCopied is how many bytes of messages may be copied before outputs are
	// written: a message for 10,000 clients is 10,000 times its size.
	flushCopied = 16 << 20
)

// onAll reports whether a topic is to be on all groups.
func onAll(kind topicKind, name []byte) bool {
	return kind == ofPattern || kind == ofChannel && (bytes.HasPrefix(name, []byte("__keyspace@")) || bytes.HasPrefix(name, []byte("__keyevent@")))
}

// join makes the session a member of a topic. It is told apart, later.
func (h *hub) join(s *Session, kind topicKind, name string) *topic {
	t := h.topics[kind][name]
	if t == nil {
		t = &topic{
			kind: kind, name: name, slot: h.env.Table.Slot([]byte(name)), all: onAll(kind, []byte(name)),
			members: map[*Session]membership{},
		}
		if h.topics[kind] == nil {
			h.topics[kind] = map[string]*topic{}
		}
		h.topics[kind][name] = t
	}
	if _, is := t.members[s]; !is {
		t.members[s] = memberWaits
		h.env.Stats.Subscriptions++
	}
	h.place(t)
	return t
}

// leave ends a membership.
func (h *hub) leave(s *Session, t *topic) {
	if _, is := t.members[s]; !is {
		return
	}
	h.env.Stats.Subscriptions--
	delete(t.members, s)
	if len(t.members) > 0 {
		return
	}
	delete(h.topics[t.kind], t.name)
	for _, l := range t.legs {
		l.end()
	}
	waiting := t.waiting
	t.legs, t.waiting = nil, nil
	for _, c := range waiting {
		c.request.fail(c.part, errDown) // of sessions that are ending
	}
}

// place gives a topic legs on the nodes it belongs to by the table in force.
// Those elsewhere go once the new ones are settled.
func (h *hub) place(t *topic) {
	table := h.env.Table
	h.groups = h.groups[:0]
	if t.all {
		for i := range table.Groups {
			if table.Groups[i].Slots > 0 {
				h.groups = append(h.groups, i)
			}
		}
	} else if owner := table.Owner(t.slot); owner >= 0 {
		h.groups = append(h.groups, owner)
	}
	for _, l := range t.legs {
		l.over = !slices.ContainsFunc(h.groups, func(g int) bool { return table.Groups[g].Master == l.feed.node })
	}
	for _, g := range h.groups {
		group := &table.Groups[g]
		i := slices.IndexFunc(t.legs, func(l *leg) bool { return l.feed.node == group.Master })
		if i < 0 {
			i = len(t.legs)
			l := &leg{topic: t, feed: h.feed(group.Master), state: legFailed}
			t.legs = append(t.legs, l)
			l.feed.legs[l] = struct{}{}
		}
		l := t.legs[i]
		l.group = group.ID
		if l.state == legFailed && !l.out {
			l.ask()
		}
	}
	t.settle()
}

// apply follows a new table.
func (h *hub) apply() {
	for _, topics := range h.topics {
		for _, t := range topics {
			if !h.placed(t) {
				h.place(t)
			}
		}
	}
}

// placed reports whether a topic of one group is where it belongs: with many
// topics and a new table for each hold, most are.
func (h *hub) placed(t *topic) bool {
	if t.all || len(t.legs) != 1 || t.legs[0].over || t.legs[0].state == legFailed {
		return false
	}
	owner := h.env.Table.Owner(t.slot)
	return owner >= 0 && h.env.Table.Groups[owner].Master == t.legs[0].feed.node && h.env.Table.Groups[owner].ID == t.legs[0].group
}

func (h *hub) feed(node string) *feed {
	f := h.feeds[node]
	if f == nil {
		f = &feed{hub: h, node: node, legs: map[*leg]struct{}{}, asked: h.env.Now, used: h.env.Now}
		f.pipeline = h.env.Pool.Feed(node, f)
		if h.feeds == nil {
			h.feeds = map[string]*feed{}
		}
		h.feeds[node] = f
	}
	return f
}

// tick closes feeds nobody needs, asks the others whether they are there, and
// closes subscribers that were slow for too long.
func (h *hub) tick() {
	for node, f := range h.feeds {
		if len(f.legs) > 0 {
			f.used = h.env.Now
		}
		switch {
		case h.env.Now-f.used > feedIdle:
			h.env.Pool.CloseFeed(f.pipeline)
			delete(h.feeds, node)
		case h.env.Now-f.asked > feedPing:
			f.asked = h.env.Now
			f.pipeline.Add([]byte("*1\r\n$4\r\nPING\r\n"), nobody{}, 0, true)
		}
	}
	for s := range h.slow {
		s.checkSlow()
	}
}

// nobody takes answers that do not matter.
type nobody struct{}

func (nobody) Reply(int, []byte)                 {}
func (nobody) Resend(int, []byte, backend.Again) {}
func (nobody) Fail(int, backend.Cause)           {}

// ask subscribes on the node.
func (l *leg) ask() {
	l.state, l.out = legAsked, true
	l.feed.pipeline.Add(resp.AppendCommandStrings(nil, subscribeWords[l.topic.kind][0], l.topic.name), l, 0, true)
}

// end takes the topic off the node.
func (l *leg) end() {
	if l.gone() {
		return
	}
	delete(l.feed.legs, l)
	l.over = true
	if l.out || l.state == legOn {
		l.feed.pipeline.Add(resp.AppendCommandStrings(nil, subscribeWords[l.topic.kind][1], l.topic.name), nobody{}, 0, true)
	}
}

// gone reports whether an answer is no matter any more.
func (l *leg) gone() bool {
	_, there := l.feed.legs[l]
	return !there
}

// Reply implements backend.Receiver.
func (l *leg) Reply(_ int, reply []byte) {
	l.out = false
	if l.gone() {
		return
	}
	l.state = legOn
	if reply[0] == '-' {
		l.state = legFailed
	}
	l.topic.settle()
}

// Resend implements backend.Receiver: the feed broke, Lost follows.
func (l *leg) Resend(int, []byte, backend.Again) { l.out = false }

// Fail implements backend.Receiver: the node is out of reach.
func (l *leg) Fail(int, backend.Cause) {
	l.out = false
	if l.gone() {
		return
	}
	if l.topic.all && !l.over {
		l.ask() // and again until it is back, or the table names another
	}
	l.state = legFailed
	l.topic.settle()
}

// settle answers those who wait for a topic, once no node has yet to confirm
// it, and leaves the nodes it is no longer on.
func (t *topic) settle() {
	reached, wanted, asked := 0, 0, 0
	for _, l := range t.legs {
		switch {
		case l.over:
			continue
		case l.state == legAsked:
			asked++
		case l.state == legOn:
			reached++
		}
		wanted++
	}
	if len(t.legs) > wanted {
		var kept []*leg
		for _, l := range t.legs {
			if l.over && (wanted > 0 && asked == 0 || t.succeeded(l)) {
				l.end()
			} else {
				kept = append(kept, l)
			}
		}
		t.legs = kept
	}
	if asked > 0 {
		return
	}
	waiting := t.waiting
	t.waiting = nil
	if reached == 0 && wanted > 0 && !t.all {
		t.lose()
	}
	for _, c := range waiting {
		if reached == 0 {
			c.request.fail(c.part, errDown)
			continue
		}
		t.confirm(c.request.session)
		c.request.Reply(c.part, okReply)
	}
}

// succeeded reports whether another master of the same group has taken over
// from a leg. The old one may be its replica now and repeat what is published.
func (t *topic) succeeded(old *leg) bool {
	return slices.ContainsFunc(t.legs, func(l *leg) bool { return !l.over && l.state == legOn && l.group == old.group })
}

// confirm notes that a client's subscription holds from now on.
func (t *topic) confirm(s *Session) {
	if s == nil {
		return
	}
	if state, is := t.members[s]; is {
		t.members[s] = max(state, memberConfirmed)
	}
}

var okReply = []byte("+OK\r\n")

// lose closes the sessions that count on the topic.
func (t *topic) lose() {
	for s, state := range t.members {
		if state != memberWaits {
			s.Close(stats.SubscriptionLost)
			s.unsubscribeAll()
		}
	}
}

// settled reports whether the topic is subscribed wherever it can be.
func (t *topic) settled() bool {
	for _, l := range t.legs {
		if !l.over && l.state != legOn && !(t.all && l.state == legFailed) {
			return false
		}
	}
	return len(t.legs) > 0
}

// Lost implements backend.Feed: what the node sent meanwhile is lost.
func (f *feed) Lost() {
	var on []*leg
	for l := range f.legs {
		if l.state == legOn && !l.over {
			on = append(on, l)
		}
		l.state = legFailed
	}
	for _, l := range on {
		l.topic.lose()
	}
	for l := range f.legs {
		switch t := l.topic; {
		case l.over: // a leg elsewhere takes over
			delete(f.legs, l)
			t.legs = slices.DeleteFunc(t.legs, func(other *leg) bool { return other == l })
		case !l.out:
			l.ask()
		}
	}
}

// Message implements backend.Feed: it passes a message on to the members of its
// topic.
func (f *feed) Message(push []byte) {
	h := f.hub
	kind, name, ok := h.addressee(push, f.node)
	if !ok {
		return
	}
	t := h.topics[kind][string(name)]
	if t == nil || !t.hears(f) {
		return
	}
	for s, state := range t.members {
		if state == memberTold {
			s.push(push)
			h.copied += len(push)
		}
	}
	if h.copied > flushCopied && h.env.Flush != nil {
		h.copied = 0
		h.env.Flush()
	}
}

// hears reports whether a topic takes messages from a feed. One that it has left
// may still deliver what was published before, but not when another master has
// the group: see succeeded.
func (t *topic) hears(f *feed) bool {
	for _, l := range t.legs {
		if l.feed == f {
			return true
		}
	}
	return slices.ContainsFunc(f.hub.env.Table.Groups, func(g router.Group) bool { return g.Master == f.node })
}

// addressee reads whom a message is for:
//
//	message channel payload | smessage channel payload | pmessage pattern channel payload
//
// Keyspace events of a key that the node's group does not own tell of a copy
// that is being made, or removed, and are for nobody.
func (h *hub) addressee(push []byte, node string) (kind topicKind, name []byte, ok bool) {
	var words [4][]byte
	_, n, size, ok := resp.Header(push)
	if !ok || n < 3 || n > 4 {
		return 0, nil, false
	}
	rest := push[size:]
	for i := range n {
		_, length, size, ok := resp.Header(rest)
		if !ok || size+length+2 > len(rest) {
			return 0, nil, false
		}
		words[i], rest = rest[size:size+length], rest[size+length+2:]
	}
	channel := words[1]
	switch words[0][0] {
	case 'p':
		kind, channel = ofPattern, words[2]
	case 's':
		kind = ofShard
	}
	var key []byte
	switch {
	case kind == ofShard:
	case bytes.HasPrefix(channel, []byte("__keyspace@")):
		_, key, _ = bytes.Cut(channel, []byte("__:"))
	case bytes.HasPrefix(channel, []byte("__keyevent@")):
		key = words[n-1]
	}
	if key != nil && !h.owns(node, h.env.Table, key) {
		return 0, nil, false
	}
	return kind, words[1], true
}

func (h *hub) owns(node string, t *router.Table, key []byte) bool {
	owner := t.Owner(t.Slot(key))
	return owner >= 0 && t.Groups[owner].Master == node
}
