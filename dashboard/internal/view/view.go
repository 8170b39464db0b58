// Package view keeps the state of the cluster in memory, as the dashboard
// shows it: one etcd watch, decoded (state.go), derived into the shapes of the
// REST API (slots.go, groups.go, …), joined with the figures proxies serve on
// their admin ports (poll.go), and sent to open streams as it changes
// (feed.go).
//
// Deriving is pure: it takes a State, figures and the time. The one goroutine
// of Run owns the changes; readers load an immutable State and never wait.
// While etcd is away the last state is served and said to be old.
package view

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// pingEvery is how often etcd is asked whether it answers.
const pingEvery = 2 * time.Second

// List is how lists are sent.
type List[T any] struct {
	Items []T `json:"items"`
}

// View is the cluster as it is now.
type View struct {
	store   *store.Store
	log     *slog.Logger
	version string
	asker   *Asker
	feed    *feed

	state     atomic.Pointer[State]
	live      atomic.Pointer[map[string]Figures]
	connected atomic.Bool

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when state moves on
}

// New makes a view of the store's cluster; version is the dashboard's.
func New(st *store.Store, version string, log *slog.Logger) *View {
	v := &View{store: st, log: log, version: version, asker: newAsker(), feed: newFeed(), changed: make(chan struct{})}
	v.state.Store(emptyState())
	v.live.Store(&map[string]Figures{})
	return v
}

// Run follows etcd and the proxies until ctx ends.
func (v *View) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	polled := make(chan struct{}, 1)
	wait.Go(func() { v.pollProxies(ctx, polled) })
	wait.Go(func() { v.ping(ctx) })
	batches := v.store.Watch(ctx, "")
	pace := newPace()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case b, open := <-batches:
			if !open {
				return ctx.Err()
			}
			next, c := v.state.Load().apply(b, v.log)
			v.connected.Store(true)
			v.publish(next)
			pace.mark(c)
		case <-polled:
			pace.mark(change{topics: map[Topic]bool{TopicProxies: true, TopicStatus: true, TopicGroups: true}})
		case <-timer.C:
		}
		if wait := v.emit(pace); wait >= 0 {
			timer.Reset(wait)
		}
	}
}

// emit sends what is due and gives the time until the next, negative for none.
func (v *View) emit(p *pace) time.Duration {
	now := time.Now()
	anybody, newcomer := v.feed.attend()
	if !anybody {
		// What a later stream needs is in its snapshot.
		clear(p.dirty)
		clear(p.last)
		return -1
	}
	if newcomer {
		p.renew()
	}
	keys, wait := p.due(now)
	s := v.state.Load()
	for _, key := range keys {
		topic, id, _ := strings.Cut(key, "/")
		shape, ok := v.shape(s, Topic(topic), id, now)
		if !ok {
			continue
		}
		e, err := encode(topic, s.Rev, shape)
		if err != nil {
			v.log.Error("an event can not be encoded", "err", err)
			continue
		}
		if p.news(key, now, e.Data) {
			v.feed.send(Topic(topic), e)
		}
	}
	p.forget(func(key string) bool {
		id, isOperation := strings.CutPrefix(key, string(TopicOperations)+"/")
		return !isOperation || s.Operations[id] != nil
	})
	return wait
}

// shape derives what an event of the topic carries; id names the operation.
func (v *View) shape(s *State, t Topic, id string, now time.Time) (any, bool) {
	switch t {
	case TopicSlots:
		return SlotMap(s), true
	case TopicGroups:
		return List[Group]{Groups(s, now)}, true
	case TopicProxies:
		return List[Proxy]{Proxies(s, *v.live.Load())}, true
	case TopicStatus:
		return v.status(s, now), true
	case TopicOperations:
		if op := s.Operations[id]; op != nil {
			return OperationOf(s, op, s.Controls[id]), true
		}
	}
	return nil, false
}

