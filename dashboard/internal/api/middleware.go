package api

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"shardis/dashboard/internal/access"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	callerKey
)

// caller is who makes a request. Handlers that log somebody in set it, so that
// the audit knows.
type caller struct {
	who   access.Principal
	known bool
	name  string // claimed, where not known
	ip    string
	err   error // why it could not be found out
}

func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey).(*caller); ok {
		return c
	}
	return &caller{}
}

func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// requestID takes the caller's id of the request or makes one.
func (a *API) requestID(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if !requestIDPattern.MatchString(id) {
		id = uuid.NewString()
	}
	c.Header("X-Request-Id", id)
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), requestIDKey, id))
}

// measure counts requests by route, never by path.
func (a *API) measure(c *gin.Context) {
	began := time.Now()
	c.Next()
	route := c.FullPath()
	if route == "" {
		route = "other"
	}
	a.metrics.requests.WithLabelValues(c.Request.Method, route, strconv.Itoa(c.Writer.Status())).Inc()
	if route != Base+"/events" {
		a.metrics.duration.WithLabelValues(c.Request.Method, route).Observe(time.Since(began).Seconds())
	}
}

func (a *API) recoverPanic(c *gin.Context) {
	defer func() {
		failure := recover()
		if failure == nil {
			return
		}
		if err, isError := failure.(error); isError && errors.Is(err, http.ErrAbortHandler) {
			panic(failure)
		}
		a.Log.Error("a request failed by a defect", "route", c.FullPath(), "request_id", requestIDOf(c.Request.Context()),
			"reason", failure, "stack", string(debug.Stack()))
		if !c.Writer.Written() {
			a.refuse(c, problem(codeInternal, "Something went wrong in the dashboard; its log says more."))
		}
	}()
	c.Next()
}

// headers sets what every answer carries. The page sets its own policy.
func (a *API) headers(c *gin.Context) {
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Referrer-Policy", "same-origin")
	c.Header("X-Frame-Options", "DENY")
	if isAPI(c.Request.URL.Path) {
		c.Header("Cache-Control", "no-store")
		c.Header("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'")
		c.Header("Shardis-Revision", strconv.FormatInt(a.View.State().Rev, 10))
	}
}

func isAPI(path string) bool { return path == "/api" || strings.HasPrefix(path, "/api/") }

func (a *API) limitBody(c *gin.Context) {
	if c.Request.ContentLength > bodyLimit {
		a.refuse(c, problem(codeTooLarge, "A request may have at most 1 MiB."))
		return
	}
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, bodyLimit)
}

// crossOrigin refuses writes that a browser sends for another site's page.
func (a *API) crossOrigin(c *gin.Context) {
	if err := a.origin.Check(c.Request); err != nil {
		a.metrics.refusals.WithLabelValues("cross-origin").Inc()
		a.refuse(c, problem(codeCrossOrigin, "The request comes from a page of another site.").
			hint("If that page is yours, list its origin under trusted_origins."))
	}
}

// identify finds out who calls; whether that is enough is for authorize.
func (a *API) identify(c *gin.Context) {
	who := &caller{ip: c.ClientIP()}
	who.who, who.known, who.err = a.credential(c.Request)
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callerKey, who))
}

// credentialTimeout bounds what a check may wait for etcd.
const credentialTimeout = 2 * time.Second

// credential checks the token or the cookie of a request.
func (a *API) credential(r *http.Request) (access.Principal, bool, error) {
	if !isAPI(r.URL.Path) {
		return access.Principal{}, false, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), credentialTimeout)
	defer cancel()
	var who access.Principal
	var err error
	if scheme, token, has := strings.Cut(r.Header.Get("Authorization"), " "); has && strings.EqualFold(scheme, "Bearer") {
		who, err = a.Access.Bearer(ctx, strings.TrimSpace(token))
	} else if cookie, cookieErr := r.Cookie(cookieName(a.SecureCookie)); cookieErr == nil {
		who, err = a.Access.Session(ctx, cookie.Value)
	} else {
		return access.Principal{}, false, nil
	}
	if errors.Is(err, access.ErrDenied) {
		return access.Principal{}, false, nil
	}
	return who, err == nil, err
}

const (
	metaRole   = "role"
	metaSecret = "secret" // the answer holds a secret: never stored
	// public operations need no login. Every other one names a role; one that
	// names none is refused to everybody.
	public access.Role = "public"
)

// authorize enforces the role of the operation. It is the only place.
func (a *API) authorize(ctx huma.Context, next func(huma.Context)) {
	need, _ := ctx.Operation().Metadata[metaRole].(access.Role)
	who := callerOf(ctx.Context())
	switch {
	case need == public:
		next(ctx)
	case who.err != nil:
		a.refuse(humagin.Unwrap(ctx), problemOf(who.err))
	case !who.known:
		a.metrics.refusals.WithLabelValues("not-logged-in").Inc()
		a.refuse(humagin.Unwrap(ctx), problem(codeNotLoggedIn, "Log in, or send a token: Authorization: Bearer "+access.TokenPrefix+"…"))
	case !who.who.Role.Allows(need):
		a.metrics.refusals.WithLabelValues("role").Inc()
		a.refuse(humagin.Unwrap(ctx), problem(codeForbidden, "This needs the role "+string(need)+"; "+who.who.Name+" is "+string(who.who.Role)+"."))
	default:
		next(ctx)
	}
}

// refuse answers with a problem document and ends the request.
func (a *API) refuse(c *gin.Context, p *Problem) {
	stamped := *p
	stamped.Instance = requestIDOf(c.Request.Context())
	if p.cause != nil {
		a.logCause(c.Request.Context(), p)
	}
	for name, values := range p.GetHeaders() {
		for _, v := range values {
			c.Header(name, v)
		}
	}
	c.Header("Content-Type", p.ContentType(""))
	c.AbortWithStatusJSON(p.Status, &stamped)
}

// logCause logs what a document does not tell.
func (a *API) logCause(ctx context.Context, p *Problem) {
	if errors.Is(p.cause, context.Canceled) {
		return // The caller went away.
	}
	level := a.Log.Error
	if p.Status == http.StatusServiceUnavailable {
		level = a.Log.Warn
	}
	level("a request failed", "request_id", requestIDOf(ctx), "code", string(p.Code), "err", p.cause)
}

func (a *API) noRoute(c *gin.Context) {
	if isAPI(c.Request.URL.Path) || a.Page == nil {
		a.refuse(c, problem(codeNoRoute, "There is nothing at "+c.Request.URL.Path+".").hint("See "+Base+"/openapi.json or /api/docs."))
		return
	}
	c.Status(http.StatusOK) // gin presets 404 for what has no route
	a.Page.ServeHTTP(c.Writer, c.Request)
}
