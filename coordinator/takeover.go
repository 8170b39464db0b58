package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	minDownAfter   = 500 * time.Millisecond
	maxDownAfter   = 10 * time.Minute
	maxMaintenance = 30 * 24 * time.Hour
	maxReason      = 200
)

// SettingsChange is what is to be changed of the settings; nil parts stay.
type SettingsChange struct {
	Durability *topo.Durability
	DownAfter  *time.Duration // 0: the default
	MaxLoss    *int64         // 0: no bound
	// Maintenance is for how long no replica takes over by itself; 0 ends it.
	Maintenance *time.Duration
	Reason      string // of the maintenance
}

// Switchover queues that a replica takes over from a master that is well: to,
// or the one with most when it is "".
func (c *Client) Switchover(ctx context.Context, group, to, by string) (*topo.Operation, error) {
	return c.takeOver(ctx, topo.OpSwitchover, group, to, by)
}

// Failover queues that a replica takes over from a master that does not answer,
// whatever stands against an automatic one.
func (c *Client) Failover(ctx context.Context, group, to, by string) (*topo.Operation, error) {
	return c.takeOver(ctx, topo.OpFailover, group, to, by)
}

func (c *Client) takeOver(ctx context.Context, kind topo.OperationKind, group, to, by string) (*topo.Operation, error) {
	_, g, err := c.group(ctx, group)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(g.Nodes, func(n topo.Node) bool { return n.Addr == to })
	switch {
	case to != "" && i < 0:
		return nil, &Problem{Code: InvalidInput, Field: "/to", Detail: fmt.Sprintf("group %s has no node %s", group, to)}
	case to != "" && g.Nodes[i].Role == topo.Master:
		return nil, &Problem{Code: InvalidInput, Field: "/to", Detail: fmt.Sprintf("node %s is the master of group %s already", to, group)}
	case len(g.Nodes) < 2:
		return nil, &Problem{Code: InvalidInput, Detail: fmt.Sprintf("group %s has no replica that could take over", group), Hint: "add one first"}
	}
	open, err := c.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	open = slices.DeleteFunc(open, func(op topo.Operation) bool { return op.Kind == topo.OpMigrate })
	if err := checkGroupFree(group, open); err != nil {
		return nil, err
	}
	o, _, err := store.Load[topo.Observed](ctx, c.store, store.PrefixObserved+group)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, unavailable(ctx, err)
	}
	if err := checkTakeOver(kind, g, &o, to); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	op := &topo.Operation{
		Format: topo.Format, ID: topo.NewID("op"), Kind: kind, State: topo.OpQueued,
		Request: &topo.GroupRequest{Group: group}, Master: &topo.NewMaster{From: g.Master(), To: to, Reason: "asked for by " + by, Last: now},
		CreatedBy: by, CreatedAt: now, UpdatedAt: now, Progress: topo.Progress{ETASeconds: -1},
	}
	if s := o.Node(g.Master()); kind == topo.OpFailover && s != nil {
		op.Master.Last = s.SeenAt.UTC()
	}
	_, err = c.store.Begin().Unchanged(store.PrefixOperations+op.ID, 0).Put(store.PrefixOperations+op.ID, op).Commit(ctx)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	return op, nil
}

// checkTakeOver refuses what can be seen not to work.
func checkTakeOver(kind topo.OperationKind, g *topo.Group, o *topo.Observed, to string) error {
	master := o.Node(g.Master())
	switch {
	case master == nil:
		return &Problem{Code: NodeUnreachable, Detail: fmt.Sprintf("no coordinator has looked at group %s yet", g.ID), Hint: "try again in a moment"}
	case kind == topo.OpSwitchover && !master.Reachable:
		return &Problem{Code: NodeUnreachable, Detail: fmt.Sprintf("the master %s does not answer: a switchover needs both", master.Addr),
			Hint: "a failover does not, and may lose writes"}
	case kind == topo.OpFailover && master.Reachable && master.Role == topo.Master && !master.Owes:
		return &Problem{Code: InvalidInput, Detail: fmt.Sprintf("the master %s answers: a failover would lose writes", master.Addr),
			Hint: "a switchover loses none"}
	}
	var reasons []string
	for _, n := range g.Nodes {
		if n.Role == topo.Master || (to != "" && n.Addr != to) {
			continue
		}
		s := o.Node(n.Addr)
		switch {
		case s == nil || !s.Reachable:
			reasons = append(reasons, n.Addr+" does not answer")
		case kind == topo.OpSwitchover && (!s.LinkUp || s.MasterAddr != g.Master()):
			reasons = append(reasons, n.Addr+" is not in sync with the master")
		default:
			return nil
		}
	}
	p := &Problem{Code: NodeUnreachable, Detail: "no replica can take over: " + strings.Join(reasons, ", ")}
	if to != "" {
		p.Field = "/to"
	}
	return p
}