func (v *View) publish(next *State) {
	v.state.Store(next)
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// State is what is known now.
func (v *View) State() *State { return v.state.Load() }

// Connected reports whether etcd answered lately.
func (v *View) Connected() bool { return v.connected.Load() }

// Lost reports that etcd answered before and does no longer.
func (v *View) Lost() bool { return !v.connected.Load() && v.state.Load().Rev > 0 }

// Asker reads single proxies.
func (v *View) Asker() *Asker { return v.asker }

// WaitFor waits until everything up to revision rev is in the state.
func (v *View) WaitFor(ctx context.Context, rev int64) error {
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		if v.state.Load().Rev >= rev {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Cluster, Slots, Groups, Proxies, Operations and Status are the REST shapes
// of what is known now.

func (v *View) Cluster() Cluster { return ClusterOf(v.State(), v.version) }

func (v *View) Slots() Slots { return SlotMap(v.State()) }

func (v *View) Groups() []Group { return Groups(v.State(), time.Now()) }

func (v *View) Proxies() []Proxy { return Proxies(v.State(), *v.live.Load()) }

func (v *View) Operations() []Operation { return Operations(v.State()) }

func (v *View) Status() Status { return v.status(v.State(), time.Now()) }

func (v *View) status(s *State, now time.Time) Status {
	return StatusOf(s, *v.live.Load(), v.connected.Load(), now)
}

// Snapshot is everything at one revision.
func (v *View) Snapshot() Snapshot { return v.snapshot(v.State(), time.Now()) }

func (v *View) snapshot(s *State, now time.Time) Snapshot {
	return Snapshot{
		Revision: s.Rev, Cluster: ClusterOf(s, v.version), Status: v.status(s, now), Slots: SlotMap(s),
		Groups: List[Group]{Groups(s, now)}, Proxies: List[Proxy]{Proxies(s, *v.live.Load())},
		Operations: List[Operation]{Operations(s)},
	}
}

// Open starts a stream and gives the events it begins with: what changed
// since a revision it has seen, or a snapshot when it has seen none (0) or one
// that can not be resumed from. The caller must Close it.
func (v *View) Open(topics []Topic, seen int64) (*Stream, []Event, error) {
	// The stream is opened before the state is read: what changes in between
	// is sent twice rather than not at all.
	stream := v.feed.open(topics)
	s, now := v.state.Load(), time.Now()
	first, err := v.begin(s, stream, seen, now)
	if err != nil {
		v.feed.close(stream)
		return nil, nil, err
	}
	return stream, first, nil
}

func (v *View) begin(s *State, stream *Stream, seen int64, now time.Time) ([]Event, error) {
	if seen <= 0 || seen < s.gone || seen > s.Rev {
		e, err := encode(EventSnapshot, s.Rev, v.snapshot(s, now))
		return []Event{e}, err
	}
	var out []Event
	for _, t := range Topics {
		if t == TopicOperations || !stream.Wants(t) || s.revs[t] <= seen {
			continue
		}
		shape, _ := v.shape(s, t, "", now)
		e, err := encode(string(t), s.Rev, shape)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if !stream.Wants(TopicOperations) {
		return out, nil
	}
	for id, rev := range s.opRevs {
		op := s.Operations[id]
		if rev <= seen || op == nil {
			continue
		}
		e, err := encode(string(TopicOperations), s.Rev, OperationOf(s, op, s.Controls[id]))
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Close ends a stream.
func (v *View) Close(s *Stream) { v.feed.close(s) }

// Counts says how many streams are open and how often one had to start over.
func (v *View) Counts() (streams int, resyncs int64) { return v.feed.counts() }

// pollProxies keeps the figures of proxies, more often while somebody watches.
func (v *View) pollProxies(ctx context.Context, polled chan<- struct{}) {
	for {
		every := pollIdle
		if streams, _ := v.feed.counts(); streams > 0 {
			every = pollWatched
		}
		began := time.Now()
		figures := v.asker.poll(ctx, v.state.Load().Proxies, *v.live.Load())
		v.live.Store(&figures)
		select {
		case polled <- struct{}{}:
		default:
		}
		// A proxy that just came is asked soon; a first stream wakes the poll.
		wait := time.NewTimer(max(0, every-time.Since(began)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-v.feed.woke:
			wait.Stop()
		case <-wait.C:
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// ping keeps connected true to the facts: a watch is silent both when nothing
// happens and when etcd is away.
func (v *View) ping(ctx context.Context) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		pingCtx, cancel := context.WithTimeout(ctx, pingEvery)
		err := v.store.Ping(pingCtx)
		cancel()
		if before := v.connected.Swap(err == nil); before && err != nil && ctx.Err() == nil {
			v.log.Warn("etcd does not answer, showing the last known state", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Operation finds an operation that may be newer than the state: one just
// made must be found although the watch did not bring it yet.
func (v *View) Operation(ctx context.Context, id string) (Operation, error) {
	s := v.state.Load()
	if op := s.Operations[id]; op != nil {
		return OperationOf(s, op, s.Controls[id]), nil
	}
	op, _, err := store.Load[topo.Operation](ctx, v.store, store.PrefixOperations+id)
	if err != nil {
		return Operation{}, err
	}
	return v.Fresh(ctx, &op)
}

// Fresh is the shape of an operation just written, with what is wished of it
// now rather than when the watch last brought it.
func (v *View) Fresh(ctx context.Context, op *topo.Operation) (Operation, error) {
	control, _, err := store.Load[topo.Control](ctx, v.store, store.PrefixControls+op.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Operation{}, err
	}
	return OperationOf(v.state.Load(), op, control), nil
}
