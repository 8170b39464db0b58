// Package api is the REST API of the dashboard: gin for HTTP, huma for the
// OpenAPI document and validation, problem documents for errors.
//
// A request passes, in this order:
//
//	gin   requestID → measure → recoverPanic → headers → limitBody → crossOrigin → identify
//	huma  authorize (the operation's role) → record (idempotency, audit, read-your-writes)
//	      validation → handler
//
// Reads come from the view, which is in memory; what may be newer than the
// view is read from etcd. Writes go through coordinator.Client and are answered
// once the view has seen them, so that a read that follows finds them.
//
// To add an operation: a method on API, a line in its file's register
// function with the role it needs, and a case in the tests' table of routes.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

const (
	// Base is where the API is served.
	Base = "/api/v1"
	// bodyLimit bounds every request.
	bodyLimit = 1 << 20
	// callTimeout bounds what one request may do with etcd and nodes.
	callTimeout = 30 * time.Second
)

// Config is what the API is built from.
type Config struct {
	Store   *store.Store
	Client  *coordinator.Client
	View    *view.View
	Access  *access.Access
	Page    http.Handler // answers everything that is not the API
	Log     *slog.Logger
	Version string
	Cluster string // name of the cluster, shown before anybody logged in

	SecureCookie   bool     // browsers reach us by TLS: __Host- cookies
	TrustedOrigins []string // other origins whose pages may write, as https://host
	TrustedProxies []string // whose X-Forwarded-For is believed
	Heartbeat      time.Duration
}

// API is the handler and what it needs.
type API struct {
	Config
	engine  *gin.Engine
	huma    huma.API
	metrics *metrics
	origin  *http.CrossOriginProtection
	byIP    *access.Limiter
	byName  *access.Limiter

	closeOnce sync.Once
	closing   chan struct{}
}

// New builds the handler. It does no I/O.
func New(cfg Config) (*API, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 15 * time.Second
	}
	gin.SetMode(gin.ReleaseMode)
	a := &API{
		Config:  cfg,
		engine:  gin.New(),
		metrics: newMetrics(cfg.View, cfg.Version),
		origin:  http.NewCrossOriginProtection(),
		byIP:    access.NewLimiter(6*time.Second, 10),
		byName:  access.NewLimiter(3*time.Second, 20),
		closing: make(chan struct{}),
	}
	for _, origin := range cfg.TrustedOrigins {
		if err := a.origin.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("trusted origin %q: %w", origin, err)
		}
	}
	if err := a.engine.SetTrustedProxies(cfg.TrustedProxies); err != nil {
		return nil, fmt.Errorf("trusted proxies: %w", err)
	}
	a.engine.UseRawPath, a.engine.UnescapePathValues = true, true // node addresses may be escaped
	a.engine.HandleMethodNotAllowed = true
	a.engine.RedirectTrailingSlash = false
	a.engine.Use(a.requestID, a.measure, a.recoverPanic, a.headers, a.limitBody, a.crossOrigin, a.identify)
	a.engine.NoRoute(a.noRoute)
	a.engine.NoMethod(func(c *gin.Context) {
		a.refuse(c, problem(codeNoMethod, c.Request.Method+" is not possible here."))
	})
	a.huma = humagin.NewWithGroup(a.engine, a.engine.Group(Base), humaConfig(cfg.Version))
	a.huma.UseMiddleware(a.authorize, a.record)
	a.register()
	a.registerService()
	return a, nil
}

func (a *API) register() {
	a.registerAccess()
	a.registerReads()
	a.registerGroups()
	a.registerOperations()
	a.registerTakeovers()
	a.registerAudit()
	a.registerEvents()
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.engine.ServeHTTP(w, r) }

// CloseStreams ends open event streams, so that a shutdown need not wait.
func (a *API) CloseStreams() { a.closeOnce.Do(func() { close(a.closing) }) }

// add registers an operation that needs role. Errors of h become problem
// documents here and nowhere else.
func add[I, O any](a *API, role access.Role, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	if op.Metadata == nil {
		op.Metadata = map[string]any{}
	}
	op.Metadata[metaRole] = role
	op.Extensions = map[string]any{"x-required-role": string(role)}
	if role != public {
		op.Security = []map[string][]string{{"bearer": {}}, {"session": {}}}
	}
	op.MaxBodyBytes = bodyLimit
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		out, err := h(ctx, in)
		if err != nil {
			p := problemOf(err)
			if p.cause != nil {
				a.logCause(ctx, p)
			}
			return nil, p
		}
		return out, nil
	})
}

// Body is a response that is only a body.
type Body[T any] struct{ Body T }

func ok[T any](v T) (*Body[T], error) { return &Body[T]{v}, nil }

// Made is a response that says where the new thing is.
type Made[T any] struct {
	Location string `header:"Location" doc:"Where to read it."`
	Body     T
}

// none is a request without input.
type none struct{}
