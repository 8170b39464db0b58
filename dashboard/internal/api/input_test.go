package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
)

func farAway() time.Time { return time.Now().Add(time.Hour) }

// TestBadInput: the field and the reason are named, and nothing is stored.
func TestBadInput(t *testing.T) {
	r := newRig(t)
	r.seed()
	before := r.everything()
	tests := []struct {
		name, method, path string
		body               any
		status             int
		code               coordinator.Code
		pointer            string // of the first error, "" for none
		says               string
	}{
		{"no body", "POST", "/groups", nil, 400, codeMalformed, "", "required"},
		{"not JSON", "POST", "/groups", `{"id":`, 400, codeMalformed, "", "not valid JSON"},
		{"wrong type", "POST", "/groups", `{"id":5,"nodes":[{"addr":"10.0.0.9:1"}]}`, 422, "invalid-input", "/id", "string"},
		{"unknown field", "POST", "/groups", `{"id":"g5","nodes":[{"addr":"10.0.0.9:1","port":1}]}`, 422, "invalid-input", "/nodes/0/port", "not a known field"},
		{"missing field", "POST", "/groups", `{"id":"g5"}`, 422, "invalid-input", "/nodes", "is missing"},
		{"no nodes", "POST", "/groups", `{"id":"g5","nodes":[]}`, 422, "invalid-input", "/nodes", "length"},
		{"bad group id", "POST", "/groups", `{"id":"G 5","nodes":[{"addr":"10.0.0.9:1"}]}`, 422, "invalid-input", "/id", "not a valid id"},
		{"bad address", "POST", "/groups", `{"id":"g5","nodes":[{"addr":"10.0.0.9:1"},{"addr":"nowhere"}]}`, 422, "invalid-input", "/nodes/1/addr", "host:port"},
		{"bad role", "POST", "/groups", `{"id":"g5","nodes":[{"addr":"10.0.0.9:1","role":"leader"}]}`, 422, "invalid-input", "/nodes/0/role", "master"},
		{"bad address of a node", "POST", "/groups/g1/nodes", `{"addr":"x:y"}`, 422, "invalid-input", "/addr", "host:port"},
		{"bad probe", "POST", "/node-probes", `{"nodes":[{"addr":"10.0.0.1:99999"}]}`, 422, "invalid-input", "/nodes/0/addr", "port"},
		{"unknown goal", "POST", "/plans", `{"goal":"fun"}`, 422, "invalid-input", "/goal", "slots"},
		{"move without slots", "POST", "/plans", `{"goal":"move","toGroup":"g2"}`, 422, "invalid-input", "/slots", "which slots"},
		{"move nowhere", "POST", "/plans", `{"goal":"move","slots":"1-2"}`, 422, "invalid-input", "/toGroup", "which group"},
		{"slots out of range", "POST", "/plans", `{"goal":"move","slots":"16000-16384","toGroup":"g2"}`, 422, "invalid-input", "/slots", "outside 0-16383"},
		{"slots backwards", "POST", "/plans", `{"goal":"move","slots":"9-2","toGroup":"g2"}`, 422, "invalid-input", "/slots", "backwards"},
		{"drain nothing", "POST", "/plans", `{"goal":"drain"}`, 422, "invalid-input", "/groups", "which groups"},
		{"slots with another goal", "POST", "/plans", `{"goal":"slots","slots":"1"}`, 422, "invalid-input", "/slots", "goal move only"},
		{"no plan", "POST", "/operations", `{"plan":""}`, 422, "invalid-input", "/plan", "length"},
		{"negative limit", "POST", "/operations", `{"plan":"p","limits":{"bytesPerSecond":-1}}`, 422, "invalid-input", "/limits/bytesPerSecond", ">= 0"},
		{"empty patch", "PATCH", "/operations/op-1", `{}`, 422, "invalid-input", "/limits", "what to change"},
		{"unknown filter", "GET", "/operations?state=odd", nil, 422, "invalid-input", "query/state", "running"},
		{"unknown parameter", "GET", "/operations?stat=running", nil, 422, "invalid-input", "query/stat", "unknown"},
		{"no key", "GET", "/slots/lookup", nil, 422, "invalid-input", "query/key", "required"},
		{"unknown topic", "GET", "/events?topics=weather", nil, 422, "invalid-input", "", "topics"},
		{"another media type", "POST", "/plans", `goal=slots`, 415, codeMediaType, "", ""},
		{"malformed, with a password", "POST", "/users", `{"name":"eve","role":"viewer","password":"short-SECRET"[:9]}`, 400, codeMalformed, "", ""},
		{"password too short", "POST", "/users", `{"name":"eve","role":"viewer","password":"s3cret"}`, 422, "invalid-input", "/password", "length"},
		{"bad user name", "POST", "/users", `{"name":"a/b","role":"viewer","password":"s3cret-and-long"}`, 422, "invalid-input", "/name", "letters"},
		{"bad token role", "POST", "/tokens", `{"name":"ci","role":"root"}`, 422, "invalid-input", "/role", "viewer"},
		{"large body", "POST", "/groups", `{"id":"` + strings.Repeat("x", bodyLimit) + `"}`, 413, codeTooLarge, "", "1 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var options []option
			if tt.status == 415 {
				options = append(options, header("Content-Type", "application/x-www-form-urlencoded"))
			}
			p := r.call(tt.method, tt.path, r.tokens[access.Admin], tt.body, options...)
			doc := p.problem(t)
			if doc.Status != tt.status || doc.Code != tt.code {
				t.Errorf("got %d %s, want %d %s: %s", doc.Status, doc.Code, tt.status, tt.code, p.body)
			}
			if tt.pointer != "" && (len(doc.Errors) == 0 || doc.Errors[0].Pointer != tt.pointer) {
				t.Errorf("want pointer %s in %s", tt.pointer, p.body)
			}
			if !strings.Contains(string(p.body), tt.says) {
				t.Errorf("want %q in %s", tt.says, p.body)
			}
			if strings.Contains(string(p.body), "s3cret") || strings.Contains(string(p.body), "SECRET") {
				t.Errorf("the answer repeats a password: %s", p.body)
			}
		})
	}
	if after := r.everything(); !maps.Equal(before, after) {
		t.Errorf("refused input changed what is stored:\n%v\n%v", before, after)
	}
}

