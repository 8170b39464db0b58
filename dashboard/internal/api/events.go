package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// Event streams (ADR 0007). Each is one goroutine, the request's own, which
// takes events from its queue and writes them. A write has its own deadline:
// the server's would count from the beginning of the stream. Whatever fails,
// the stream ends and the browser comes back with Last-Event-ID.
const (
	writeTimeout = 10 * time.Second
	retryMillis  = 2000
	maxStreams   = 1000
)

type eventsInput struct {
	Topics      []string `query:"topics" enum:"slots,groups,proxies,operations,status" doc:"Only these, all when absent."`
	Since       int64    `query:"since" minimum:"0" doc:"Resume after this revision, as Last-Event-ID does."`
	LastEventID string   `header:"Last-Event-ID"`
}

func (a *API) registerEvents() {
	op := read("stream-events", "/events", "cluster", "Server-sent events: what changes, as it changes")
	op.Description = "The first event is `snapshot` (or, resuming, what changed since). Then `slots`, `groups`, `proxies`, `status` with the shape " +
		"of the GET of the same name, and `operations` with one operation. After `resync` start over from the `snapshot` that follows. " +
		"The id of an event is the etcd revision."
	op.Responses = map[string]*huma.Response{"200": {
		Description: "A stream that does not end.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	op.Metadata = map[string]any{metaStream: true}
	add(a, access.Viewer, op, a.events)
}

// metaStream marks operations that go on until the caller leaves.
const metaStream = "stream"

func (a *API) events(_ context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if streams, _ := a.View.Counts(); streams >= maxStreams {
		p := problem(codeRateLimited, fmt.Sprintf("There are %d event streams open already.", streams))
		p.retryAfter = 5 * time.Second
		return nil, p
	}
	topics := make([]view.Topic, len(in.Topics))
	for i, t := range in.Topics {
		topics[i] = view.Topic(t)
	}
	seen := in.Since
	if rev, err := strconv.ParseInt(in.LastEventID, 10, 64); err == nil {
		seen = rev
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) { a.stream(ctx, topics, seen) }}, nil
}

// stream writes events until the caller, the session or the server ends.
func (a *API) stream(hctx huma.Context, topics []view.Topic, seen int64) {
	c := humagin.Unwrap(hctx)
	ctx := c.Request.Context()
	out := &sender{w: c.Writer, control: http.NewResponseController(c.Writer)}
	for name, value := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no",
	} {
		c.Header(name, value)
	}
	c.Status(http.StatusOK)
	stream, first, err := a.View.Open(topics, seen)
	if err != nil {
		a.Log.Error("an event stream can not begin", "err", err)
		return
	}
	defer func() { a.View.Close(stream) }()
	out.raw(fmt.Sprintf("retry: %d\n\n", retryMillis))
	out.events(first...)
	heartbeat := time.NewTicker(a.Heartbeat)
	defer heartbeat.Stop()
	for out.flush() == nil {
		select {
		case <-ctx.Done():
			return
		case <-a.closing:
			return
		case <-stream.Lagged():
			a.View.Close(stream)
			if stream, first, err = a.View.Open(topics, 0); err != nil {
				a.Log.Error("an event stream can not start over", "err", err)
				return
			}
			rev := first[0].Rev
			out.events(view.Event{Rev: rev, Name: view.EventResync, Data: fmt.Appendf(nil, `{"revision":%d}`, rev)})
			out.events(first...)
		case e := <-stream.Events():
			out.events(e)
			for more := true; more; {
				select {
				case e := <-stream.Events():
					out.events(e)
				default:
					more = false
				}
			}
		case <-heartbeat.C:
			if _, known, err := a.credential(c.Request); err == nil && !known {
				return // The session ended or the token was revoked.
			}
			out.raw(": still here\n\n")
		}
	}
}

// sender collects events and writes them with a deadline each time.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

func (s *sender) raw(text string) { s.buf.WriteString(text) }

func (s *sender) events(events ...view.Event) {
	for _, e := range events {
		fmt.Fprintf(&s.buf, "id: %d\nevent: %s\ndata: ", e.Rev, e.Name)
		s.buf.Write(e.Data) // JSON has no line breaks
		s.buf.WriteString("\n\n")
	}
}

func (s *sender) flush() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.control.Flush()
}
