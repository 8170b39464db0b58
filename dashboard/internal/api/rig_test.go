package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// One etcd serves all tests of the package; each has a cluster of its own.
var (
	etcd     *embedded.Server
	clusters atomic.Int64
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "shardis-api-")
	if err == nil {
		etcd, err = embedded.Start(context.Background(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if left := ours(5 * time.Second); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines of ours are left over:\n%s\n", left)
		code = 1
	}
	etcd.Close()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// ours waits until no goroutine runs our code but this one, and gives what
// still does. The etcd in this process has too many of its own to compare all.
func ours(patience time.Duration) string {
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		all := make([]byte, 16<<20)
		all = all[:runtime.Stack(all, true)]
		var left []string
		for i, stack := range strings.Split(string(all), "\n\n") {
			if i > 0 && strings.Contains(stack, "shardis/dashboard/") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
	return ""
}

// rig is an API over real etcd and real HTTP. Every answer it gets is checked
// against the OpenAPI document.
type rig struct {
	t      *testing.T
	store  *store.Store
	api    *API
	access *access.Access
	url    string
	tokens map[access.Role]string
	router routers.Router

	checked atomic.Int64 // answers that were compared with the document
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	st, err := store.Open(store.Config{Endpoints: []string{etcd.Endpoint()}, Cluster: fmt.Sprintf("t%d", clusters.Add(1))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	v := view.New(st, "1.2.3", log)
	cfg := Config{
		Store: st, Client: coordinator.NewClient(st, log), View: v, Access: access.New(st), Log: log, Version: "1.2.3", Cluster: "test",
		Page: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") }),
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Run(ctx) }()
	server := httptest.NewUnstartedServer(a)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(16 << 10) // who does not read is noticed soon
		return ctx
	}
	server.Start()
	t.Cleanup(func() {
		a.CloseStreams()
		server.Close()
		cancel()
		<-done
	})
	r := &rig{t: t, store: st, api: a, access: cfg.Access, url: server.URL, tokens: map[access.Role]string{}}
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Admin} {
		_, text, err := cfg.Access.CreateToken(t.Context(), "test-"+string(role), role, "owner-"+string(role))
		if err != nil {
			t.Fatal(err)
		}
		r.tokens[role] = text
	}
	r.router = r.document()
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// document reads the API's own document, checks it and makes a router of it.
func (r *rig) document() routers.Router {
	r.t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(r.get("/openapi.json", "").body)
	if err != nil {
		r.t.Fatalf("the document can not be read: %v", err)
	}
	if err := doc.Validate(r.t.Context()); err != nil {
		r.t.Fatalf("the document is not valid: %v", err)
	}
	doc.Servers = openapi3.Servers{{URL: r.url + Base}}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		r.t.Fatal(err)
	}
	return router
}

type reply struct {
	*http.Response
	body []byte
}

func (p *reply) decode(t *testing.T, out any) {
	t.Helper()
	if err := json.Unmarshal(p.body, out); err != nil {
		t.Fatalf("decode %s: %v", p.body, err)
	}
}

// problem decodes a problem document and checks what all of them have.
func (p *reply) problem(t *testing.T) Problem {
	t.Helper()
	var out Problem
	if ct := p.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("%s %s: status %d, content type %q, body %s", p.Request.Method, p.Request.URL.Path, p.StatusCode, ct, p.body)
	}
	p.decode(t, &out)
	if out.Status != p.StatusCode || out.Type != "/problems/"+string(out.Code) || out.Title == "" || out.Detail == "" ||
		out.Instance == "" || out.Instance != p.Header.Get("X-Request-Id") {
		t.Errorf("incomplete problem document: %s", p.body)
	}
	return out
}

type option func(*http.Request)

func header(name, value string) option { return func(r *http.Request) { r.Header.Set(name, value) } }

// call makes a request with a token ("" for none) and checks the answer
// against the document. body is sent as it is when a string, else as JSON.
func (r *rig) call(method, path, token string, body any, options ...option) *reply {
	r.t.Helper()
	return r.callBy(http.DefaultClient, method, path, token, body, options...)
}

func (r *rig) callBy(client *http.Client, method, path, token string, body any, options ...option) *reply {
	r.t.Helper()
	var reader io.Reader
	if text, isText := body.(string); isText {
		reader = strings.NewReader(text)
	} else if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	url := r.url + Base + path
	if strings.HasPrefix(path, "//") {
		url = r.url + path[1:]
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, reader)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, o := range options {
		o(req)
	}
	answer, err := client.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = answer.Body.Close() }()
	out := &reply{Response: answer}
	if out.body, err = io.ReadAll(answer.Body); err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	r.conform(req, out)
	return out
}

// conform checks an answer against the document.
func (r *rig) conform(req *http.Request, p *reply) {
	r.t.Helper()
	if r.router == nil {
		return
	}
	plain := req.Clone(req.Context())
	route, params, err := r.router.FindRoute(plain)
	if err != nil {
		if strings.HasPrefix(req.URL.Path, Base) && p.StatusCode < 400 && req.URL.Path != Base+"/openapi.json" {
			r.t.Errorf("%s %s is answered but not documented: %v", req.Method, req.URL.Path, err)
		}
		return // Not an operation: health, pages, addresses that do not exist.
	}
	r.checked.Add(1)
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: plain, PathParams: params, Route: route},
		Status:                 p.StatusCode, Header: p.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	input.SetBodyBytes(p.body)
	if err := openapi3filter.ValidateResponse(req.Context(), input); err != nil {
		r.t.Errorf("%s %s: the answer does not fit the document: %v\n%s", req.Method, req.URL.Path, err, p.body)
	}
}

