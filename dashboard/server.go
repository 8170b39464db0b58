// Package dashboard is the web page and the REST API of a cluster as one
// server. It keeps nothing of its own: any number may run for one cluster, and
// any of them can be restarted at any time.
package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/api"
	"shardis/dashboard/internal/view"
	"shardis/web"
)

// Bounds of a connection. There is no write timeout: event streams do not end,
// each of their writes has a deadline of its own.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	headerLimit   = 64 << 10
	firstTry      = 200 * time.Millisecond // until etcd answers at the start
	lastTry       = 3 * time.Second
)

// Server is one dashboard.
type Server struct {
	cfg Config
	log *slog.Logger

	listening chan struct{} // closed once addr is set
	addr      string
}

// New checks the configuration. It does no I/O: Run does. The log should say
// which part of the product it is of.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if cfg.Notice == nil {
		cfg.Notice = os.Stderr
	}
	return &Server{cfg: cfg, log: log.With("cluster", cfg.Cluster), listening: make(chan struct{})}, nil
}

// Addr waits until the server listens and gives its address, "" when ctx ends
// first.
func (s *Server) Addr(ctx context.Context) string {
	select {
	case <-s.listening:
		return s.addr
	case <-ctx.Done():
		return ""
	}
}

// Run serves until ctx ends, then lets requests under way finish. It returns
// nil after that, and an error when the dashboard can not start or go on.
//
// etcd need not answer for the server to start: the page says so and shows the
// state as soon as there is one.
func (s *Server) Run(ctx context.Context) error {
	st, err := s.cfg.store(s.log)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	setup, bootstrap, err := s.tokens()
	if err != nil {
		return err
	}
	secure := s.cfg.TLS.CertFile != ""
	gate, seen := access.New(st), view.New(st, s.cfg.Version, s.log)
	handler, err := api.New(api.Config{
		Store: st, Client: coordinator.NewClient(st, s.log), View: seen, Access: gate, Page: web.Handler(), Log: s.log,
		Version: s.cfg.Version, Cluster: s.cfg.Cluster, SecureCookie: secure || s.cfg.SecureCookie,
		TrustedOrigins: s.cfg.TrustedOrigins, TrustedProxies: s.cfg.TrustedProxies,
	})
	if err != nil {
		return err
	}
	listener, err := s.listen()
	if err != nil {
		return err
	}

	s.addr = listener.Addr().String()
	close(s.listening)

	// The view outlives ctx by the requests that still need it.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end()
	parts.Go(func() { _ = seen.Run(life) }) // ends with life only
	parts.Go(func() {
		if err := s.openDoors(ctx, gate, setup, bootstrap); err != nil && ctx.Err() == nil {
			s.log.Error("nobody new can be let in", "err", err)
		}
	})
	return s.serve(ctx, listener, handler)
}

// serve runs the HTTP server until ctx ends.
func (s *Server) serve(ctx context.Context, listener net.Listener, handler *api.API) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerLimit,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(handler.CloseStreams)
	s.log.Info("dashboard serves", "addr", s.url())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", s.cfg.Listen, err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownWait)
	defer cancel()
	if err := server.Shutdown(wait); err != nil {
		s.log.Warn("requests under way are cut off", "err", err)
		_ = server.Close()
	}
	<-failed
	return nil
}

func (s *Server) listen() (net.Listener, error) {
	var config *tls.Config
	if s.cfg.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.cfg.TLS.CertFile, s.cfg.TLS.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.cert_file: %w", err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	listener, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("can not listen on %s: %w: choose another address with listen, or stop what uses it", s.cfg.Listen, err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	return listener, nil
}

func (s *Server) url() string {
	if s.cfg.TLS.CertFile != "" {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// tokens reads the tokens that the configuration names.
func (s *Server) tokens() (setup, bootstrap string, err error) {
	if setup, err = firstLine(s.cfg.SetupTokenFile, "setup_token_file"); err != nil {
		return "", "", err
	}
	if bootstrap, err = firstLine(s.cfg.BootstrapTokenFile, "bootstrap_token_file"); err != nil {
		return "", "", err
	}
	if s.cfg.BootstrapToken != "" {
		bootstrap = s.cfg.BootstrapToken
	}
	if bootstrap != "" {
		if err := access.CheckToken(bootstrap); err != nil {
			return "", "", fmt.Errorf("bootstrap_token_file: %w", err)
		}
	}
	return setup, bootstrap, nil
}

// openDoors makes the given tokens work, and where nobody can log in yet,
// offers the set-up. It waits for etcd.
func (s *Server) openDoors(ctx context.Context, gate *access.Access, setup, bootstrap string) error {
	return retry(ctx, func(ctx context.Context) error {
		if bootstrap != "" {
			if err := gate.Preset(ctx, bootstrap); err != nil {
				return err
			}
		}
		token, err := gate.OfferSetup(ctx, setup)
		if err != nil || token == "" {
			return err
		}
		if setup != "" {
			token = "the one in " + s.cfg.SetupTokenFile
		}
		_, err = io.WriteString(s.cfg.Notice, fmt.Sprintf("\nNobody can log in yet. Open %s and make the first user.\nSet-up token (works once): %s\n\n", s.url(), token))
		return err
	})
}

// retry calls f until it succeeds, as long as etcd does not answer.
func retry(ctx context.Context, f func(context.Context) error) error {
	delay := firstTry
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		cancel()
		if err == nil || (!store.Unavailable(err) && !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		delay = min(2*delay, lastTry)
	}
}
