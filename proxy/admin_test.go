package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
)

func fetch(t *testing.T, p *proc, path string) (int, string) {
	t.Helper()
	reply, err := http.Get("http://" + p.control.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return reply.StatusCode, string(body)
}

func get(t *testing.T, p *proc, path string) int {
	t.Helper()
	status, _ := fetch(t, p, path)
	return status
}

func view[T any](t *testing.T, p *proc, name string) T {
	t.Helper()
	status, body := fetch(t, p, "/api/v1/"+name)
	var out T
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
		t.Fatalf("%s: %d %s, %v", name, status, body, err)
	}
	return out
}

func TestAdminPort(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p := c.start(c.config(stateDir(t)))
	r := c.record("at all", anyRecord)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/startupz": 503, "/metrics": 200, "/version": 200, "/debug/pprof/": 200, "/nothing": 404} {
		eventually(t, path, func() bool { return get(t, p, path) == want })
	}
	if _, body := fetch(t, p, "/readyz?verbose"); !strings.Contains(body, "[-] table: not admitted yet") || !strings.Contains(body, "[+] draining") {
		t.Errorf("readyz says %q", body)
	}
	if s := view[report.Status](t, p, "status"); s.State != "starting" || s.Epoch != 0 {
		t.Errorf("status %+v", s)
	}
	c.admit(r)
	held := c.change(hold("h1", time.Minute))
	c.record("held", func(r topo.ProxyRecord) bool { return r.AppliedHold == "h1" })
	for _, path := range []string{"/readyz", "/startupz", "/readyz?strict"} {
		if status, body := fetch(t, p, path); status != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	s := view[report.Status](t, p, "status")
	if s.ID != r.ID || s.State != "serving" || s.Epoch != held.Epoch || s.Hold != "h1" || s.MemoryBytes == 0 || s.CPUSeconds == 0 || s.Uptime == 0 || s.TableAge != 0 {
		t.Errorf("status %+v", s)
	}
	want := report.Table{Epoch: held.Epoch, Slots: []report.Run{
		{Slots: "0-99", Group: "g1", Node: "127.0.0.1:7101", Held: true},
		{Slots: "100-16383", Group: "g1", Node: "127.0.0.1:7101"},
	}}
	if diff := cmp.Diff(want, view[report.Table](t, p, "table")); diff != "" {
		t.Error(diff)
	}
	if clients := view[[]report.Client](t, p, "clients"); len(clients) != 1 {
		t.Errorf("clients %+v", clients)
	}
}

func TestCommandsAndRatesComeFromTheLoops(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p := c.start(c.config(stateDir(t)))
	getID := command.Lookup([][]byte{[]byte("GET")}).ID
	p.engine.mu.Lock()
	p.engine.stats = stats.Snapshot{Commands: 7, Errors: 2, Clients: 3, Calls: make([]uint64, command.Count()), Failed: make([]uint64, command.Count())}
	for _, micros := range []uint64{10, 60, 900, 60_000_000} {
		p.engine.stats.Latency[stats.Write].Observe(micros)
	}
	p.engine.stats.Calls[getID], p.engine.stats.Failed[getID], p.engine.stats.Calls[0] = 5, 1, 2
	p.engine.mu.Unlock()
	eventually(t, "a sample", func() bool { return view[report.Status](t, p, "status").Commands == 7 })
	want := []report.Command{{Name: "other", Calls: 2}, {Name: "get", Calls: 5, Errors: 1}}
	if diff := cmp.Diff(want, view[[]report.Command](t, p, "commands")); diff != "" {
		t.Error(diff)
	}
	_, metrics := fetch(t, p, "/metrics")
	for _, line := range []string{
		`shardis_proxy_commands_total{command="get",status="ok"} 4`,
		`shardis_proxy_commands_total{command="get",status="error"} 1`,
		`shardis_proxy_clients_connected 3`,
		`shardis_proxy_state{state="starting"} 1`,
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="5e-05"} 1`,
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="0.0001"} 2`,
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="0.001"} 2`, // 900 may be up to 1023
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="0.0025"} 3`,
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="5"} 3`,
		`shardis_proxy_command_duration_seconds_bucket{command_class="write",le="+Inf"} 4`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(p.control))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestRatesOverTime(t *testing.T) {
	var r rates
	at := time.Unix(1000, 0)
	var s stats.Snapshot
	for range 20 {
		for range 100 {
			s.Latency[stats.Read].Observe(200)
		}
		s.Commands += 100
		r.add(s, at)
		at = at.Add(time.Second)
	}
	now := r.now()
	if now.opsPerSecond != 100 || now.latency.Count() != 1000 {
		t.Errorf("ops/s %v over %d", now.opsPerSecond, now.latency.Count())
	}
	if p50 := now.latency.Quantile(0.5); p50 < 200 || p50 > 250 {
		t.Errorf("p50 %d", p50)
	}
}

func TestLivezWatchesTheLoops(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	p := c.start(c.config(stateDir(t)))
	eventually(t, "alive", func() bool { return get(t, p, "/livez") == 200 })
	p.engine.mu.Lock()
	p.engine.hang = true
	p.engine.mu.Unlock()
	eventually(t, "not alive", func() bool {
		p.rates.mu.Lock() // As if the last answer was long ago.
		p.rates.samples[len(p.rates.samples)-1].at = time.Now().Add(-2 * loopPatience)
		p.rates.mu.Unlock()
		status, body := fetch(t, p, "/livez")
		return status == 503 && strings.Contains(body, "did not answer for 10s")
	})
}
