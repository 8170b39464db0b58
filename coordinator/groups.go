package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// GroupInput is a group to be added.
type GroupInput struct {
	ID       string
	Nodes    []topo.Node // without roles the first is the master
	User     string      // administrator of the nodes; "" = default
	Password string
}

// AddGroup checks the nodes of a new group and queues the operation that adds it.
func (c *Client) AddGroup(ctx context.Context, in GroupInput, by string) (*topo.Operation, error) {
	nodes, err := checkGroupInput(in)
	if err != nil {
		return nil, err
	}
	t, _, err := c.topology(ctx)
	if err != nil {
		return nil, err
	}
	if t.Group(in.ID) != nil {
		return nil, groupExists(in.ID)
	}
	open, err := c.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkGroupFree(in.ID, open); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if err := checkNodeFree(n.Addr, fmt.Sprintf("/nodes/%d/addr", i), t, open); err != nil {
			return nil, err
		}
	}
	secret := topo.Secret{Format: topo.Format, User: in.User, Password: in.Password}
	if err := checkNodes(ctx, nodes, secret, t.Databases); err != nil {
		return nil, err
	}
	return c.queue(ctx, topo.OpAddGroup, in.ID, nodes, by, func(txn *store.Txn) {
		txn.Unchanged(store.PrefixSecrets+in.ID, 0).Put(store.PrefixSecrets+in.ID, secret)
	}, groupExists(in.ID))
}

func groupExists(id string) *Problem {
	return &Problem{Code: GroupExists, Field: "/id", Detail: fmt.Sprintf("group %s exists already", id), Hint: "choose another id, or add nodes to the group"}
}

// checkGroupInput checks what can be checked without looking anywhere, and
// gives the nodes with their roles.
func checkGroupInput(in GroupInput) ([]topo.Node, error) {
	if err := topo.CheckID(in.ID); err != nil {
		return nil, &Problem{Code: InvalidInput, Field: "/id", Detail: err.Error(), Err: err}
	}
	if len(in.Nodes) == 0 || len(in.Nodes) > maxNodes {
		return nil, &Problem{Code: InvalidInput, Field: "/nodes", Detail: fmt.Sprintf("%d nodes are given: want 1 to %d", len(in.Nodes), maxNodes)}
	}
	nodes := slices.Clone(in.Nodes)
	master := -1
	for i, n := range nodes {
		field := fmt.Sprintf("/nodes/%d", i)
		if err := topo.CheckAddr(n.Addr); err != nil {
			return nil, &Problem{Code: InvalidInput, Field: field + "/addr", Detail: err.Error(), Err: err}
		}
		if slices.ContainsFunc(nodes[:i], func(o topo.Node) bool { return o.Addr == n.Addr }) {
			return nil, &Problem{Code: InvalidInput, Field: field + "/addr", Detail: fmt.Sprintf("node %s is given twice", n.Addr)}
		}
		switch n.Role {
		case topo.Master:
			if master >= 0 {
				return nil, &Problem{Code: InvalidInput, Field: field + "/role",
					Detail: fmt.Sprintf("%s is a second master beside %s: a group has one", n.Addr, nodes[master].Addr)}
			}
			master = i
		case topo.Replica, "":
		default:
			return nil, &Problem{Code: InvalidInput, Field: field + "/role", Detail: fmt.Sprintf("role %q is not known: want master or replica", n.Role)}
		}
	}
	if master < 0 {
		master = slices.IndexFunc(nodes, func(n topo.Node) bool { return n.Role == "" })
	}
	if master < 0 {
		return nil, &Problem{Code: InvalidInput, Field: "/nodes", Detail: "all nodes are to be replicas: a group needs a master"}
	}
	for i := range nodes {
		nodes[i].Role = topo.Replica
	}
	nodes[master].Role = topo.Master
	return nodes, nil
}

