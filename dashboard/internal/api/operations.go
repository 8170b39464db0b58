package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// PlanInput says what a plan is to reach.
type PlanInput struct {
	Goal    string   `json:"goal" enum:"slots,drain,move,assign" doc:"slots: even numbers of slots; drain: take all from groups; move: slots to toGroup; assign: spread unassigned slots."`
	Groups  []string `json:"groups,omitempty" maxItems:"1000" doc:"drain: which groups; slots and assign: over these only, all when empty."`
	Slots   string   `json:"slots,omitempty" maxLength:"100000" example:"0-99,512" doc:"move: which slots."`
	ToGroup string   `json:"toGroup,omitempty" maxLength:"40" doc:"move: where to."`
}

// OperationInput starts a plan.
type OperationInput struct {
	Plan   string       `json:"plan" minLength:"1" maxLength:"100"`
	Limits *view.Limits `json:"limits,omitempty"`
}

// OperationPatch changes an operation while it runs.
type OperationPatch struct {
	Limits *view.Limits `json:"limits,omitempty"`
}

type operationQuery struct {
	State string `query:"state" enum:"queued,running,paused,cancelling,succeeded,failed,cancelled,unfinished" doc:"Only in this state; unfinished means any that is not final."`
	Kind  string `query:"kind" enum:"migrate,add-group,remove-group,add-node,remove-node,switchover,failover"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (a *API) registerOperations() {
	add(a, access.Operator, huma.Operation{
		OperationID: "make-plan", Method: http.MethodPost, Path: "/plans", Tags: []string{"plans"}, DefaultStatus: http.StatusCreated,
		Summary: "Preview moves: a dry run that is kept for an hour",
	}, a.makePlan)
	add(a, access.Viewer, read("get-plan", "/plans/{id}", "plans", "One plan"), a.plan)
	add(a, access.Operator, work("start-operation", http.MethodPost, "/operations", "operations", "Do exactly what a plan says"), a.start)
	add(a, access.Viewer, read("list-operations", "/operations", "operations", "Operations, newest first"), a.operations)
	add(a, access.Viewer, read("get-operation", "/operations/{id}", "operations", "One operation"),
		func(ctx context.Context, in *byID) (*Body[view.Operation], error) {
			op, err := a.View.Operation(ctx, in.ID)
			if errors.Is(err, store.ErrNotFound) {
				return nil, problem(coordinator.NotFound, "There is no operation "+in.ID+".")
			}
			return &Body[view.Operation]{op}, err
		})
	for verb, wish := range map[string]topo.Wish{"pause": topo.WishPause, "resume": topo.WishRun, "cancel": topo.WishCancel} {
		add(a, access.Operator, work(verb+"-operation", http.MethodPost, "/operations/{id}/actions/"+verb, "operations",
			upperFirst(verb)+" an operation"),
			func(ctx context.Context, in *byID) (*accepted, error) {
				op, err := a.Client.Control(ctx, in.ID, coordinator.Change{Wish: &wish}, callerOf(ctx).who.Name)
				return a.accepted(ctx, op, err)
			})
	}
	add(a, access.Operator, work("change-operation", http.MethodPatch, "/operations/{id}", "operations", "Change the speed of an operation"), a.change)
}

func (a *API) makePlan(ctx context.Context, in *struct{ Body PlanInput }) (*Made[view.Plan], error) {
	req := topo.PlanRequest{Goal: topo.Goal(in.Body.Goal), Groups: in.Body.Groups, ToGroup: in.Body.ToGroup}
	s := a.View.State()
	if s.Topology == nil {
		return nil, problem(codeNotInitialized, "There is nothing to plan yet.").hint("Create the cluster once with: shardis init")
	}
	if in.Body.Slots != "" {
		slots, err := topo.ParseSlots(in.Body.Slots, s.Topology.Scheme.Slots())
		if err != nil {
			return nil, invalid("/slots", err)
		}
		req.Slots = slots
	}
	if err := fits(&in.Body); err != nil {
		return nil, err
	}
	plan, err := a.Client.Plan(ctx, req)
	if err != nil {
		return nil, err
	}
	return &Made[view.Plan]{Base + "/plans/" + plan.ID, view.PlanOf(plan)}, nil
}

// fits says whether the fields given belong to the goal: a field that would be
// ignored is a mistake of the caller.
func fits(in *PlanInput) error {
	isMove := topo.Goal(in.Goal) == topo.GoalMove
	switch {
	case isMove && in.Slots == "":
		return invalid("/slots", errors.New("say which slots to move"))
	case isMove && in.ToGroup == "":
		return invalid("/toGroup", errors.New("say which group to move them to"))
	case isMove && len(in.Groups) > 0:
		return invalid("/groups", errors.New("does not go with the goal move: use toGroup"))
	case !isMove && in.Slots != "":
		return invalid("/slots", errors.New("goes with the goal move only"))
	case !isMove && in.ToGroup != "":
		return invalid("/toGroup", errors.New("goes with the goal move only"))
	case topo.Goal(in.Goal) == topo.GoalDrain && len(in.Groups) == 0:
		return invalid("/groups", errors.New("say which groups to drain"))
	}
	return nil
}

func (a *API) plan(ctx context.Context, in *byID) (*Body[view.Plan], error) {
	p, _, err := store.Load[*topo.Plan](ctx, a.Store, store.PrefixPlans+in.ID)
	if errors.Is(err, store.ErrNotFound) || (err == nil && p.ExpiresAt.Before(time.Now())) {
		return nil, problem(coordinator.NotFound, "There is no plan "+in.ID+".").hint("Plans are kept for an hour: make a new one.")
	}
	if err != nil {
		return nil, err
	}
	return ok(view.PlanOf(p))
}

func (a *API) start(ctx context.Context, in *struct{ Body OperationInput }) (*accepted, error) {
	var limits topo.Limits
	if in.Body.Limits != nil {
		limits = topo.Limits(*in.Body.Limits)
	}
	op, err := a.Client.Submit(ctx, in.Body.Plan, callerOf(ctx).who.Name, limits)
	return a.accepted(ctx, op, err)
}

func (a *API) operations(_ context.Context, in *operationQuery) (*Body[view.List[view.Operation]], error) {
	all := slices.DeleteFunc(a.View.Operations(), func(op view.Operation) bool {
		state := topo.OperationState(op.State)
		return (in.Kind != "" && op.Kind != in.Kind) ||
			(in.State == "unfinished" && state.Finished()) ||
			(in.State != "" && in.State != "unfinished" && op.State != in.State)
	})
	return ok(view.List[view.Operation]{Items: all[:min(len(all), in.Limit)]})
}

func (a *API) change(ctx context.Context, in *struct {
	ID   string `path:"id" minLength:"1" maxLength:"64"`
	Body OperationPatch
},
) (*accepted, error) {
	if in.Body.Limits == nil {
		return nil, invalid("/limits", errors.New("say what to change"))
	}
	limits := topo.Limits(*in.Body.Limits)
	op, err := a.Client.Control(ctx, in.ID, coordinator.Change{Limits: &limits}, callerOf(ctx).who.Name)
	return a.accepted(ctx, op, err)
}