func (r *rig) get(path, token string, options ...option) *reply {
	r.t.Helper()
	return r.call(http.MethodGet, path, token, nil, options...)
}

// want makes a request and fails unless the status is as expected.
func (r *rig) want(status int, method, path, token string, body any, options ...option) *reply {
	r.t.Helper()
	p := r.call(method, path, token, body, options...)
	if p.StatusCode != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, p.StatusCode, status, p.body)
	}
	return p
}

// put stores values and waits until the view has seen them.
func (r *rig) put(pairs ...any) int64 {
	r.t.Helper()
	txn := r.store.Begin()
	for i := 0; i < len(pairs); i += 2 {
		txn = txn.Put(pairs[i].(string), pairs[i+1])
	}
	return r.commit(txn)
}

func (r *rig) commit(txn *store.Txn) int64 {
	r.t.Helper()
	rev, err := txn.Commit(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	if err := r.api.View.WaitFor(ctx, rev); err != nil {
		r.t.Fatalf("the view does not follow: %v", err)
	}
	return rev
}

// everything reads all keys of the cluster but those every request leaves.
func (r *rig) everything() map[string]string {
	r.t.Helper()
	items, _, err := r.store.List(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, i := range items {
		if !strings.HasPrefix(i.Key, store.PrefixAudit) && !strings.HasPrefix(i.Key, store.PrefixIdempotency) {
			out[i.Key] = string(i.Value)
		}
	}
	return out
}

// eventually waits until check gives no complaint.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}

// browser is a client that keeps cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// seed stores a cluster of two groups that own all slots, one proxy and one
// running operation.
func (r *rig) seed() *topo.Topology {
	r.t.Helper()
	now := time.Now().UTC()
	meta := topo.Meta{Format: topo.Format, Cluster: "c-1", Name: "test", History: "h-1", Scheme: topo.CRC16, Databases: 16, CreatedAt: now}
	top := &topo.Topology{
		Format: topo.Format, Cluster: "c-1", History: "h-1", Scheme: topo.CRC16, Databases: 16, Epoch: 7,
		Groups: []topo.Group{
			{ID: "g1", Nodes: []topo.Node{{Addr: "10.0.0.1:6379", Role: topo.Master, Zone: "a"}, {Addr: "10.0.0.2:6379", Role: topo.Replica}}},
			{ID: "g2", Nodes: []topo.Node{{Addr: "10.0.0.3:6379", Role: topo.Master}}},
		},
		Slots:   []topo.Run{{First: 0, Last: 8191, Group: "g1"}, {First: 8192, Last: 16383, Group: "g2"}},
		Proxies: []topo.Member{{ID: "p1", Incarnation: "i1", State: topo.Admitted}},
	}
	node := func(addr string, role topo.Role, keys int64) topo.NodeStatus {
		return topo.NodeStatus{
			Addr: addr, Reachable: true, Role: role, LinkUp: role == topo.Replica, RunID: "r-" + addr, Version: "7.0.15", UsedMemory: 1 << 20,
			Keys: map[string]int64{"0": keys}, OpsPerSecond: 10, SeenAt: now, Since: now,
		}
	}
	r.put(
		store.KeyMeta, meta, store.KeyTopology, top,
		store.PrefixObserved+"g1", topo.Observed{
			Format: topo.Format, Group: "g1", At: now, Hidden: 5,
			Nodes: []topo.NodeStatus{node("10.0.0.1:6379", topo.Master, 105), node("10.0.0.2:6379", topo.Replica, 105)},
		},
		store.PrefixObserved+"g2", topo.Observed{Format: topo.Format, Group: "g2", At: now, Nodes: []topo.NodeStatus{node("10.0.0.3:6379", topo.Master, 50)}},
		store.PrefixProxies+"p1", topo.ProxyRecord{
			Format: topo.Format, ID: "p1", Incarnation: "i1", Addr: "10.0.0.9:7000", Version: "1.2.3", PID: 42, StartedAt: now, AppliedEpoch: 6,
		},
		store.PrefixOperations+"op-1", operation("op-1", topo.OpRunning, now),
	)
	return top
}

func operation(id string, state topo.OperationState, at time.Time) topo.Operation {
	slots, _ := topo.ParseSlots("0-99", 16384)
	return topo.Operation{
		Format: topo.Format, ID: id, Kind: topo.OpMigrate, Goal: topo.GoalMove, Plan: "plan-1", State: state, CreatedBy: "ada", CreatedAt: at, StartedAt: at,
		Moves:    []topo.MoveProgress{{Move: topo.Move{Slots: slots, From: "g1", To: "g2"}, State: topo.MoveCopying, KeysDone: 10, KeysTotal: 40}},
		Progress: topo.Progress{SlotsTotal: 100, KeysDone: 10, KeysTotal: 40, Fraction: 0.25, BytesPerSecond: 1 << 20, ETASeconds: 30},
		Log:      []topo.Note{{At: at, Text: "started"}},
	}
}