// checkNodes looks at the nodes of a new group.
func checkNodes(ctx context.Context, nodes []topo.Node, secret topo.Secret, databases int) error {
	addrs := make([]string, len(nodes))
	master := ""
	for i, n := range nodes {
		addrs[i] = n.Addr
		if n.Role == topo.Master {
			master = n.Addr
		}
	}
	reports := probeAll(ctx, addrs, secret)
	for i, n := range nodes {
		m := member{field: fmt.Sprintf("/nodes/%d/addr", i), addr: n.Addr, role: n.Role, master: master, secret: secret, databases: databases}
		if p := m.refuse(ctx, &reports[i]); p != nil {
			return p
		}
		for j := range i { // one server under two addresses would follow itself
			if id := reports[i].Status.RunID; id != "" && id == reports[j].Status.RunID {
				return &Problem{Code: InvalidInput, Field: m.field, Detail: fmt.Sprintf("nodes %s and %s are the same server", addrs[j], n.Addr)}
			}
		}
	}
	return nil
}

// checkGroupFree refuses a group that an unfinished operation is at work on.
func checkGroupFree(id string, open []topo.Operation) error {
	for i := range open {
		if slices.Contains(groupsOf(&open[i]), id) {
			return &Problem{Code: GroupBusy, Detail: fmt.Sprintf("operation %s (%s) is not done with group %s", open[i].ID, open[i].Kind, id),
				Hint: "wait until it has ended, or cancel it"}
		}
	}
	return nil
}

// checkNodeFree refuses a node that is in a group, or about to be.
func checkNodeFree(addr, field string, t *topo.Topology, open []topo.Operation) error {
	if g := t.GroupOfNode(addr); g != nil {
		return &Problem{Code: InvalidInput, Field: field, Detail: fmt.Sprintf("node %s belongs to group %s already", addr, g.ID)}
	}
	for _, op := range open {
		if op.Request != nil && slices.ContainsFunc(op.Request.Nodes, func(n topo.Node) bool { return n.Addr == addr }) {
			return &Problem{Code: GroupBusy, Field: field, Detail: fmt.Sprintf("operation %s (%s) is not done with node %s", op.ID, op.Kind, addr)}
		}
	}
	return nil
}

// RemoveGroup queues the removal of a group that owns no slots and owes no purge.
func (c *Client) RemoveGroup(ctx context.Context, id, by string) (*topo.Operation, error) {
	t, g, err := c.group(ctx, id)
	if err != nil {
		return nil, err
	}
	if n := t.SlotsOf(id).Len(); n > 0 {
		return nil, &Problem{Code: GroupHasSlots, Detail: fmt.Sprintf("group %s still owns %d slots", id, n), Hint: "drain it first"}
	}
	open, err := c.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkGroupFree(id, open); err != nil {
		return nil, err
	}
	debts, _, err := c.store.List(ctx, store.PrefixPurges+id+"/")
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	if len(debts) > 0 {
		return nil, &Problem{Code: GroupNotEmpty, Detail: fmt.Sprintf("group %s still holds keys of slots that moved away, which are being removed", id),
			Hint: "try again in a minute"}
	}
	return c.queue(ctx, topo.OpRemoveGroup, id, g.Nodes, by, nil, nil)
}

// AddNode queues attaching a node to a group as a replica.
func (c *Client) AddNode(ctx context.Context, group string, n topo.Node, by string) (*topo.Operation, error) {
	t, g, err := c.group(ctx, group)
	if err != nil {
		return nil, err
	}
	if err := topo.CheckAddr(n.Addr); err != nil {
		return nil, &Problem{Code: InvalidInput, Field: "/addr", Detail: err.Error(), Err: err}
	}
	if n.Role != "" && n.Role != topo.Replica {
		return nil, &Problem{Code: InvalidInput, Field: "/role", Detail: fmt.Sprintf("a node joins group %s as a replica, not as a %s", group, n.Role)}
	}
	n.Role = topo.Replica
	open, err := c.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNodeFree(n.Addr, "/addr", t, open); err != nil {
		return nil, err
	}
	if err := checkGroupStays(group, open); err != nil {
		return nil, err
	}
	secret, _, err := store.Load[topo.Secret](ctx, c.store, store.PrefixSecrets+group)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	reports := probeAll(ctx, []string{n.Addr, g.Master()}, secret)
	m := member{field: "/addr", addr: n.Addr, role: n.Role, master: g.Master(), secret: secret, databases: t.Databases}
	if p := m.refuse(ctx, &reports[0]); p != nil {
		if p.Field == "/password" { // it is not in this input
			p.Field, p.Hint = "/addr", "the node needs the same administrator and password as the others of the group"
		}
		return nil, p
	}
	if id := reports[0].Status.RunID; id != "" && id == reports[1].Status.RunID {
		return nil, &Problem{Code: InvalidInput, Field: "/addr", Detail: fmt.Sprintf("node %s is the master of group %s under another address", n.Addr, group)}
	}
	return c.queue(ctx, topo.OpAddNode, group, []topo.Node{n}, by, nil, nil)
}

