package api

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
)

// Every error leaves as a problem document (RFC 9457) made in this file: from
// the coordinator's problems, from access, from the store, and from huma's own
// validation. To add a kind of problem: add a line to kinds; its code is the
// last part of its type and never changes.

// kind is what all problems of one code have in common.
type kind struct {
	status int
	title  string
	retry  bool // the same request may succeed later
}

var kinds = map[coordinator.Code]kind{
	coordinator.NotFound:          {http.StatusNotFound, "Not found", false},
	coordinator.InvalidInput:      {http.StatusUnprocessableEntity, "The input is not valid", false},
	coordinator.GroupExists:       {http.StatusConflict, "The group exists already", false},
	coordinator.GroupHasSlots:     {http.StatusConflict, "The group still owns slots", false},
	coordinator.GroupNotEmpty:     {http.StatusConflict, "The group is still being cleaned up", true},
	coordinator.PlanStale:         {http.StatusConflict, "The plan no longer fits the cluster", false},
	coordinator.SlotBusy:          {http.StatusConflict, "Another operation moves these slots", true},
	coordinator.GroupBusy:         {http.StatusConflict, "Another operation works on the group", true},
	coordinator.NodeUnreachable:   {http.StatusUnprocessableEntity, "The node can not be reached", true},
	coordinator.NodeNotEmpty:      {http.StatusUnprocessableEntity, "The node is not empty", false},
	coordinator.NodeIncompatible:  {http.StatusUnprocessableEntity, "The node can not be used", false},
	coordinator.OperationFinished: {http.StatusConflict, "The operation has finished", false},
	coordinator.NotPausable:       {http.StatusConflict, "The operation can not be paused now", false},
	coordinator.NoLeader:          {http.StatusServiceUnavailable, "No coordinator leads", true},
	coordinator.StoreUnavailable:  {http.StatusServiceUnavailable, "etcd does not answer", true},
	coordinator.ClusterExists:     {http.StatusConflict, "The cluster exists already", false},

	codeMalformed:      {http.StatusBadRequest, "The request can not be read", false},
	codeNotLoggedIn:    {http.StatusUnauthorized, "Not logged in", false},
	codeLoginFailed:    {http.StatusUnauthorized, "Login failed", false},
	codeForbidden:      {http.StatusForbidden, "Not allowed", false},
	codeCrossOrigin:    {http.StatusForbidden, "Request from another site", false},
	codeNoRoute:        {http.StatusNotFound, "No such address", false},
	codeNoMethod:       {http.StatusMethodNotAllowed, "Method not allowed", false},
	codeTooLarge:       {http.StatusRequestEntityTooLarge, "The request is too large", false},
	codeMediaType:      {http.StatusUnsupportedMediaType, "The content type is not supported", false},
	codeRateLimited:    {http.StatusTooManyRequests, "Too many tries", true},
	codeIdempotency:    {http.StatusUnprocessableEntity, "The idempotency key was used for another request", false},
	codeInProgress:     {http.StatusConflict, "The same request is being worked on", true},
	codeExists:         {http.StatusConflict, "It exists already", false},
	codeProxyNoAnswer:  {http.StatusBadGateway, "The proxy does not answer", true},
	codeSetupDone:      {http.StatusConflict, "The set-up was done before", false},
	codeInternal:       {http.StatusInternalServerError, "Internal error", false},
	codeNotInitialized: {http.StatusConflict, "The cluster was not created yet", false},
}

const (
	codeMalformed      coordinator.Code = "malformed"
	codeNotLoggedIn    coordinator.Code = "not-logged-in"
	codeLoginFailed    coordinator.Code = "login-failed"
	codeForbidden      coordinator.Code = "forbidden"
	codeCrossOrigin    coordinator.Code = "cross-origin"
	codeNoRoute        coordinator.Code = "no-such-address"
	codeNoMethod       coordinator.Code = "method-not-allowed"
	codeTooLarge       coordinator.Code = "too-large"
	codeMediaType      coordinator.Code = "media-type"
	codeRateLimited    coordinator.Code = "rate-limited"
	codeIdempotency    coordinator.Code = "idempotency-mismatch"
	codeInProgress     coordinator.Code = "in-progress"
	codeExists         coordinator.Code = "exists"
	codeProxyNoAnswer  coordinator.Code = "proxy-unreachable"
	codeSetupDone      coordinator.Code = "setup-done"
	codeInternal       coordinator.Code = "internal"
	codeNotInitialized coordinator.Code = "cluster-not-created"
)

// FieldError says what is wrong with one part of the input.
type FieldError struct {
	Pointer string `json:"pointer" example:"/nodes/0/addr" doc:"JSON pointer into the body; a parameter is named as query/name or path/name."`
	Detail  string `json:"detail"`
}

