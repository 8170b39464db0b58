package coordinator

import (
	"context"
	"errors"
	"log/slog"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

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

// GroupInput is a group to be added.
type GroupInput struct {
	ID       string
	Nodes    []topo.Node // without roles the first is the master
	User     string      // administrator of the nodes; "" = default
	Password string
}

// NodeProbe is what looking at a node showed.
type NodeProbe struct {
	Addr   string       `json:"addr"`
	OK     bool         `json:"ok"` // no check failed
	Checks []topo.Check `json:"checks"`
}

// Change is what people may ask of an unfinished operation; nil parts stay as
// they are.
type Change struct {
	Wish   *topo.Wish
	Limits *topo.Limits
	Allow  []string // parked big keys to be copied in the hold; added to those allowed before
}

var errTodo = errors.New("not built yet")

// Init creates a cluster: its meta and an empty topology.
func (c *Client) Init(ctx context.Context, name string, scheme topo.Scheme, databases int) (topo.Meta, error) {
	return topo.Meta{}, errTodo
}

// Leader is the id of the coordinator that leads; a no-leader problem if none does.
func (c *Client) Leader(ctx context.Context) (string, error) { return "", errTodo }

// Plan makes a plan and keeps it for an hour. Nothing else is changed.
func (c *Client) Plan(ctx context.Context, req topo.PlanRequest) (*topo.Plan, error) {
	return nil, errTodo
}

// Probe looks at nodes without storing anything.
func (c *Client) Probe(ctx context.Context, addrs []string, secret topo.Secret) ([]NodeProbe, error) {
	return nil, errTodo
}

// AddGroup checks the nodes of a new group and queues the operation that adds it.
func (c *Client) AddGroup(ctx context.Context, in GroupInput, by string) (*topo.Operation, error) {
	return nil, errTodo
}

// RemoveGroup queues the removal of a group that owns no slots and owes no purge.
func (c *Client) RemoveGroup(ctx context.Context, id, by string) (*topo.Operation, error) {
	return nil, errTodo
}

// AddNode queues attaching a node to a group as a replica.
func (c *Client) AddNode(ctx context.Context, group string, node topo.Node, by string) (*topo.Operation, error) {
	return nil, errTodo
}

// RemoveNode queues the removal of a replica from its group.
func (c *Client) RemoveNode(ctx context.Context, group, addr, by string) (*topo.Operation, error) {
	return nil, errTodo
}

// Submit queues a stored plan.
func (c *Client) Submit(ctx context.Context, planID, by string, limits topo.Limits) (*topo.Operation, error) {
	return nil, errTodo
}

// Control changes what is wished of an unfinished operation.
func (c *Client) Control(ctx context.Context, operationID string, change Change, by string) (*topo.Operation, error) {
	return nil, errTodo
}
