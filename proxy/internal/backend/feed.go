package backend

import (
	"bytes"
	"slices"
)

// A feed is a pipeline for subscriptions: RESP3, so that messages and replies
// can not be taken for each other, and of one owner. A (un)subscribe command
// names one channel, so that it has exactly one answer; that is a push as well,
// and goes to the command like a reply. All other pushes are messages.
//
// A feed takes no part in holds and debts: nothing that is sent on it writes.

// Feed is who listens.
type Feed interface {
	// Message delivers a message. It is valid only during the call.
	Message(push []byte)
	// Lost tells that the connection ended after it was ready: the node forgot
	// the subscriptions. Commands without an answer were failed or given back
	// before.
	Lost()
}

// Feed makes a feed of a node. It connects when the first command is added.
func (o *Pool) Feed(node string, listener Feed) *Pipeline {
	p := &Pipeline{node: node, proto: 3, pool: o, Handle: -1, feed: listener}
	o.feeds = append(o.feeds, p)
	return p
}

// CloseFeed ends a feed. Commands on their way get no answer.
func (o *Pool) CloseFeed(p *Pipeline) {
	o.feeds = slices.DeleteFunc(o.feeds, func(other *Pipeline) bool { return other == p })
	o.dialer.Hangup(p)
	p.feed = nil
	p.ring = ring{}
	p.enter(idle)
}

// messages are the kinds of push that answer no command.
var messages = [][]byte{[]byte("$7\r\nmessage\r\n"), []byte("$8\r\npmessage\r\n"), []byte("$8\r\nsmessage\r\n")}

// isMessage tells a message from the answer to a (un)subscribe command.
func isMessage(push []byte) bool {
	_, kind, _ := bytes.Cut(push, []byte("\r\n"))
	for _, m := range messages {
		if bytes.HasPrefix(kind, m) {
			return true
		}
	}
	return false
}