// checkGroupStays refuses work on a group that is about to be removed.
func checkGroupStays(id string, open []topo.Operation) error {
	open = slices.DeleteFunc(slices.Clone(open), func(op topo.Operation) bool { return op.Kind != topo.OpRemoveGroup })
	return checkGroupFree(id, open)
}

// RemoveNode queues the removal of a replica from its group.
func (c *Client) RemoveNode(ctx context.Context, group, addr, by string) (*topo.Operation, error) {
	_, g, err := c.group(ctx, group)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(g.Nodes, func(n topo.Node) bool { return n.Addr == addr })
	if i < 0 {
		return nil, &Problem{Code: NotFound, Detail: fmt.Sprintf("group %s has no node %s", group, addr)}
	}
	if g.Nodes[i].Role == topo.Master {
		return nil, &Problem{Code: InvalidInput, Detail: fmt.Sprintf("node %s is the master of group %s", addr, group),
			Hint: "only replicas can be removed; to get rid of the group, drain and remove it"}
	}
	open, err := c.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNodeFree(addr, "", &topo.Topology{}, open); err != nil {
		return nil, err
	}
	if err := checkGroupStays(group, open); err != nil {
		return nil, err
	}
	return c.queue(ctx, topo.OpRemoveNode, group, []topo.Node{g.Nodes[i]}, by, nil, nil)
}

// group reads the topology and finds a group in it.
func (c *Client) group(ctx context.Context, id string) (*topo.Topology, *topo.Group, error) {
	t, _, err := c.topology(ctx)
	if err != nil {
		return nil, nil, err
	}
	g := t.Group(id)
	if g == nil {
		return nil, nil, &Problem{Code: NotFound, Detail: fmt.Sprintf("there is no group %q", id)}
	}
	return t, g, nil
}

// queue stores an operation on a group together with what more adds.
// onConflict is what a comparison of more that did not hold means.
func (c *Client) queue(ctx context.Context, kind topo.OperationKind, group string, nodes []topo.Node, by string,
	more func(*store.Txn), onConflict *Problem,
) (*topo.Operation, error) {
	now := time.Now().UTC()
	op := &topo.Operation{
		Format: topo.Format, ID: topo.NewID("op"), Kind: kind, State: topo.OpQueued,
		Request:   &topo.GroupRequest{Group: group, Nodes: nodes},
		CreatedBy: by, CreatedAt: now, UpdatedAt: now,
		Progress: topo.Progress{ETASeconds: -1},
	}
	txn := c.store.Begin().Unchanged(store.PrefixOperations+op.ID, 0).Put(store.PrefixOperations+op.ID, op)
	if more != nil {
		more(txn)
	}
	_, err := txn.Commit(ctx)
	switch {
	case errors.Is(err, store.ErrConflict) && onConflict != nil:
		return nil, onConflict
	case err != nil:
		return nil, unavailable(ctx, err)
	}
	return op, nil
}

// groupsOf lists the groups an operation works on.
func groupsOf(op *topo.Operation) []string {
	var groups []string
	if op.Request != nil {
		groups = append(groups, op.Request.Group)
	}
	for _, m := range op.Moves {
		for _, id := range []string{m.From, m.To} {
			if id != "" && !slices.Contains(groups, id) {
				groups = append(groups, id)
			}
		}
	}
	return groups
}
