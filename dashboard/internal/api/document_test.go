package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
)

// undocumented routes are not operations of the API.
var undocumented = []string{
	"GET /livez", "GET /readyz", "GET /version", "GET /metrics", "GET /problems/:code",
	"GET /api/v1/openapi.json", "GET /api/docs", "GET /api/docs/style.css",
}

func TestDocumentAndRoutesAgree(t *testing.T) {
	r := newRig(t)
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Role        string `json:"x-required-role"`
			Summary     string `json:"summary"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(r.get("/openapi.json", "").body, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("the document is OpenAPI %s", doc.OpenAPI)
	}
	var documented, served []string
	parameter := regexp.MustCompile(`\{([^}]+)\}`)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+Base+parameter.ReplaceAllString(path, ":$1"))
			if op.OperationID == "" || op.Summary == "" || op.Role == "" {
				t.Errorf("%s %s lacks an id, a summary or a role", method, path)
			}
		}
	}
	for _, route := range r.api.engine.Routes() {
		if name := route.Method + " " + route.Path; !slices.Contains(undocumented, name) {
			served = append(served, name)
		}
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented but not served, or served but not documented:\n%v\n%v", documented, served)
	}
}

// TestRoles asks every operation with every role. What must come back follows
// from the role in the document alone.
func TestRoles(t *testing.T) {
	r := newRig(t)
	r.seed()
	var doc struct {
		Paths map[string]map[string]struct {
			Role access.Role `json:"x-required-role"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(r.get("/openapi.json", "").body, &doc); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\{[^}]+\}`)
	count := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if path == "/events" {
				continue // It does not end: TestStreamNeedsLogin.
			}
			count++
			method, target := strings.ToUpper(method), parameter.ReplaceAllString(path, "nothing")
			for _, role := range []access.Role{"", access.Viewer, access.Operator, access.Admin} {
				status := r.call(method, target, r.tokens[role], nil).StatusCode
				switch {
				case op.Role == public:
					if status == http.StatusForbidden {
						t.Errorf("%s %s is public but answers %d", method, path, status)
					}
				case role == "":
					if status != http.StatusUnauthorized {
						t.Errorf("%s %s without login: status %d", method, path, status)
					}
				case !role.Allows(op.Role):
					if status != http.StatusForbidden {
						t.Errorf("%s %s as %s: status %d", method, path, role, status)
					}
				case status == http.StatusForbidden || status == http.StatusUnauthorized:
					t.Errorf("%s %s as %s: status %d", method, path, role, status)
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d operations were tried", count)
	}
}

// TestReads reads everything of a cluster; each answer is checked against the
// document by the rig.
func TestReads(t *testing.T) {
	r := newRig(t)
	top := r.seed()
	r.put(store.PrefixPlans+"plan-1", plan(top))
	for path, want := range map[string]string{
		"/cluster":                     `"slotCount":16384`,
		"/status":                      `All 16384 slots served. 2 groups, 1 proxy.`,
		"/snapshot":                    `"revision":`,
		"/slots":                       `{"slots":"0-99","group":"g1","state":"moving","to":"g2"}`,
		"/slots/lookup?key=%7Btag%7Dx": `"tag":"tag"`,
		"/groups":                      `"keys":100`,
		"/groups/g1":                   `"zone":"a"`,
		"/proxies":                     `"epochLag":1`,
		"/proxies/p1":                  `"pid":42`,
		"/operations":                  `"actions":["pause","cancel"]`,
		"/operations/op-1":             `25 %`,
		"/operations?state=unfinished": `"id":"op-1"`,
		"/operations?state=failed":     `{"items":[]}`,
		"/plans/plan-1":                `"slotCount":100`,
		"/auth/me":                     `"role":"admin"`,
		"/auth/state":                  `"setupNeeded":false`,
		"/tokens":                      `"owner":"owner-admin"`,
		"/users":                       `{"items":[]}`,
		"/audit":                       `{"items":[]}`,
	} {
		p := r.want(http.StatusOK, http.MethodGet, path, r.tokens[access.Admin], nil)
		if !strings.Contains(string(p.body), want) {
			t.Errorf("GET %s: want %s in %s", path, want, p.body)
		}
		if p.Header.Get("Cache-Control") != "no-store" || p.Header.Get("Shardis-Revision") == "" {
			t.Errorf("GET %s: headers %v", path, p.Header)
		}
	}
	for _, path := range []string{"/groups/g9", "/proxies/p9", "/operations/op-9", "/plans/plan-9", "/nothing"} {
		if p := r.want(http.StatusNotFound, http.MethodGet, path, r.tokens[access.Viewer], nil).problem(t); p.Detail == "" {
			t.Errorf("GET %s: no detail", path)
		}
	}
	if n := r.checked.Load(); n < 20 {
		t.Errorf("only %d answers were compared with the document", n)
	}
}

func plan(top *topo.Topology) topo.Plan {
	slots, _ := topo.ParseSlots("0-99", 16384)
	return topo.Plan{
		Format: topo.Format, ID: "plan-1", Request: topo.PlanRequest{Goal: topo.GoalMove, Slots: slots, ToGroup: "g2"}, BaseEpoch: top.Epoch,
		Moves:  []topo.Move{{Slots: slots, From: "g1", To: "g2"}},
		Before: []topo.Share{{Group: "g1", Slots: 8192}}, After: []topo.Share{{Group: "g1", Slots: 8092}},
		Keys: 40, Bytes: 4096, Checks: []topo.Check{{Name: "memory", Result: "pass", Detail: "enough"}},
		ExpiresAt: farAway(),
	}
}

func TestServicePages(t *testing.T) {
	r := newRig(t)
	eventually(t, func() string {
		if p := r.call(http.MethodGet, "//readyz?verbose", "", nil); p.StatusCode != 200 {
			return "not ready: " + string(p.body)
		}
		return ""
	})
	for path, want := range map[string]string{
		"//livez": "ok", "//version": `"version":"1.2.3"`, "//metrics": "shardis_sse_subscribers 0",
		"//api/docs": "/api/v1/groups/{id}", "//api/docs/style.css": "body", "//problems/plan-stale": "409",
		"//": "the page", "//groups/g1": "the page",
	} {
		if p := r.want(http.StatusOK, http.MethodGet, path, "", nil); !strings.Contains(string(p.body), want) {
			t.Errorf("GET %s: want %q in %s", path[1:], want, p.body)
		}
	}
	if code := r.want(http.StatusNotFound, http.MethodGet, "//api/v2/groups", "", nil).problem(t).Code; code != codeNoRoute {
		t.Errorf("unknown address of the API: code %s", code)
	}
	if code := r.want(http.StatusMethodNotAllowed, http.MethodPut, "/groups", "", nil).problem(t).Code; code != codeNoMethod {
		t.Errorf("unknown method: code %s", code)
	}
}
