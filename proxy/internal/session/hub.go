package session

import (
	"bytes"
	"slices"

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
// hears nothing of it; what somebody publishes through another proxy just then
// may pass it by.
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
}

// feed is the subscriptions on one node.
type feed struct {
	hub      *hub
	node     string
	pipeline *backend.Pipeline
	legs     map[*leg]struct{}
	asked    int64 // when it was asked last whether it is there
}

// topic is one channel or pattern that clients of the loop want.
type topic struct {
	kind    topicKind
	name    string
	all     bool              // on all groups
	members map[*Session]bool // true: told that it is subscribed
	legs    []*leg
	waiting []confirmation
}

// confirmation is a part of a request that is answered when a topic is settled.
type confirmation struct {
	request *Request
	part    int
}

// leg is a topic on one node.
type leg struct {
	topic *topic
	feed  *feed
	state legState
	over  bool // not wanted any more
}

type legState uint8

const (
	legAsked  legState = iota
	legOn              // the node confirmed
	legFailed          // out of reach; a topic of all groups goes on trying
)

const feedPing = int64(5e9)

// onAll reports whether a topic is to be on all groups.
func onAll(kind topicKind, name []byte) bool {
	return kind == ofPattern || kind == ofChannel && (bytes.HasPrefix(name, []byte("__keyspace@")) || bytes.HasPrefix(name, []byte("__keyevent@")))
}

// join makes the session a member of a topic. It is told apart, later.
func (h *hub) join(s *Session, kind topicKind, name string) *topic {
	t := h.topics[kind][name]
	if t == nil {
		t = &topic{kind: kind, name: name, all: onAll(kind, []byte(name)), members: map[*Session]bool{}}
		if h.topics[kind] == nil {
			h.topics[kind] = map[string]*topic{}
		}
		h.topics[kind][name] = t
		h.place(t)
	}
	if _, is := t.members[s]; !is {
		t.members[s] = false
	}
	return t
}

// leave ends a membership.
func (h *hub) leave(s *Session, t *topic) {
	delete(t.members, s)
	if len(t.members) > 0 || h.topics[t.kind][t.name] != t {
		return
	}
	delete(h.topics[t.kind], t.name)
	for _, l := range t.legs {
		l.end()
	}
	t.legs = nil
}

// place gives a topic legs on the nodes it belongs to by the table in force.
// Those elsewhere go once the new ones are settled.
func (h *hub) place(t *topic) {
	var nodes []string
	table := h.env.Table
	if t.all {
		for i := range table.Groups {
			if table.Groups[i].Slots > 0 {
				nodes = append(nodes, table.Groups[i].Master)
			}
		}
	} else if owner := table.Owner(table.Slot([]byte(t.name))); owner >= 0 {
		nodes = append(nodes, table.Groups[owner].Master)
	}
	for _, l := range t.legs {
		l.over = !slices.Contains(nodes, l.feed.node)
	}
	for _, node := range nodes {
		if !slices.ContainsFunc(t.legs, func(l *leg) bool { return l.feed.node == node }) {
			l := &leg{topic: t, feed: h.feed(node)}
			t.legs = append(t.legs, l)
			l.feed.legs[l] = struct{}{}
			l.ask()
		}
	}
	t.settle()
}

// apply follows a new table.
func (h *hub) apply() {
	for _, topics := range h.topics {
		for _, t := range topics {
			h.place(t)
		}
	}
}

func (h *hub) feed(node string) *feed {
	f := h.feeds[node]
	if f == nil {
		f = &feed{hub: h, node: node, legs: map[*leg]struct{}{}, asked: h.env.Now}
		f.pipeline = h.env.Pool.Feed(node, f)
		if h.feeds == nil {
			h.feeds = map[string]*feed{}
		}
		h.feeds[node] = f
	}
	return f
}

// tick closes feeds nobody needs and asks the others whether they are there.
func (h *hub) tick() {
	for node, f := range h.feeds {
		switch {
		case len(f.legs) == 0:
			h.env.Pool.CloseFeed(f.pipeline)
			delete(h.feeds, node)
		case h.env.Now-f.asked > feedPing:
			f.asked = h.env.Now
			f.pipeline.Add([]byte("*1\r\n$4\r\nPING\r\n"), nobody{}, 0, true)
		}
	}
}

// nobody takes answers that do not matter.
type nobody struct{}

func (nobody) Reply(int, []byte)                 {}
func (nobody) Resend(int, []byte, backend.Again) {}
func (nobody) Fail(int, backend.Cause)           {}

// ask subscribes on the node.
func (l *leg) ask() {
	l.state = legAsked
	l.feed.pipeline.Add(resp.AppendCommandStrings(nil, subscribeWords[l.topic.kind][0], l.topic.name), l, 0, true)
}

// end takes the topic off the node.
func (l *leg) end() {
	if _, there := l.feed.legs[l]; !there {
		return
	}
	delete(l.feed.legs, l)
	l.over = true
	l.feed.pipeline.Add(resp.AppendCommandStrings(nil, subscribeWords[l.topic.kind][1], l.topic.name), nobody{}, 0, true)
}

// gone reports whether an answer is no matter any more.
func (l *leg) gone() bool {
	_, there := l.feed.legs[l]
	return !there
}

// Reply implements backend.Receiver.
func (l *leg) Reply(_ int, reply []byte) {
	if l.gone() {
		return
	}
	l.state = legOn
	if reply[0] == '-' {
		l.state = legFailed
	}
	l.topic.settle()
}

// Resend implements backend.Receiver: the feed broke, see Lost.
func (l *leg) Resend(int, []byte, backend.Again) {}

// Fail implements backend.Receiver: the node is out of reach.
func (l *leg) Fail(int, backend.Cause) {
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
	reached, wanted := 0, 0
	for _, l := range t.legs {
		if l.over {
			continue
		}
		wanted++
		switch l.state {
		case legAsked:
			return
		case legOn:
			reached++
		}
	}
	if wanted > 0 {
		t.legs = slices.DeleteFunc(t.legs, func(l *leg) bool {
			if l.over {
				l.end()
			}
			return l.over
		})
	}
	if wanted > 0 && reached == 0 && !t.all {
		t.lose()
	}
	waiting := t.waiting
	t.waiting = nil
	for _, c := range waiting {
		if reached > 0 {
			c.request.Reply(c.part, okReply)
		} else {
			c.request.fail(c.part, errDown)
		}
	}
}

var okReply = []byte("+OK\r\n")

// lose closes the sessions that count on the topic.
func (t *topic) lose() {
	for s, told := range t.members {
		if told {
			s.Close(stats.SubscriptionLost)
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
	for l := range f.legs {
		if l.state == legOn && !l.over {
			l.topic.lose()
		}
		switch {
		case l.over: // a leg elsewhere took over
			delete(f.legs, l)
			l.topic.legs = slices.DeleteFunc(l.topic.legs, func(other *leg) bool { return other == l })
		default:
			l.ask()
		}
	}
}

// Message implements backend.Feed: it passes a message on to the members of its
// topic.
func (f *feed) Message(push []byte) {
	kind, name, ok := f.hub.addressee(push, f.node)
	if !ok {
		return
	}
	t := f.hub.topics[kind][string(name)]
	if t == nil {
		return
	}
	for s, told := range t.members {
		if told {
			s.push(push)
		}
	}
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
