package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"shardis/coordinator/internal/planner"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// maxDatabases bounds what a cluster may be created with; Redis has 16 unless
// told otherwise.
const maxDatabases = 1024

// Client is how others ask the coordinator for something: it checks the input,
// stores what is asked, and the leader picks it up. It talks to etcd, and to
// nodes to look at them; it changes no node. Every error that a person can do
// something about is a *Problem, and then nothing was stored.
type Client struct {
	store *store.Store
	log   *slog.Logger
}

// NewClient makes a client; log may be nil.
func NewClient(st *store.Store, log *slog.Logger) *Client {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Client{store: st, log: log}
}

// Change is what people may ask of an unfinished operation; nil parts stay as
// they are.
type Change struct {
	Wish   *topo.Wish
	Limits *topo.Limits
	Allow  []string // parked big keys to be copied in the hold; added to those allowed before
}

// Init creates a cluster: its meta and an empty topology.
func (c *Client) Init(ctx context.Context, name string, scheme topo.Scheme, databases int) (topo.Meta, error) {
	if name == "" {
		return topo.Meta{}, &Problem{Code: InvalidInput, Field: "/name", Detail: "the cluster has no name"}
	}
	if _, err := topo.ParseScheme(string(scheme)); err != nil {
		return topo.Meta{}, &Problem{Code: InvalidInput, Field: "/scheme", Detail: err.Error(), Err: err}
	}
	if databases < 1 || databases > maxDatabases {
		return topo.Meta{}, &Problem{Code: InvalidInput, Field: "/databases",
			Detail: fmt.Sprintf("%d databases are not possible: want 1 to %d", databases, maxDatabases)}
	}
	meta := topo.Meta{
		Format: topo.Format, Cluster: uuid.NewString(), Name: name, History: uuid.NewString(),
		Scheme: scheme, Databases: databases, CreatedAt: time.Now().UTC(),
	}
	first := &topo.Topology{
		Format: topo.Format, Cluster: meta.Cluster, History: meta.History,
		Scheme: scheme, Databases: databases, Epoch: 1,
	}
	_, err := c.store.Begin().
		Unchanged(store.KeyMeta, 0).Unchanged(store.KeyTopology, 0).
		Put(store.KeyMeta, meta).Put(store.KeyTopology, first).Commit(ctx)
	if errors.Is(err, store.ErrConflict) {
		return topo.Meta{}, &Problem{Code: ClusterExists, Detail: fmt.Sprintf("cluster %s exists already", name),
			Hint: "choose another name, or use the cluster as it is", Err: err}
	}
	if err != nil {
		return topo.Meta{}, unavailable(ctx, err)
	}
	c.log.Info("cluster created", "cluster", name, "scheme", string(scheme))
	return meta, nil
}

// Leader is the id of the coordinator that leads; a no-leader problem if none does.
func (c *Client) Leader(ctx context.Context) (string, error) {
	id, err := c.store.Leader(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return "", &Problem{Code: NoLeader, Detail: "no coordinator leads", Hint: "start one, or look at the logs of those that run", Err: err}
	}
	if err != nil {
		return "", unavailable(ctx, err)
	}
	return id, nil
}

// Plan makes a plan and keeps it for an hour. Nothing else is changed.
func (c *Client) Plan(ctx context.Context, req topo.PlanRequest) (*topo.Plan, error) {
	t, _, err := c.topology(ctx)
	if err != nil {
		return nil, err
	}
	all, err := store.LoadAll[topo.Observed](ctx, c.store, store.PrefixObserved)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	// A leader writes what it observes only when it changes: while there is one,
	// the figures are the present, whatever their age.
	now := time.Now().UTC()
	_, leaderErr := c.store.Leader(ctx)
	observed := make(map[string]topo.Observed, len(all))
	for _, o := range all {
		if leaderErr == nil {
			o.At = now
		}
		observed[o.Group] = o
	}
	plan, err := planner.Make(req, t, observed, now)
	if err != nil {
		return nil, planProblem(err)
	}
	plan.ID = topo.NewID("plan")
	lease, err := c.store.Timed(ctx, planner.Lifetime)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	if _, err := c.store.Begin().PutLease(store.PrefixPlans+plan.ID, plan, lease).Commit(ctx); err != nil {
		return nil, unavailable(ctx, err)
	}
	return plan, nil
}

func planProblem(err error) error {
	var why *planner.Error
	if !errors.As(err, &why) {
		return err
	}
	p := &Problem{Code: InvalidInput, Field: why.Field, Detail: why.Reason, Err: err}
	if why.Kind == planner.Stale {
		p.Code, p.Hint = PlanStale, "make a new plan"
	}
	return p
}

// Submit queues a stored plan. It may wait there for others; whether it still
// fits is checked again when its turn comes.
func (c *Client) Submit(ctx context.Context, planID, by string, limits topo.Limits) (*topo.Operation, error) {
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	plan, _, err := store.Load[topo.Plan](ctx, c.store, store.PrefixPlans+planID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &Problem{Code: NotFound, Field: "/plan", Detail: fmt.Sprintf("there is no plan %q", planID),
			Hint: "plans are kept for an hour: make a new one", Err: err}
	}
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	t, _, err := c.topology(ctx)
	if err != nil {
		return nil, err
	}
	if err := planner.Conflicts(&plan, t); err != nil {
		return nil, planProblem(err)
	}
	now := time.Now().UTC()
	op := &topo.Operation{
		Format: topo.Format, ID: topo.NewID("op"), Kind: topo.OpMigrate, Goal: plan.Request.Goal, Plan: plan.ID,
		State: topo.OpQueued, CreatedBy: by, CreatedAt: now, UpdatedAt: now,
		Progress: topo.Progress{SlotsTotal: plan.Slots(), KeysTotal: plan.Keys, BytesTotal: plan.Bytes, ETASeconds: -1},
	}
	for _, m := range plan.Moves {
		op.Moves = append(op.Moves, topo.MoveProgress{Move: m, State: topo.MovePending})
	}
	control := topo.Control{Format: topo.Format, Limits: limits, By: by, At: now}
	for {
		// Whether the slots are free is decided and written against the last
		// submission, so that of two that want the same only one is queued.
		last, err := c.store.Get(ctx, store.KeySubmitted)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, unavailable(ctx, err)
		}
		open, err := c.unfinished(ctx)
		if err != nil {
			return nil, err
		}
		if err := checkBusy(&plan, open); err != nil {
			return nil, err
		}
		_, err = c.store.Begin().Unchanged(store.KeySubmitted, last.Rev).Exists(store.PrefixPlans+planID).
			Put(store.KeySubmitted, op.ID).
			Put(store.PrefixOperations+op.ID, op).Put(store.PrefixControls+op.ID, control).Commit(ctx)
		if err == nil {
			return op, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, unavailable(ctx, err)
		}
		if _, err := c.store.Get(ctx, store.PrefixPlans+planID); errors.Is(err, store.ErrNotFound) {
			return nil, &Problem{Code: PlanStale, Field: "/plan", Detail: fmt.Sprintf("plan %s ran out", planID), Hint: "make a new plan", Err: err}
		}
	}
}

// checkBusy refuses a plan for slots that another operation is about to move,
// and groups that one is about to remove.
func checkBusy(plan *topo.Plan, open []topo.Operation) error {
	var wanted topo.SlotSet
	var groups []string
	for _, m := range plan.Moves {
		wanted = wanted.Union(m.Slots)
		groups = append(groups, m.From, m.To)
	}
	for _, op := range open {
		for _, m := range op.Moves {
			if !m.State.Finished() && m.Slots.Overlaps(wanted) {
				return &Problem{Code: SlotBusy, Field: "/plan",
					Detail: fmt.Sprintf("operation %s moves some of these slots already (%s from %s to %s)", op.ID, m.Slots, m.From, m.To),
					Hint:   "wait until it has ended, or cancel it"}
			}
		}
		if op.Kind == topo.OpRemoveGroup && slices.Contains(groups, op.Request.Group) {
			return &Problem{Code: GroupBusy, Field: "/plan", Detail: fmt.Sprintf("operation %s removes group %s", op.ID, op.Request.Group),
				Hint: "make a new plan when it has ended"}
		}
	}
	return nil
}

func checkLimits(limits topo.Limits) error {
	if limits.BytesPerSecond < 0 {
		return &Problem{Code: InvalidInput, Field: "/limits/bytesPerSecond",
			Detail: fmt.Sprintf("%d bytes a second are not possible: want a positive number, or 0 for no bound", limits.BytesPerSecond)}
	}
	return nil
}

// Control changes what is wished of an unfinished operation, and returns it.
func (c *Client) Control(ctx context.Context, operationID string, change Change, by string) (*topo.Operation, error) {
	if change.Limits != nil {
		if err := checkLimits(*change.Limits); err != nil {
			return nil, err
		}
	}
	for {
		op, _, err := store.Load[topo.Operation](ctx, c.store, store.PrefixOperations+operationID)
		if errors.Is(err, store.ErrNotFound) {
			return nil, &Problem{Code: NotFound, Detail: fmt.Sprintf("there is no operation %q", operationID), Err: err}
		}
		if err != nil {
			return nil, unavailable(ctx, err)
		}
		control, rev, err := store.Load[topo.Control](ctx, c.store, store.PrefixControls+operationID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, unavailable(ctx, err)
		}
		if err := checkWish(&op, control, change); err != nil {
			return nil, err
		}
		if change.Wish != nil {
			control.Wish = *change.Wish
		}
		if change.Limits != nil {
			control.Limits = *change.Limits
		}
		for _, key := range change.Allow {
			if !slices.Contains(control.Allow, key) {
				control.Allow = append(control.Allow, key)
			}
		}
		control.Format, control.By, control.At = topo.Format, by, time.Now().UTC()
		_, err = c.store.Begin().Exists(store.PrefixOperations+operationID).Unchanged(store.PrefixControls+operationID, rev).
			Put(store.PrefixControls+operationID, control).Commit(ctx)
		if errors.Is(err, store.ErrConflict) {
			continue // somebody else controls it, too: look again
		}
		if err != nil {
			return nil, unavailable(ctx, err)
		}
		return &op, nil
	}
}

// checkWish says what can be wished of an operation in its state.
func checkWish(op *topo.Operation, now topo.Control, change Change) error {
	if op.State.Finished() {
		return &Problem{Code: OperationFinished, Detail: fmt.Sprintf("operation %s has ended: it %s", op.ID, op.State)}
	}
	if change.Wish == nil {
		return nil
	}
	switch *change.Wish {
	case topo.WishRun, topo.WishPause, topo.WishCancel:
	default:
		return &Problem{Code: InvalidInput, Field: "/wish", Detail: fmt.Sprintf("%q can not be wished of an operation", *change.Wish)}
	}
	switch {
	case now.Wish == topo.WishCancel && *change.Wish != topo.WishCancel:
		return &Problem{Code: NotPausable, Detail: fmt.Sprintf("operation %s is being cancelled", op.ID)}
	case op.Kind != topo.OpMigrate && *change.Wish == topo.WishPause:
		return &Problem{Code: NotPausable, Detail: fmt.Sprintf("operation %s can not be paused: it only takes a moment", op.ID)}
	case op.Kind != topo.OpMigrate && *change.Wish == topo.WishCancel && op.State != topo.OpQueued && !cancellable(op):
		return &Problem{Code: NotPausable, Detail: fmt.Sprintf("operation %s can not be cancelled any more: it is at %q", op.ID, op.Step)}
	}
	return nil
}

// topology reads the newest, or says that there is no cluster.
func (c *Client) topology(ctx context.Context) (*topo.Topology, int64, error) {
	item, err := c.store.Get(ctx, store.KeyTopology)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, &Problem{Code: NotFound, Detail: "the cluster does not exist yet", Hint: "create it with shardis init", Err: err}
	}
	if err != nil {
		return nil, 0, unavailable(ctx, err)
	}
	t, err := topo.DecodeTopology(item.Value)
	return t, item.Rev, err
}

// unfinished lists the operations that have not ended, oldest first.
func (c *Client) unfinished(ctx context.Context) ([]topo.Operation, error) {
	all, err := store.LoadAll[topo.Operation](ctx, c.store, store.PrefixOperations)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	return slices.DeleteFunc(all, func(op topo.Operation) bool { return op.State.Finished() }), nil
}

// unavailable is the problem with etcd behind err, unless the caller gave up.
func unavailable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return &Problem{Code: StoreUnavailable, Detail: "etcd does not answer as it should: " + err.Error(),
		Hint: "proxies keep serving meanwhile; look whether etcd runs", Err: err}
}