// Settings reads the cluster's settings.
func (c *Client) Settings(ctx context.Context) (topo.Settings, error) {
	s, _, err := store.Load[topo.Settings](ctx, c.store, store.KeySettings)
	if errors.Is(err, store.ErrNotFound) {
		return topo.Settings{Format: topo.Format, Durability: topo.Relaxed}, nil
	}
	if err != nil {
		return s, unavailable(ctx, err)
	}
	return s, nil
}

// ChangeSettings changes the cluster's settings, and returns them.
func (c *Client) ChangeSettings(ctx context.Context, change SettingsChange, by string) (topo.Settings, error) {
	if err := change.check(); err != nil {
		return topo.Settings{}, err
	}
	if _, _, err := c.topology(ctx); err != nil {
		return topo.Settings{}, err
	}
	for {
		s, rev, err := store.Load[topo.Settings](ctx, c.store, store.KeySettings)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return s, unavailable(ctx, err)
		}
		change.apply(&s, by)
		_, err = c.store.Begin().Unchanged(store.KeySettings, rev).Put(store.KeySettings, s).Commit(ctx)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return s, unavailable(ctx, err)
		}
		return s, nil
	}
}

func (ch SettingsChange) check() error {
	invalid := func(field, format string, args ...any) error {
		return &Problem{Code: InvalidInput, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	switch d := ch.Durability; {
	case d != nil && *d != topo.Relaxed && *d != topo.Strict:
		return invalid("/durability", "durability %q is not known: want relaxed or strict", *d)
	case ch.DownAfter != nil && *ch.DownAfter != 0 && (*ch.DownAfter < minDownAfter || *ch.DownAfter > maxDownAfter):
		return invalid("/downAfterSeconds", "a master can not count as down after %s: want %s to %s, or 0 for the default", *ch.DownAfter, minDownAfter, maxDownAfter)
	case ch.MaxLoss != nil && *ch.MaxLoss < 0:
		return invalid("/maxLossBytes", "%d bytes are not possible: want a positive number, or 0 for no bound", *ch.MaxLoss)
	case ch.Maintenance != nil && (*ch.Maintenance < 0 || *ch.Maintenance > maxMaintenance):
		return invalid("/minutes", "a maintenance of %s is not possible: want up to %s", *ch.Maintenance, maxMaintenance)
	case len(ch.Reason) > maxReason:
		return invalid("/reason", "the reason has %d bytes: want at most %d", len(ch.Reason), maxReason)
	}
	return nil
}

func (ch SettingsChange) apply(s *topo.Settings, by string) {
	s.Format, s.By, s.At = topo.Format, by, time.Now().UTC()
	if ch.Durability != nil {
		s.Durability = *ch.Durability
	}
	if ch.DownAfter != nil {
		s.DownAfter = *ch.DownAfter
	}
	if ch.MaxLoss != nil {
		s.MaxLoss = *ch.MaxLoss
	}
	if ch.Maintenance != nil {
		s.MaintenanceUntil, s.MaintenanceReason = time.Time{}, ""
		if *ch.Maintenance > 0 {
			s.MaintenanceUntil, s.MaintenanceReason = s.At.Add(*ch.Maintenance), ch.Reason
		}
	}
	if s.Durability == "" {
		s.Durability = topo.Relaxed
	}
}
