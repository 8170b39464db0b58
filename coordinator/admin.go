package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	readyWithin    = 2 * time.Second
	headerWithin   = 5 * time.Second
	shutdownWithin = time.Second
)

// listen opens the admin port. The returned function serves it until ctx ends.
func (c *candidate) listen(addr string) (serve func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin port: can not listen on %s: %w: choose another port or stop what uses it", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"component": "coordinator", "version": c.cfg.Version})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.counts.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerWithin}
	c.log.Info("admin port serves", "addr", listener.Addr().String())
	return func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		select {
		case err := <-ended:
			return fmt.Errorf("admin port: %w", err)
		case <-ctx.Done():
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWithin)
		defer cancel()
		if err := server.Shutdown(bounded); err != nil {
			_ = server.Close()
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("admin port: %w", err)
		}
		return nil
	}, nil
}

// readyz: etcd answers; whether this coordinator leads or stands by does not
// matter.
func (c *candidate) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if err := c.st.Ping(ctx); err != nil {
		answer(w, http.StatusServiceUnavailable, "etcd: "+err.Error())
		return
	}
	if !r.URL.Query().Has("verbose") {
		answer(w, http.StatusOK, "ok")
		return
	}
	role := "standing by"
	if c.current() != nil {
		role = "leading"
	}
	answer(w, http.StatusOK, "etcd: ok\nelection: "+role)
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}
