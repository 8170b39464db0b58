package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/report"
)

// The admin port: health for load balancers and orchestrators, metrics,
// profiles, and the read-only views of package report. It changes nothing and
// asks for no login, so it listens on loopback unless configured.
//
// Everything cheap is answered from the last sample (rates.go), at most a
// second old, so that a hanging loop can not hang the answer that says so.

const (
	loopPatience = 5 * time.Second // loops must have answered within so long to count as alive
	viewTimeout  = 5 * time.Second
	stopPatience = 2 * time.Second // for answers under way when the proxy ends
)

type admin struct {
	*control
	listener net.Listener
	handler  http.Handler
}

func newAdmin(c *control) (*admin, error) {
	listener, err := net.Listen("tcp", c.cfg.Admin.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin port can not listen on %s: %w: set admin.listen to a free address, for example 127.0.0.1:0", c.cfg.Admin.Listen, err)
	}
	a := &admin{control: c, listener: listener}
	a.handler = a.routes()
	return a, nil
}

func (a *admin) addr() net.Addr { return a.listener.Addr() }

// run serves until ctx ends.
func (a *admin) run(ctx context.Context) error {
	server := &http.Server{
		Handler: a.handler, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		if server.Shutdown(limit) != nil { // A profile may be under way.
			_ = server.Close()
		}
	})
	if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("admin port: %w", err)
	}
	<-ended
	return nil
}

func (a *admin) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newCollector(a.control))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", a.livez)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /startupz", a.startupz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.version()) })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	view := func(name string, get func() any) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, get()) })
		mux.Handle("GET /api/v1/"+name, http.TimeoutHandler(handler, viewTimeout, "the event loops do not answer"))
	}
	view("status", func() any { return a.status() })
	view("table", func() any { return a.table() })
	view("commands", func() any { return a.commands() })
	view("backends", func() any { return a.engine.Backends() })
	view("clients", func() any { return a.engine.Clients() })
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// check is one condition of being ready.
type check struct {
	name  string
	fault string // "" when it holds
}

// answer writes the outcome of checks: 200 when all hold, else 503. Each check
// is listed when asked for or when it fails.
func answer(w http.ResponseWriter, verbose bool, checks ...check) {
	var text strings.Builder
	status := http.StatusOK
	for _, c := range checks {
		switch {
		case c.fault != "":
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "[-] %s: %s\n", c.name, c.fault)
		case verbose:
			fmt.Fprintf(&text, "[+] %s\n", c.name)
		}
	}
	if status == http.StatusOK && !verbose {
		text.WriteString("ok\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String()))
}

// livez never looks beyond this process: restarting a proxy does not mend a
// node or etcd.
func (a *admin) livez(w http.ResponseWriter, r *http.Request) {
	loops := check{name: "loops"}
	if age := time.Since(a.rates.answeredAt()); age > loopPatience {
		loops.fault = fmt.Sprintf("the event loops did not answer for %s", age.Round(time.Second))
	}
	answer(w, r.URL.Query().Has("verbose"), loops)
}

func (a *admin) startupz(w http.ResponseWriter, r *http.Request) {
	answer(w, r.URL.Query().Has("verbose"), a.tableCheck())
}

// readyz says whether to send clients here. One dead group takes no proxy out:
// the others could not serve it either (?strict: it does). Neither does etcd:
// the last table is served for as long as it takes.
func (a *admin) readyz(w http.ResponseWriter, r *http.Request) {
	draining := check{name: "draining"}
	a.mu.Lock()
	if a.draining {
		draining.fault = "the proxy is going down"
	}
	a.mu.Unlock()
	answer(w, r.URL.Query().Has("verbose"), a.tableCheck(), draining, a.groupCheck(r.URL.Query().Has("strict")))
}

func (a *admin) tableCheck() check {
	table := check{name: "table"}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.topology == nil:
		table.fault = "no topology was read yet"
	case !a.serving:
		table.fault = "not admitted yet: a coordinator has to run"
	case a.engine.Applied() == 0:
		table.fault = "the event loops do not run the topology yet"
	}
	return table
}

func (a *admin) groupCheck(strict bool) check {
	groups := check{name: "groups"}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.topology == nil || len(a.unreachable) == 0 {
		return groups
	}
	down, masters := []string{}, 0
	for i := range a.topology.Groups {
		g := &a.topology.Groups[i]
		masters++
		for _, u := range a.unreachable {
			if u.Node == g.Master() {
				down = append(down, g.ID)
			}
		}
	}
	if len(down) == masters || strict && len(down) > 0 {
		groups.fault = "masters can not be reached: " + strings.Join(down, ", ")
	}
	return groups
}

func (a *admin) version() map[string]string {
	return map[string]string{"version": a.cfg.Version, "revision": buildRevision(), "go": runtime.Version()}
}

func buildRevision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// state is what the proxy is at, in a word. mu is held.
func (c *control) state() string {
	switch {
	case c.draining:
		return "draining"
	case c.serving:
		return "serving"
	}
	return "starting"
}

func (a *admin) status() report.Status {
	now := a.rates.now()
	cpu, memory := usage()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := report.Status{
		ID: a.id.ID, Incarnation: a.id.Incarnation, State: a.state(),
		TableAge: a.tableAge().Seconds(), Uptime: time.Since(a.startedAt).Seconds(),
		CPUSeconds: cpu, MemoryBytes: memory,
		Clients: now.snapshot.Clients, Commands: int64(now.snapshot.Commands), Errors: int64(now.snapshot.Errors),
		OpsPerSecond: now.opsPerSecond,
		P50Micros:    float64(now.latency.Quantile(0.50)), P99Micros: float64(now.latency.Quantile(0.99)),
	}
	if a.serving {
		s.Epoch = a.engine.Applied()
		if a.topology.Hold != nil {
			s.Hold = a.topology.Hold.ID
		}
	}
	return s
}

// tableAge is for how long etcd was not heard of. While the record stands under
// a live lease the watch would have brought anything newer. mu is held.
func (c *control) tableAge() time.Duration {
	if c.confirmed.IsZero() || c.registered {
		return 0
	}
	return time.Since(c.confirmed)
}

func (a *admin) table() report.Table {
	a.mu.Lock()
	t, serving := a.topology, a.serving
	a.mu.Unlock()
	table := report.Table{Slots: []report.Run{}}
	if !serving {
		return table
	}
	table.Epoch = t.Epoch
	for _, run := range t.Slots {
		table.Slots = append(table.Slots, cutRun(t, run)...)
	}
	return table
}

// cutRun splits a run where holding begins and ends.
func cutRun(t *topo.Topology, run topo.Run) []report.Run {
	held := func(s topo.Slot) bool { return t.Hold != nil && t.Hold.Slots.Contains(s) }
	var parts []report.Run
	master := t.Group(run.Group).Master()
	for first := int(run.First); first <= int(run.Last); {
		last := first
		for last < int(run.Last) && held(topo.Slot(last+1)) == held(topo.Slot(first)) {
			last++
		}
		parts = append(parts, report.Run{
			Slots: topo.SlotRange{First: topo.Slot(first), Last: topo.Slot(last)}.String(),
			Group: run.Group, Node: master, Held: held(topo.Slot(first)),
		})
		first = last + 1
	}
	return parts
}

func (a *admin) commands() []report.Command {
	snapshot := a.rates.now().snapshot
	rows := []report.Command{}
	for id, calls := range snapshot.Calls {
		if calls > 0 {
			rows = append(rows, report.Command{Name: commandName(id), Calls: int64(calls), Errors: int64(snapshot.Failed[id])})
		}
	}
	return rows
}

// commandName is the name of a row of counters; what is not in the table is
// counted together.
func commandName(id int) string {
	if c := command.ByID(uint16(id)); c != nil {
		return c.Name
	}
	return "other"
}