// TestProblems: every error that can reach a handler has one document.
func TestProblems(t *testing.T) {
	tests := []struct {
		err    error
		status int
		code   coordinator.Code
		field  string
	}{
		{&coordinator.Problem{Code: coordinator.PlanStale, Detail: "d", Hint: "h"}, 409, "plan-stale", ""},
		{fmt.Errorf("wrapped: %w", &coordinator.Problem{Code: coordinator.NodeNotEmpty, Field: "/nodes/0/addr", Detail: "d"}), 422, "node-not-empty", "/nodes/0/addr"},
		{&coordinator.Problem{Code: coordinator.GroupHasSlots, Detail: "d"}, 409, "group-has-slots", ""},
		{&coordinator.Problem{Code: "never-heard-of", Detail: "d"}, 500, "never-heard-of", ""},
		{fmt.Errorf("read x: %w", store.ErrNotFound), 404, "not-found", ""},
		{fmt.Errorf("commit: %w", store.ErrConflict), 409, "slot-busy", ""},
		{access.ErrDenied, 401, "login-failed", ""},
		{&access.InputError{Field: "name", Reason: "r"}, 422, "invalid-input", "/name"},
		{errors.New("dial 10.0.0.1: password s3cret refused"), 500, "internal", ""},
	}
	for _, tt := range tests {
		p := problemOf(tt.err)
		if p.Status != tt.status || p.Code != tt.code || p.Detail == "" || strings.Contains(p.Detail, "s3cret") {
			t.Errorf("%v: got %+v", tt.err, p)
		}
		if tt.field != "" && (len(p.Errors) != 1 || p.Errors[0].Pointer != tt.field) {
			t.Errorf("%v: want field %s, got %+v", tt.err, tt.field, p.Errors)
		}
	}
	for _, code := range coordinatorCodes(t) {
		if _, known := kinds[code]; !known {
			t.Errorf("code %s of the coordinator has no status", code)
		}
	}
	for code, k := range kinds {
		if k.title == "" || k.status < 400 || http.StatusText(k.status) == "" {
			t.Errorf("kind %s is incomplete", code)
		}
	}
}

// coordinatorCodes reads the codes from the source that defines them, so that
// a new one can not be forgotten here.
func coordinatorCodes(t *testing.T) []coordinator.Code {
	t.Helper()
	source, err := os.ReadFile("../../../coordinator/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []coordinator.Code
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Code = "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		out = append(out, coordinator.Code(m[1]))
	}
	if len(out) < 10 {
		t.Fatalf("only %d codes were found", len(out))
	}
	return out
}
