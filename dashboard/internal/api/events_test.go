package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

type event struct {
	id         int64
	name, data string
}

// listener reads a stream of events in the background.
type listener struct {
	t        *testing.T
	events   chan event
	comments chan string
	closed   chan struct{} // the stream ended
	cancel   context.CancelFunc
}

func (r *rig) listen(query string, token string, options ...option) *listener {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+Base+"/events"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for _, o := range options {
		o(req)
	}
	p, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if p.StatusCode != 200 || p.Header.Get("Content-Type") != "text/event-stream" || p.Header.Get("X-Accel-Buffering") != "no" || p.Header.Get("Cache-Control") != "no-store" {
		r.t.Fatalf("stream: status %d, headers %v", p.StatusCode, p.Header)
	}
	l := &listener{r.t, make(chan event, 1000), make(chan string, 1000), make(chan struct{}), cancel}
	go l.read(p.Body)
	return l
}

func (l *listener) read(body io.ReadCloser) {
	defer close(l.closed)
	defer func() { _ = body.Close() }()
	var e event
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "":
			if value != "" {
				l.comments <- value
			} else if e.name != "" {
				l.events <- e
				e = event{}
			}
		case "id":
			e.id, _ = strconv.ParseInt(value, 10, 64)
		case "event":
			e.name = value
		case "data":
			e.data = value
		}
	}
}

// next waits for the next event of one of the names, skipping others.
func (l *listener) next(names ...string) event {
	l.t.Helper()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case e := <-l.events:
			for _, n := range names {
				if e.name == n {
					return e
				}
			}
		case <-timeout.C:
			l.t.Fatalf("no event %v came", names)
		}
	}
}

func TestStreamTellsChanges(t *testing.T) {
	r := newRig(t)
	top := r.seed()
	l := r.listen("", r.tokens[access.Viewer])
	first := <-l.events
	var snapshot view.Snapshot
	if err := json.Unmarshal([]byte(first.data), &snapshot); err != nil || first.name != "snapshot" || first.id != snapshot.Revision {
		t.Fatalf("first event %+v: %v", first, err)
	}
	if len(snapshot.Groups.Items) != 2 || len(snapshot.Operations.Items) != 1 || snapshot.Slots.SlotCount != 16384 {
		t.Errorf("snapshot %+v", snapshot)
	}
	next, err := top.Next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 0, Last: 99}}, "g2") })
	if err != nil {
		t.Fatal(err)
	}
	rev := r.put(store.KeyTopology, next)
	e := l.next("slots")
	var slots view.Slots
	if err := json.Unmarshal([]byte(e.data), &slots); err != nil || slots.Epoch != 8 || slots.Items[0].Group != "g2" || e.id != rev {
		t.Errorf("slots after the change: %+v: %v, %v", e, slots, err)
	}
	// States of an operation come in their order, the last one in any case.
	for _, state := range []topo.OperationState{topo.OpPaused, topo.OpRunning, topo.OpSucceeded} {
		r.put(store.PrefixOperations+"op-1", operation("op-1", state, time.Now()))
	}
	seen := e.id
	for {
		e := l.next("operations")
		if e.id < seen {
			t.Errorf("revision %d after %d", e.id, seen)
		}
		seen = e.id
		var op view.Operation
		if err := json.Unmarshal([]byte(e.data), &op); err != nil {
			t.Fatal(err)
		}
		if op.State == "succeeded" {
			break
		}
	}
}

func TestStreamTopics(t *testing.T) {
	r := newRig(t)
	top := r.seed()
	l := r.listen("?topics=operations,status", r.tokens[access.Viewer])
	l.next("snapshot")
	next, err := top.Next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 0, Last: 99}}, "g2") })
	if err != nil {
		t.Fatal(err)
	}
	r.put(store.KeyTopology, next)
	r.put(store.PrefixOperations+"op-1", operation("op-1", topo.OpSucceeded, time.Now()))
	for {
		e := <-l.events
		if e.name == "slots" || e.name == "groups" || e.name == "proxies" {
			t.Errorf("event %s was not asked for", e.name)
		}
		if e.name == "operations" && strings.Contains(e.data, "succeeded") {
			return
		}
	}
}

