package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/topo"
)

const (
	probeWithin = 5 * time.Second // all looks at one node together
	maxNodes    = 64              // of one input
)

// NodeProbe is what looking at a node showed.
type NodeProbe struct {
	Addr   string       `json:"addr"`
	OK     bool         `json:"ok"` // no check failed
	Checks []topo.Check `json:"checks"`
}

// Probe looks at nodes without storing or changing anything.
func (c *Client) Probe(ctx context.Context, addrs []string, secret topo.Secret) ([]NodeProbe, error) {
	if len(addrs) == 0 || len(addrs) > maxNodes {
		return nil, &Problem{Code: InvalidInput, Field: "/nodes", Detail: fmt.Sprintf("%d nodes are given: want 1 to %d", len(addrs), maxNodes)}
	}
	for i, addr := range addrs {
		if err := topo.CheckAddr(addr); err != nil {
			return nil, &Problem{Code: InvalidInput, Field: fmt.Sprintf("/nodes/%d/addr", i), Detail: err.Error(), Err: err}
		}
	}
	reports := probeAll(ctx, addrs, secret)
	probes := make([]NodeProbe, len(reports))
	for i := range reports {
		probes[i] = NodeProbe{Addr: addrs[i], OK: reports[i].Failed() == nil, Checks: reports[i].Checks}
	}
	return probes, nil
}

// probeAll looks at several nodes at once.
func probeAll(ctx context.Context, addrs []string, secret topo.Secret) []node.Report {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	reports := make([]node.Report, len(addrs))
	var running sync.WaitGroup
	for i, addr := range addrs {
		running.Go(func() { reports[i] = node.Probe(ctx, addr, secret) })
	}
	running.Wait()
	return reports
}

// member is what is checked of a node that is to join a group.
type member struct {
	field     string // JSON pointer of its address
	addr      string
	role      topo.Role // it is to have
	master    string    // of the group
	secret    topo.Secret
	databases int // of the cluster
}

// refuse says why the node of a report can not join as m, nil when it can.
func (m member) refuse(ctx context.Context, r *node.Report) *Problem {
	problem := func(code Code, hint, format string, args ...any) *Problem {
		return &Problem{Code: code, Field: m.field, Detail: "node " + m.addr + " " + fmt.Sprintf(format, args...), Hint: hint}
	}
	for _, c := range r.Checks {
		if c.Result != node.Fail || c.Name == node.CheckEmpty {
			continue
		}
		switch c.Name {
		case node.CheckReachable:
			return problem(NodeUnreachable, "", "can not be used: %s", c.Detail)
		case node.CheckPassword:
			p := problem(InvalidInput, "give the password of an administrator, the same for all nodes of a group", "refuses the login: %s", c.Detail)
			p.Field = "/password"
			return p
		}
		return problem(NodeIncompatible, "", "can not be used: %s", c.Detail)
	}
	s := &r.Status
	if r.Databases > 0 && r.Databases < m.databases {
		return problem(NodeIncompatible, fmt.Sprintf("start it with databases %d", m.databases), "has %d databases, the cluster %d", r.Databases, m.databases)
	}
	if s.Loading {
		return problem(NodeUnreachable, "try again when it is done", "is still loading its data")
	}
	follows := s.Role == topo.Replica && sameAddr(s.MasterAddr, m.master)
	switch {
	case m.role == topo.Master && s.Role == topo.Replica:
		return problem(NodeIncompatible, "give its master as master, or run REPLICAOF NO ONE on it", "is a replica of %s", s.MasterAddr)
	case m.role == topo.Replica && s.Role == topo.Replica && !follows:
		return problem(NodeIncompatible, "run REPLICAOF NO ONE on it if that one does not need it", "is a replica of %s already", s.MasterAddr)
	case !follows && s.KeyCount() > 0:
		return problem(NodeNotEmpty, "empty it with FLUSHALL if nobody needs them, or give another node", "holds %d keys", s.KeyCount())
	}
	return m.refuseForeign(ctx, r, problem)
}

// refuseForeign finds out whether another cluster uses the node: then somebody
// is logged in as a user that Shardis made.
func (m member) refuseForeign(ctx context.Context, r *node.Report, problem func(Code, string, string, ...any) *Problem) *Problem {
	if c := r.Check(node.CheckUsers); c == nil || c.Result == node.Pass {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	admin, err := node.Open(ctx, m.addr, m.secret, node.Named("shardis-probe"))
	if err != nil {
		return problem(NodeUnreachable, "", "can not be used: %v", err)
	}
	defer admin.Close()
	clients, err := admin.Clients(ctx)
	if err != nil {
		return problem(NodeIncompatible, "", "can not be used: %v", err)
	}
	for _, c := range clients {
		if strings.HasPrefix(c.User, node.UserPrefix) {
			return problem(NodeIncompatible, "a node can be in one cluster only: remove it there first",
				"belongs to a cluster: %s is logged in from %s", c.User, c.Addr)
		}
	}
	return nil
}

// sameAddr compares addresses as written; "localhost" and its number are told
// apart, which refuses rather than accepts by mistake.
func sameAddr(a, b string) bool { return a == b }
