package api

import (
	"context"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// auditLife is how long audit records are kept.
const auditLife = 90 * 24 * time.Hour

// auditRecord is one write, as stored.
type auditRecord struct {
	Format    int         `json:"format"`
	At        time.Time   `json:"at"`
	Actor     string      `json:"actor"`
	Role      access.Role `json:"role,omitempty"`
	IP        string      `json:"ip"`
	Action    string      `json:"action"` // the operation's id in the API
	Target    string      `json:"target,omitempty"`
	Result    string      `json:"result"`
	Detail    string      `json:"detail,omitempty"`
	RequestID string      `json:"request_id"`
}

// AuditEntry is one write that somebody made or tried.
type AuditEntry struct {
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Role      string    `json:"role" doc:"The role the actor had; empty where not logged in."`
	IP        string    `json:"ip"`
	Action    string    `json:"action" example:"start-operation"`
	Target    string    `json:"target"`
	Result    string    `json:"result" enum:"ok,refused,failed"`
	Detail    string    `json:"detail" doc:"Why it was refused, or what it made."`
	RequestID string    `json:"requestId"`
}

// audit stores what a write did, and waits until the view has seen it.
func (a *API) audit(ctx context.Context, op *huma.Operation, c *gin.Context, held *heldWriter) {
	status := held.Status()
	if status == http.StatusTooManyRequests {
		return // Guessing must not fill the store.
	}
	who := callerOf(ctx)
	r := auditRecord{
		Format: 1, At: time.Now().UTC(), Actor: who.who.Name, Role: who.who.Role, IP: who.ip, Action: op.OperationID,
		Target: target(c), Result: "ok", RequestID: requestIDOf(ctx),
	}
	if !who.known {
		r.Actor = who.name
	}
	switch {
	case status >= 500:
		r.Result = "failed"
	case status >= 400:
		r.Result = "refused"
	}
	var p Problem
	if status >= 400 && json.Unmarshal(held.body.Bytes(), &p) == nil {
		r.Detail = p.Detail
	} else if location := held.Header().Get("Location"); location != "" {
		r.Detail = path.Base(location)
	}
	a.metrics.audits.WithLabelValues(r.Action, r.Result).Inc()
	a.Log.Info("write", "actor", r.Actor, "action", r.Action, "target", r.Target, "result", r.Result, "detail", r.Detail,
		"client", r.IP, "request_id", r.RequestID)
	rev, err := a.storeAudit(ctx, r)
	if err != nil {
		a.Log.Error("an audit record could not be stored", "action", r.Action, "actor", r.Actor, "request_id", r.RequestID, "err", err)
		return
	}
	seen, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	if err := a.View.WaitFor(seen, rev); err != nil {
		a.Log.Warn("the view lags behind a write", "rev", rev, "err", err)
	}
}

func (a *API) storeAudit(ctx context.Context, r auditRecord) (int64, error) {
	id, err := uuid.NewV7() // sortable by time
	if err != nil {
		return 0, err
	}
	lease, err := a.Store.Timed(ctx, auditLife)
	if err != nil {
		return 0, err
	}
	return a.Store.Begin().PutLease(store.PrefixAudit+id.String(), r, lease).Commit(ctx)
}

type auditQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	Actor  string `query:"actor" doc:"Only of this actor."`
	Action string `query:"action" doc:"Only this action."`
}

func (a *API) registerAudit() {
	add(a, access.Admin, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Tags: []string{"audit"},
		Summary: "Who changed what, newest first; kept 90 days",
	}, func(ctx context.Context, in *auditQuery) (*Body[view.List[AuditEntry]], error) {
		records, err := store.LoadAll[auditRecord](ctx, a.Store, store.PrefixAudit)
		if err != nil {
			return nil, err
		}
		out := view.List[AuditEntry]{Items: []AuditEntry{}}
		for _, r := range slices.Backward(records) {
			if len(out.Items) == in.Limit {
				break
			}
			if (in.Actor == "" || in.Actor == r.Actor) && (in.Action == "" || in.Action == r.Action) {
				out.Items = append(out.Items, AuditEntry{
					r.At, r.Actor, string(r.Role), r.IP, r.Action, r.Target, r.Result, r.Detail, r.RequestID,
				})
			}
		}
		return ok(out)
	})
}