func TestStreamResumes(t *testing.T) {
	r := newRig(t)
	top := r.seed()
	viewer := r.tokens[access.Viewer]
	l := r.listen("", viewer)
	seen := l.next("snapshot").id
	l.cancel()
	r.put(store.PrefixOperations+"op-2", operation("op-2", topo.OpRunning, time.Now()))
	next, err := top.Next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 200, Last: 299}}, "g2") })
	if err != nil {
		t.Fatal(err)
	}
	r.put(store.KeyTopology, next)
	resume := func(id int64) option { return header("Last-Event-ID", fmt.Sprint(id)) }

	l = r.listen("", viewer, resume(seen))
	got := map[string]int{}
	for len(got) < 5 {
		e := l.next("snapshot", "slots", "groups", "proxies", "status", "operations")
		got[e.name]++
		if e.name == "snapshot" {
			t.Fatal("resuming sent a snapshot")
		}
		if e.name == "operations" && !strings.Contains(e.data, `"id":"op-2"`) {
			t.Errorf("an operation that did not change was sent: %s", e.data)
		}
	}
	l.cancel()
	// Nothing changed since: nothing is repeated, until something changes.
	now := r.api.View.State().Rev
	l = r.listen("?topics=operations", viewer, resume(now))
	r.put(store.PrefixOperations+"op-3", operation("op-3", topo.OpQueued, time.Now()))
	if e := l.next("snapshot", "operations"); e.name != "operations" || !strings.Contains(e.data, "op-3") {
		t.Errorf("got %s %s", e.name, e.data)
	}
	l.cancel()
	// A removal can not be told, and a revision of the future is not known.
	r.commit(r.store.Begin().Delete(store.PrefixOperations + "op-3"))
	for _, id := range []int64{seen, r.api.View.State().Rev + 1000} {
		l = r.listen("", viewer, resume(id))
		if e := <-l.events; e.name != "snapshot" {
			t.Errorf("resuming from %d: first event %s", id, e.name)
		}
		l.cancel()
	}
}

func TestStreamHeartbeat(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	l := r.listen("?topics=operations", r.tokens[access.Viewer])
	for range 3 {
		select {
		case <-l.comments:
		case <-time.After(10 * time.Second):
			t.Fatal("no heartbeat came")
		}
	}
}

func TestStreamNeedsLogin(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	r.want(401, "GET", "/events", "", nil)
	var made NewToken
	r.want(201, "POST", "/tokens", r.tokens[access.Admin], TokenInput{"tmp", "viewer"}).decode(t, &made)
	l := r.listen("", made.Token)
	l.next("snapshot")
	r.want(204, "DELETE", "/tokens/"+made.ID, r.tokens[access.Admin], nil)
	select {
	case <-l.closed:
	case <-time.After(10 * time.Second):
		t.Error("the stream of a revoked token goes on")
	}
	eventually(t, func() string {
		if n, _ := r.api.View.Counts(); n != 0 {
			return fmt.Sprintf("%d streams are still open", n)
		}
		return ""
	})
}

// TestStreamSlowReader: who does not read is told to start over, and nobody
// waits for them.
func TestStreamSlowReader(t *testing.T) {
	r := newRig(t)
	r.seed()
	// A raw connection that is not read at first.
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET %s/events?topics=operations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", Base, r.tokens[access.Viewer]); err != nil {
		t.Fatal(err)
	}
	quick := r.listen("?topics=operations", r.tokens[access.Viewer])
	quick.next("snapshot")
	eventually(t, func() string {
		if n, _ := r.api.View.Counts(); n != 2 {
			return fmt.Sprintf("%d streams are open", n)
		}
		return ""
	})
	// A large event fills what lies between, then small ones fill the queue.
	// Each is of another operation, so that their pace does not hold them back.
	count := 0
	send := func(n int, reason string) {
		t.Helper()
		txn := r.store.Begin()
		for range n {
			op := operation(fmt.Sprintf("op-%d", 100+count), topo.OpRunning, time.Now())
			op.Reason = reason
			txn = txn.Put(store.PrefixOperations+op.ID, op)
			count++
		}
		r.commit(txn)
		for range n {
			quick.next("operations")
		}
	}
	send(1, strings.Repeat("x", 1<<20))
	for resyncs := int64(0); resyncs == 0; _, resyncs = r.api.View.Counts() {
		if count > 10*view.QueueLength {
			t.Fatal("the slow reader never fell behind")
		}
		send(16, "")
	}
	// It reads again: after what was on its way comes the order to start over.
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewReader(conn)
	for resync := false; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("no resync and snapshot came: %v", err)
		}
		if line == "event: resync\n" {
			resync = true
		}
		if resync && line == "event: snapshot\n" {
			break
		}
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	r := newRig(t)
	l := r.listen("", r.tokens[access.Viewer])
	l.next("snapshot")
	r.api.CloseStreams()
	select {
	case <-l.closed:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
}

func TestStreamSurvivesWriteErrors(t *testing.T) {
	s := &sender{w: brokenWriter{}, control: http.NewResponseController(brokenWriter{})}
	s.raw("x")
	if err := s.flush(); err == nil {
		t.Error("a failed write was not noticed")
	}
}

type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) SetWriteDeadline(time.Time) error { return nil }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }
