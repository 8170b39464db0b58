package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"shardis/coordinator"
	"shardis/coordinator/store"
)

// Every write passes through record, which holds its answer back until
//
//  1. an audit record of it is stored, and
//  2. the view has seen that record, and so everything the write stored before
//     it: whoever reads next from this dashboard finds their own write;
//  3. where the request has an Idempotency-Key, the answer is stored for 24 h:
//     the same request is then answered from there and not done again.
//
// The key is taken before the work, so that of two equal requests at the same
// time one works and the other is told so. Answers with secrets in them
// (logins, new tokens) are never stored.

const (
	idempotencyLife = 24 * time.Hour
	// pendingLife frees a key whose request died with its dashboard.
	pendingLife = 2 * time.Minute
	seenTimeout = 2 * time.Second
)

// answer is what is stored under an idempotency key.
type answer struct {
	Format      int    `json:"format"`
	Request     string `json:"request"` // hash of method, path and body
	Pending     bool   `json:"pending,omitempty"`
	Status      int    `json:"status,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Location    string `json:"location,omitempty"`
	Body        []byte `json:"body,omitempty"`
}

func (a *API) record(ctx huma.Context, next func(huma.Context)) {
	if m := ctx.Method(); m == http.MethodGet || m == http.MethodHead {
		next(ctx)
		return
	}
	c, op := humagin.Unwrap(ctx), ctx.Operation()
	if a.View.Lost() { // Nobody should wait for a time-out to learn it.
		a.refuse(c, problem(coordinator.StoreUnavailable, awayDetail))
		return
	}
	key, hash := "", ""
	if header := c.GetHeader("Idempotency-Key"); header != "" && op.Method == http.MethodPost && op.Metadata[metaSecret] == nil {
		if len(header) > 200 {
			a.refuse(c, problem(codeMalformed, "An Idempotency-Key has at most 200 characters."))
			return
		}
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			a.refuse(c, bodyProblem(err))
			return
		}
		c.Request.Body = io.NopCloser(bytes.NewReader(body))
		who := callerOf(ctx.Context()).who
		key = store.PrefixIdempotency + hashOf(string(who.Kind), who.ID, header)
		hash = hashOf(op.Method, c.Request.URL.RequestURI(), string(body))
		if done := a.replay(c, key, hash); done {
			return
		}
	}
	held := &heldWriter{ResponseWriter: c.Writer}
	c.Writer = held
	defer func() { c.Writer = held.ResponseWriter }() // also after a panic, whose answer must not be held
	next(ctx)

	// The caller may be gone: what happened is recorded all the same.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context()), 5*time.Second)
	defer cancel()
	a.audit(after, op, c, held)
	if key != "" {
		a.remember(after, key, hash, held)
	}
	held.release()
}

func bodyProblem(err error) *Problem {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return problem(codeTooLarge, "A request may have at most 1 MiB.")
	}
	return problem(codeMalformed, "The body ended too early.")
}

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// replay takes the key for this request, or answers from what is stored under
// it; then it reports true.
func (a *API) replay(c *gin.Context, key, hash string) bool {
	ctx := c.Request.Context()
	lease, err := a.Store.Timed(ctx, pendingLife)
	if err == nil {
		_, err = a.Store.Begin().Unchanged(key, 0).PutLease(key, answer{Format: 1, Request: hash, Pending: true}, lease).Commit(ctx)
	}
	if err == nil {
		return false
	}
	if !errors.Is(err, store.ErrConflict) {
		a.refuse(c, problemOf(err))
		return true
	}
	stored, _, err := store.Load[answer](ctx, a.Store, key)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		a.refuse(c, problemOf(err))
	case err == nil && stored.Request != hash:
		a.refuse(c, problem(codeIdempotency, "This Idempotency-Key came with another request before.").hint("Use a new key for each request."))
	case err != nil || stored.Pending:
		a.refuse(c, problem(codeInProgress, "A request with this Idempotency-Key is being worked on.").hint("Try again in a moment."))
	default:
		c.Header("Idempotency-Replayed", "true")
		if stored.Location != "" {
			c.Header("Location", stored.Location)
		}
		c.Abort()
		c.Data(stored.Status, stored.ContentType, stored.Body)
	}
	return true
}

// remember stores the answer, or frees the key when the request may succeed
// another time.
func (a *API) remember(ctx context.Context, key, hash string, held *heldWriter) {
	txn := a.Store.Begin()
	if status := held.Status(); status >= 500 || status == http.StatusTooManyRequests {
		txn = txn.Delete(key)
	} else {
		lease, err := a.Store.Timed(ctx, idempotencyLife)
		if err != nil {
			a.Log.Warn("an answer could not be kept for repeats", "err", err)
			return
		}
		txn = txn.PutLease(key, answer{
			Format: 1, Request: hash, Status: status, ContentType: held.Header().Get("Content-Type"),
			Location: held.Header().Get("Location"), Body: held.body.Bytes(),
		}, lease)
	}
	if _, err := txn.Commit(ctx); err != nil {
		a.Log.Warn("an answer could not be kept for repeats", "err", err)
	}
}

// heldWriter keeps an answer until release.
type heldWriter struct {
	gin.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *heldWriter) WriteHeader(status int) { w.status = status }

func (w *heldWriter) WriteHeaderNow() {}

func (w *heldWriter) Write(data []byte) (int, error) { return w.body.Write(data) }

func (w *heldWriter) WriteString(text string) (int, error) { return w.body.WriteString(text) }

func (w *heldWriter) Status() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *heldWriter) Size() int { return w.body.Len() }

func (w *heldWriter) Written() bool { return w.status != 0 || w.body.Len() > 0 }

func (w *heldWriter) Flush() {}

func (w *heldWriter) release() {
	w.ResponseWriter.WriteHeader(w.Status())
	if w.body.Len() == 0 {
		w.ResponseWriter.WriteHeaderNow()
		return
	}
	// An error means the caller is gone.
	_, _ = w.ResponseWriter.Write(w.body.Bytes())
}

// target names what a request was about: its path parameters.
func target(c *gin.Context) string {
	parts := make([]string, 0, len(c.Params))
	for _, p := range c.Params {
		parts = append(parts, p.Value)
	}
	return strings.Join(parts, " ")
}
