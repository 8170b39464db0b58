package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"shardis/coordinator"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// NodeInput is a node to be added.
type NodeInput struct {
	Addr string `json:"addr" minLength:"3" maxLength:"260" example:"10.0.0.7:6379"`
	Role string `json:"role,omitempty" enum:"master,replica" doc:"Without roles the first node is the master."`
	Zone string `json:"zone,omitempty" maxLength:"64"`
}

// GroupInput is a group to be added.
type GroupInput struct {
	ID       string      `json:"id" minLength:"1" maxLength:"40" example:"g5"`
	Nodes    []NodeInput `json:"nodes" minItems:"1" maxItems:"16"`
	User     string      `json:"user,omitempty" maxLength:"128" doc:"Administrator of the nodes; default when empty."`
	Password string      `json:"password,omitempty" format:"password" maxLength:"512" doc:"Kept in etcd, never shown again."`
}

// AddNodeInput is a node to be attached to a group as a replica.
type AddNodeInput struct {
	Addr string `json:"addr" minLength:"3" maxLength:"260" example:"10.0.0.8:6379"`
	Zone string `json:"zone,omitempty" maxLength:"64"`
}

// ProbeInput names nodes to be looked at.
type ProbeInput struct {
	Nodes    []ProbeNode `json:"nodes" minItems:"1" maxItems:"16"`
	User     string      `json:"user,omitempty" maxLength:"128"`
	Password string      `json:"password,omitempty" format:"password" maxLength:"512"`
}

// ProbeNode is one node to be looked at.
type ProbeNode struct {
	Addr string `json:"addr" minLength:"3" maxLength:"260"`
}

// NodeProbe is what looking at a node showed.
type NodeProbe struct {
	Addr   string       `json:"addr"`
	OK     bool         `json:"ok"`
	Checks []view.Check `json:"checks"`
}

type byNode struct {
	ID   string `path:"id" minLength:"1" maxLength:"40"`
	Addr string `path:"addr" minLength:"3" maxLength:"260"`
}

// accepted answers work that goes on: where to follow it, and how it is now.
type accepted = Made[view.Operation]

func (a *API) accepted(ctx context.Context, op *topo.Operation, err error) (*accepted, error) {
	if err != nil {
		return nil, err
	}
	shape, err := a.View.Fresh(ctx, op)
	return &accepted{Base + "/operations/" + op.ID, shape}, err
}

func work(id, method, path, tag, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary, DefaultStatus: http.StatusAccepted,
	}
}

func (a *API) registerGroups() {
	add(a, access.Operator, work("add-group", http.MethodPost, "/groups", "groups", "Add a group of nodes"), a.addGroup)
	add(a, access.Admin, work("remove-group", http.MethodDelete, "/groups/{id}", "groups", "Remove a group that owns no slots"),
		func(ctx context.Context, in *byID) (*accepted, error) {
			op, err := a.Client.RemoveGroup(ctx, in.ID, callerOf(ctx).who.Name)
			return a.accepted(ctx, op, err)
		})
	add(a, access.Operator, work("add-node", http.MethodPost, "/groups/{id}/nodes", "groups", "Attach a node as a replica"), a.addNode)
	add(a, access.Operator, work("remove-node", http.MethodDelete, "/groups/{id}/nodes/{addr}", "groups", "Remove a replica"),
		func(ctx context.Context, in *byNode) (*accepted, error) {
			op, err := a.Client.RemoveNode(ctx, in.ID, in.Addr, callerOf(ctx).who.Name)
			return a.accepted(ctx, op, err)
		})
	add(a, access.Operator, huma.Operation{
		OperationID: "probe-nodes", Method: http.MethodPost, Path: "/node-probes", Tags: []string{"groups"}, DefaultStatus: http.StatusOK,
		Summary: "Look at nodes; nothing is stored or changed",
	}, a.probe)
}

func (a *API) addGroup(ctx context.Context, in *struct{ Body GroupInput }) (*accepted, error) {
	if err := topo.CheckID(in.Body.ID); err != nil {
		return nil, invalid("/id", err)
	}
	group := coordinator.GroupInput{ID: in.Body.ID, User: in.Body.User, Password: in.Body.Password}
	for i, n := range in.Body.Nodes {
		if err := topo.CheckAddr(n.Addr); err != nil {
			return nil, invalid(fmt.Sprintf("/nodes/%d/addr", i), err)
		}
		group.Nodes = append(group.Nodes, topo.Node{Addr: n.Addr, Role: topo.Role(n.Role), Zone: n.Zone})
	}
	op, err := a.Client.AddGroup(ctx, group, callerOf(ctx).who.Name)
	return a.accepted(ctx, op, err)
}

func (a *API) addNode(ctx context.Context, in *struct {
	ID   string `path:"id" minLength:"1" maxLength:"40"`
	Body AddNodeInput
},
) (*accepted, error) {
	if err := topo.CheckAddr(in.Body.Addr); err != nil {
		return nil, invalid("/addr", err)
	}
	node := topo.Node{Addr: in.Body.Addr, Role: topo.Replica, Zone: in.Body.Zone}
	op, err := a.Client.AddNode(ctx, in.ID, node, callerOf(ctx).who.Name)
	return a.accepted(ctx, op, err)
}

func (a *API) probe(ctx context.Context, in *struct{ Body ProbeInput }) (*Body[view.List[NodeProbe]], error) {
	addrs := make([]string, len(in.Body.Nodes))
	for i, n := range in.Body.Nodes {
		if err := topo.CheckAddr(n.Addr); err != nil {
			return nil, invalid(fmt.Sprintf("/nodes/%d/addr", i), err)
		}
		addrs[i] = n.Addr
	}
	probes, err := a.Client.Probe(ctx, addrs, topo.Secret{Format: topo.Format, User: in.Body.User, Password: in.Body.Password})
	if err != nil {
		return nil, err
	}
	out := view.List[NodeProbe]{Items: []NodeProbe{}}
	for _, p := range probes {
		out.Items = append(out.Items, NodeProbe{p.Addr, p.OK, view.Checks(p.Checks)})
	}
	return ok(out)
}

// invalid is a problem with one field of the input.
func invalid(pointer string, err error) error {
	return problem(coordinator.InvalidInput, upperFirst(err.Error())+".").field(pointer, err.Error())
}
