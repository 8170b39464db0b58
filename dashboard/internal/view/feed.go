package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// The feed sends what changed to every stream that is open.
//
//	etcd watch ─► apply ─► dirty topics ─┐                ┌─► queue (64) ─► writer ─► browser
//	poll ────────────────► dirty topics ─┴─► due ─► frame ┼─► queue (64) ─► writer ─► curl
//	                                                      └─► …
//
// Each event carries the whole value of its topic (or one whole operation), so
// a lost or repeated event can do no harm, and resuming means sending again
// the topics that changed since. A topic is made at most once per its
// interval, and not at all while nobody listens or when nothing visible
// changed.
//
// A stream that does not keep up never makes others wait: its queue is thrown
// away, it is told to start over (resync) and gets the present state. Events
// are encoded once for all.
//
// Rejected: deltas (the page would have to know how to apply each, and a lost
// one is for ever), and one latest value per topic instead of a queue (an
// operation's last states would be skipped).

// Topic is one part of the page's data.
type Topic string

const (
	TopicSlots      Topic = "slots"
	TopicGroups     Topic = "groups"
	TopicProxies    Topic = "proxies"
	TopicOperations Topic = "operations" // one operation an event
	TopicStatus     Topic = "status"
)

// Topics are all there are.
var Topics = []Topic{TopicSlots, TopicGroups, TopicProxies, TopicOperations, TopicStatus}

// Names of events that are not topics.
const (
	EventSnapshot = "snapshot"
	EventResync   = "resync"
)

// interval is the least time between two events of a topic; of operations,
// between two of the same operation.
func (t Topic) interval() time.Duration {
	switch t {
	case TopicSlots:
		return 100 * time.Millisecond
	case TopicOperations:
		return 500 * time.Millisecond
	}
	return time.Second
}

// Event is one encoded event of a stream.
type Event struct {
	Rev  int64
	Name string
	Data []byte // JSON, one line
}

// QueueLength is how many events a stream may fall behind.
const QueueLength = 64

// Stream is one listener. Its owner reads Events; when Lagged is closed the
// queue was thrown away and the stream must be told to start over.
type Stream struct {
	topics map[Topic]bool
	queue  chan Event
	lagged chan struct{}
}

// Events is the queue of events to be written.
func (s *Stream) Events() <-chan Event { return s.queue }

// Lagged is closed once the stream fell behind; nothing is queued after that.
func (s *Stream) Lagged() <-chan struct{} { return s.lagged }

// Wants reports whether the stream asked for the topic.
func (s *Stream) Wants(t Topic) bool { return len(s.topics) == 0 || s.topics[t] }

type feed struct {
	mu      sync.Mutex
	streams map[*Stream]bool
	woke    chan struct{} // a stream came: poll now
	opened  bool          // a stream came since the loop last looked
	resyncs int64
}

func newFeed() *feed { return &feed{streams: map[*Stream]bool{}, woke: make(chan struct{}, 1)} }

// open adds a stream for the topics, all when none are given.
func (f *feed) open(topics []Topic) *Stream {
	s := &Stream{topics: map[Topic]bool{}, queue: make(chan Event, QueueLength), lagged: make(chan struct{})}
	for _, t := range topics {
		s.topics[t] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[s], f.opened = true, true
	select {
	case f.woke <- struct{}{}:
	default:
	}
	return s
}

func (f *feed) close(s *Stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}

// attend reports whether anybody listens, and whether somebody is new.
func (f *feed) attend() (anybody, newcomer bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	newcomer, f.opened = f.opened, false
	return len(f.streams) > 0, newcomer
}

func (f *feed) counts() (streams int, resyncs int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams), f.resyncs
}

// send queues an event for every stream that wants it. It never waits.
func (f *feed) send(t Topic, e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		if !s.Wants(t) {
			continue
		}
		select {
		case s.queue <- e:
		default:
			close(s.lagged)
			f.resyncs++
			delete(f.streams, s)
		}
	}
}

// pace decides when dirty topics are due. It belongs to the view's loop.
type pace struct {
	dirty map[string]Topic    // event key → topic; the key is the topic, or "operations/<id>"
	last  map[string]sentItem // by event key
}

type sentItem struct {
	at   time.Time
	data []byte
}

func newPace() *pace { return &pace{map[string]Topic{}, map[string]sentItem{}} }

func (p *pace) mark(c change) {
	for t := range c.topics {
		if t != TopicOperations {
			p.dirty[string(t)] = t
		}
	}
	for id := range c.operations {
		p.dirty[string(TopicOperations)+"/"+id] = TopicOperations
	}
}

// due takes the keys that may be sent now and gives the time until the next
// one, or a negative time when nothing is dirty.
func (p *pace) due(now time.Time) (keys []string, wait time.Duration) {
	wait = -1
	for key, t := range p.dirty {
		left := t.interval() - now.Sub(p.last[key].at)
		if left <= 0 {
			keys = append(keys, key)
			delete(p.dirty, key)
			continue
		}
		if wait < 0 || left < wait {
			wait = left
		}
	}
	return keys, wait
}

// news records data as sent and reports whether it differs from the last.
func (p *pace) news(key string, now time.Time, data []byte) bool {
	before := p.last[key]
	p.last[key] = sentItem{now, data}
	return !bytes.Equal(before.data, data)
}

// renew makes the next event of every key count as news. A stream that just
// came began with a state that may not be the one last sent.
func (p *pace) renew() {
	for key, sent := range p.last {
		p.last[key] = sentItem{at: sent.at}
	}
}

// forget drops what was kept of operations that no longer exist.
func (p *pace) forget(keep func(key string) bool) {
	for key := range p.last {
		if !keep(key) {
			delete(p.last, key)
		}
	}
}

func encode(name string, rev int64, v any) (Event, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Event{}, fmt.Errorf("encode event %s: %w", name, err)
	}
	return Event{Rev: rev, Name: name, Data: data}, nil
}
