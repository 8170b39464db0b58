package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"shardis/coordinator"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// These tests ask for work through the API and look at what is stored. No
// coordinator runs, so operations stay queued: what they do is tested there.

func TestPlanAndOperation(t *testing.T) {
	r := newRig(t)
	r.seed()
	r.put(store.PrefixOperations+"op-1", operation("op-1", topo.OpSucceeded, farAway()))
	top := *r.api.View.State().Topology
	next, err := top.Next(func(n *topo.Topology) {
		n.Groups = append(n.Groups, topo.Group{ID: "g3", Nodes: []topo.Node{{Addr: "10.0.0.5:6379", Role: topo.Master}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	r.put(store.KeyTopology, next)
	operator := r.tokens[access.Operator]

	answer := r.want(201, "POST", "/plans", operator, PlanInput{Goal: "slots"})
	var plan view.Plan
	answer.decode(t, &plan)
	total := 0
	for _, share := range plan.After {
		total += share.Slots
		if share.Slots < 5461 || share.Slots > 5462 {
			t.Errorf("group %s gets %d slots", share.Group, share.Slots)
		}
	}
	if total != 16384 || plan.BaseEpoch != uint64(next.Epoch) || len(plan.Moves) == 0 || plan.Summary == "" || answer.Header.Get("Location") != Base+"/plans/"+plan.ID {
		t.Errorf("plan %+v, location %s", plan, answer.Header.Get("Location"))
	}
	r.want(200, "GET", "/plans/"+plan.ID, r.tokens[access.Viewer], nil)

	start := OperationInput{Plan: plan.ID, Limits: &view.Limits{BytesPerSecond: 1000}}
	begun := r.want(202, "POST", "/operations", operator, start)
	var op view.Operation
	begun.decode(t, &op)
	if op.State != "queued" || op.CreatedBy != "test-operator" || op.Limits.BytesPerSecond != 1000 || op.Plan != plan.ID ||
		begun.Header.Get("Location") != Base+"/operations/"+op.ID {
		t.Errorf("operation %+v, location %s", op, begun.Header.Get("Location"))
	}
	// Own writes are read at once, also in lists.
	var list struct{ Items []view.Operation }
	r.want(200, "GET", "/operations?state=queued", operator, nil).decode(t, &list)
	if len(list.Items) != 1 || list.Items[0].ID != op.ID {
		t.Errorf("list after the write: %+v", list.Items)
	}
	if code := r.want(409, "POST", "/operations", operator, start).problem(t).Code; code != coordinator.SlotBusy {
		t.Errorf("the same plan again: code %s", code)
	}
	act := func(verb string, actions ...string) {
		t.Helper()
		var op view.Operation
		r.want(202, "POST", "/operations/"+list.Items[0].ID+"/actions/"+verb, operator, nil).decode(t, &op)
		if !slices.Equal(op.Actions, actions) {
			t.Errorf("after %s the actions are %v, want %v", verb, op.Actions, actions)
		}
	}
	act("pause", "resume", "cancel")
	act("resume", "pause", "cancel")
	r.want(202, "PATCH", "/operations/"+op.ID, operator, OperationPatch{&view.Limits{BytesPerSecond: 5}}).decode(t, &op)
	if op.Limits.BytesPerSecond != 5 {
		t.Errorf("limits after the change: %+v", op.Limits)
	}
	act("cancel")
	if code := r.want(409, "POST", "/operations/"+op.ID+"/actions/pause", operator, nil).problem(t).Code; code != coordinator.NotPausable {
		t.Errorf("pause of what is being cancelled: %s", code)
	}
	for path, code := range map[string]coordinator.Code{"/operations/op-1/actions/cancel": "operation-finished", "/operations/op-9/actions/cancel": "not-found"} {
		if got := r.call("POST", path, operator, nil).problem(t).Code; got != code {
			t.Errorf("POST %s: %s, want %s", path, got, code)
		}
	}
}

func TestStalePlan(t *testing.T) {
	r := newRig(t)
	top := r.seed()
	r.commit(r.store.Begin().Delete(store.PrefixOperations + "op-1"))
	operator := r.tokens[access.Operator]
	var plan view.Plan
	r.want(201, "POST", "/plans", operator, PlanInput{Goal: "move", Slots: "0-99", ToGroup: "g2"}).decode(t, &plan)
	next, err := top.Next(func(n *topo.Topology) { n.Assign(topo.SlotSet{{First: 50, Last: 60}}, "g2") })
	if err != nil {
		t.Fatal(err)
	}
	r.put(store.KeyTopology, next)
	before := r.everything()
	p := r.want(409, "POST", "/operations", operator, OperationInput{Plan: plan.ID}).problem(t)
	if p.Code != coordinator.PlanStale || p.Hint == "" {
		t.Errorf("stale plan: %+v", p)
	}
	if len(r.everything()) != len(before) {
		t.Error("a stale plan left something behind")
	}
}

func TestGroups(t *testing.T) {
	r := newRig(t)
	if _, err := r.api.Client.Init(t.Context(), "test", topo.CRC16, 16); err != nil {
		t.Fatal(err)
	}
	const secret = "node-s3cret-password"
	node := localredis.StartTest(t, localredis.Config{Password: secret})
	operator, admin := r.tokens[access.Operator], r.tokens[access.Admin]

	probe := r.want(200, "POST", "/node-probes", operator, ProbeInput{Nodes: []ProbeNode{{node.Addr}}, Password: secret})
	var probes struct{ Items []NodeProbe }
	probe.decode(t, &probes)
	if len(probes.Items) != 1 || !probes.Items[0].OK || len(probes.Items[0].Checks) < 3 {
		t.Errorf("probe: %s", probe.body)
	}
	before := r.everything()
	for name, tt := range map[string]struct {
		in    GroupInput
		code  coordinator.Code
		field string
	}{
		"wrong password":  {GroupInput{ID: "g1", Nodes: []NodeInput{{Addr: node.Addr}}, Password: "not-it"}, "", "/password"},
		"nobody there":    {GroupInput{ID: "g1", Nodes: []NodeInput{{Addr: "127.0.0.1:1"}}, Password: secret}, coordinator.NodeUnreachable, "/nodes/0/addr"},
		"two masters":     {GroupInput{ID: "g1", Nodes: []NodeInput{{Addr: node.Addr, Role: "master"}, {Addr: "127.0.0.1:1", Role: "master"}}, Password: secret}, coordinator.InvalidInput, ""},
		"same node twice": {GroupInput{ID: "g1", Nodes: []NodeInput{{Addr: node.Addr}, {Addr: node.Addr}}, Password: secret}, coordinator.InvalidInput, ""},
	} {
		p := r.call("POST", "/groups", operator, tt.in)
		doc := p.problem(t)
		if (tt.code != "" && doc.Code != tt.code) || (tt.field != "" && (len(doc.Errors) == 0 || doc.Errors[0].Pointer != tt.field)) || doc.Status >= 500 {
			t.Errorf("%s: %s", name, p.body)
		}
	}
	if after := r.everything(); len(after) != len(before) {
		t.Errorf("refused groups left something behind: %v", after)
	}
	p := r.want(202, "POST", "/groups", operator, GroupInput{ID: "g1", Nodes: []NodeInput{{Addr: node.Addr}}, Password: secret})
	var op view.Operation
	p.decode(t, &op)
	if op.Kind != "add-group" || op.Group != "g1" || !slices.Equal(op.Nodes, []string{node.Addr}) {
		t.Errorf("operation %s", p.body)
	}
	// The node's password is nowhere to be read again.
	for _, path := range []string{"/snapshot", "/operations", "/operations/" + op.ID, "/groups", "/audit"} {
		if body := string(r.want(200, "GET", path, admin, nil).body); strings.Contains(body, secret) {
			t.Errorf("GET %s shows the node's password", path)
		}
	}
	if code := r.want(404, "DELETE", "/groups/g9", admin, nil).problem(t).Code; code != coordinator.NotFound {
		t.Errorf("removing an unknown group: %s", code)
	}
}

func TestRemoveGroupWithSlots(t *testing.T) {
	r := newRig(t)
	r.seed()
	p := r.want(http.StatusConflict, "DELETE", "/groups/g1", r.tokens[access.Admin], nil).problem(t)
	if p.Code != coordinator.GroupHasSlots {
		t.Errorf("code %s", p.Code)
	}
	r.want(403, "DELETE", "/groups/g1", r.tokens[access.Operator], nil)
	// An address may be escaped in the path, as browsers do.
	for _, addr := range []string{"10.0.0.99:6379", url.PathEscape("10.0.0.99:6379"), "10.0.0.99%3A6379"} {
		p := r.call("DELETE", "/groups/g1/nodes/"+addr, r.tokens[access.Operator], nil).problem(t)
		if p.Code != coordinator.NotFound {
			t.Errorf("removing %s: %+v", addr, p)
		}
	}
}