// Problem is a problem document.
type Problem struct {
	Type      string           `json:"type" format:"uri-reference" example:"/problems/plan-stale"`
	Title     string           `json:"title"`
	Status    int              `json:"status"`
	Detail    string           `json:"detail"`
	Instance  string           `json:"instance,omitempty" doc:"Id of the request, for the logs."`
	Code      coordinator.Code `json:"code" example:"plan-stale"`
	Hint      string           `json:"hint,omitempty" doc:"What to do about it."`
	Retryable bool             `json:"retryable"`
	Errors    []FieldError     `json:"errors,omitempty"`

	retryAfter time.Duration
	cause      error // for the log, never sent
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{"Cache-Control": {"no-store"}}
	switch {
	case p.retryAfter > 0:
		h.Set("Retry-After", fmt.Sprint(int((p.retryAfter+time.Second-1)/time.Second)))
	case p.Status == http.StatusServiceUnavailable:
		h.Set("Retry-After", "2")
	case p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="shardis"`)
	}
	return h
}

func problem(code coordinator.Code, detail string) *Problem {
	k, ok := kinds[code]
	if !ok {
		k = kinds[codeInternal]
	}
	return &Problem{Type: "/problems/" + string(code), Title: k.title, Status: k.status, Detail: detail, Code: code, Retryable: k.retry}
}

func (p *Problem) hint(text string) *Problem { p.Hint = text; return p }

func (p *Problem) field(pointer, detail string) *Problem {
	p.Errors = append(p.Errors, FieldError{pointer, detail})
	return p
}

const awayDetail = "etcd does not answer. Proxies keep serving; nothing can be changed until it is back."

// problemOf maps any error to its document. What is not known is "internal":
// the cause is logged, not sent.
func problemOf(err error) *Problem {
	var (
		p     *Problem
		cp    *coordinator.Problem
		input *access.InputError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &cp):
		p = problem(cp.Code, sentence(cp.Detail)).hint(sentence(cp.Hint))
		if _, known := kinds[cp.Code]; !known {
			p.cause = err
		}
		if cp.Field != "" {
			p.field(cp.Field, cp.Detail)
		}
		return p
	case errors.As(err, &input):
		return problem(coordinator.InvalidInput, input.Error()).field("/"+input.Field, input.Reason)
	case errors.Is(err, access.ErrDenied):
		return problem(codeLoginFailed, "The name, password or token is not right.")
	case errors.Is(err, access.ErrSetupDone):
		return problem(codeSetupDone, "There is a user or a token already: log in with it.")
	case errors.Is(err, access.ErrExists):
		return problem(codeExists, err.Error())
	case errors.Is(err, access.ErrNotFound), errors.Is(err, store.ErrNotFound):
		return problem(coordinator.NotFound, "It does not exist, or no longer.")
	case errors.Is(err, store.ErrConflict):
		return problem(coordinator.SlotBusy, "Somebody changed it at the same time: look again.")
	case store.Unavailable(err):
		p = problem(coordinator.StoreUnavailable, awayDetail)
		p.cause = err
		return p
	}
	p = problem(codeInternal, "Something went wrong in the dashboard; its log says more.")
	p.cause = err
	return p
}

// init makes huma write our documents for what it finds itself. These are
// huma's only hooks for it and global; nothing else here uses huma.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return validationProblem(status, message, errs)
	}
	huma.NewErrorWithContext = func(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
		return validationProblem(status, message, errs)
	}
	huma.DefaultArrayNullable = false
}

// validationProblem maps what huma finds. It never echoes values: a rejected
// body may hold a password.
func validationProblem(status int, message string, errs []error) *Problem {
	for _, err := range errs {
		var p *Problem
		if errors.As(err, &p) {
			return p
		}
	}
	code := codeInternal
	switch status {
	case http.StatusBadRequest, http.StatusRequestTimeout:
		code = codeMalformed
	case http.StatusUnprocessableEntity:
		code = coordinator.InvalidInput
	case http.StatusRequestEntityTooLarge:
		code = codeTooLarge
	case http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		code = codeMediaType
	}
	if code == codeInternal {
		p := problemOf(errors.Join(append([]error{errors.New(message)}, errs...)...))
		return p
	}
	p := problem(code, upperFirst(message)+".")
	for _, err := range errs {
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			p.field(fieldOf(d))
		} else if err != nil && code == codeMalformed {
			p.Detail += " " + upperFirst(err.Error()) + "."
		}
	}
	if len(p.Errors) > 0 {
		p.Detail = fmt.Sprintf("%s: %s.", strings.TrimPrefix(p.Errors[0].Pointer, "/"), p.Errors[0].Detail)
		if p.Errors[0].Pointer == "" {
			p.Detail = upperFirst(p.Errors[0].Detail) + "."
		}
	}
	return p
}

// sentence makes a sentence of an error's text.
func sentence(text string) string {
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".!?") {
		return upperFirst(text)
	}
	return upperFirst(text) + "."
}

func upperFirst(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

var indexPattern = regexp.MustCompile(`\[(\d+)\]`)

var missingPattern = regexp.MustCompile(`^expected required property (\S+) to be present$`)

// fieldOf gives the pointer and the reason of huma's finding. It points to a
// missing field itself, not to what lacks it.
func fieldOf(d *huma.ErrorDetail) (at, reason string) {
	at, reason = pointer(d.Location), d.Message
	if m := missingPattern.FindStringSubmatch(reason); m != nil {
		return at + "/" + m[1], "is missing"
	}
	if reason == validation.MsgUnexpectedProperty {
		return at, "is not a known field"
	}
	return at, reason
}

// pointer turns huma's "body.nodes[0].addr" into "/nodes/0/addr", and
// "query.key" into "query/key".
func pointer(location string) string {
	path := strings.ReplaceAll(indexPattern.ReplaceAllString(location, ".$1"), ".", "/")
	if rest, isBody := strings.CutPrefix(path, "body"); isBody {
		return rest
	}
	return path
}
