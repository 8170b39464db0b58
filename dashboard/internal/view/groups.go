package view

import (
	"fmt"
	"time"

	"shardis/coordinator/topo"
)

// GroupState is how a group does.
type GroupState string

const (
	GroupOK        GroupState = "ok"
	GroupAttention GroupState = "attention"
	GroupDown      GroupState = "down"
	GroupDraining  GroupState = "draining"
)

// Node is one Redis process as it was last seen.
type Node struct {
	Addr           string     `json:"addr"`
	Role           string     `json:"role" enum:"master,replica" doc:"The role intended for it."`
	ObservedRole   string     `json:"observedRole" doc:"The role it says it has; empty while it was never reached."`
	Reachable      bool       `json:"reachable"`
	Error          string     `json:"error" doc:"Why it is not reachable, in words."`
	LinkUp         bool       `json:"linkUp" doc:"A replica's link to its master."`
	LagBytes       int64      `json:"lagBytes"`
	Version        string     `json:"version"`
	MemoryBytes    int64      `json:"memoryBytes"`
	MaxMemoryBytes int64      `json:"maxMemoryBytes" doc:"0: not limited."`
	Keys           int64      `json:"keys"`
	OpsPerSecond   float64    `json:"opsPerSecond"`
	Clients        int64      `json:"clients"`
	Zone           string     `json:"zone"`
	RunID          string     `json:"runId"`
	SeenAt         *time.Time `json:"seenAt,omitempty" doc:"When its figures were last noted. The leader looks each second, but notes only what changed."`
	Since          *time.Time `json:"since,omitempty" doc:"When reachable last changed."`
}

// Group is one master and its replicas.
type Group struct {
	ID             string     `json:"id"`
	SlotCount      int        `json:"slotCount"`
	Slots          string     `json:"slots" example:"0-99,512"`
	State          GroupState `json:"state" enum:"ok,attention,down,draining"`
	Problem        string     `json:"problem,omitempty" doc:"What is the matter, in words."`
	Keys           int64      `json:"keys"`
	MemoryBytes    int64      `json:"memoryBytes"`
	MaxMemoryBytes int64      `json:"maxMemoryBytes"`
	OpsPerSecond   float64    `json:"opsPerSecond"`
	ObservedAt     *time.Time `json:"observedAt,omitempty" doc:"When its figures were last noted."`
	Nodes          []Node     `json:"nodes"`
}

// Groups derives all groups, in the topology's order.
func Groups(s *State, now time.Time) []Group {
	out := []Group{}
	if s.Topology == nil {
		return out
	}
	draining := drainingGroups(s)
	for i := range s.Topology.Groups {
		out = append(out, group(s, &s.Topology.Groups[i], draining, now))
	}
	return out
}

// drainingGroups is the set of groups an unfinished drain takes slots from.
func drainingGroups(s *State) map[string]bool {
	out := map[string]bool{}
	for _, op := range s.Operations {
		if op.State.Finished() || op.Goal != topo.GoalDrain {
			continue
		}
		for _, m := range op.Moves {
			out[m.From] = true
		}
	}
	return out
}

func group(s *State, g *topo.Group, draining map[string]bool, now time.Time) Group {
	slots := s.Topology.SlotsOf(g.ID)
	out := Group{ID: g.ID, SlotCount: slots.Len(), Slots: slots.String(), State: GroupOK, Nodes: []Node{}}
	seen, observed := s.Observed[g.ID]
	for _, n := range g.Nodes {
		node := Node{Addr: n.Addr, Role: string(n.Role), Zone: n.Zone}
		if st := seen.Node(n.Addr); st != nil {
			fillNode(&node, st)
		}
		if n.Role == topo.Master {
			out.Keys = max(0, node.Keys-seen.Hidden)
			out.MemoryBytes, out.MaxMemoryBytes, out.OpsPerSecond = node.MemoryBytes, node.MaxMemoryBytes, node.OpsPerSecond
		}
		out.Nodes = append(out.Nodes, node)
	}
	out.ObservedAt = timePointer(seen.At)
	out.State, out.Problem = judge(s.Leader, g, &seen, observed, now)
	if out.State == GroupOK && draining[g.ID] {
		out.State = GroupDraining
	}
	return out
}

func fillNode(node *Node, st *topo.NodeStatus) {
	node.ObservedRole, node.Reachable, node.Error = string(st.Role), st.Reachable, st.Error
	node.LinkUp, node.LagBytes, node.Version = st.LinkUp, st.LagBytes, st.Version
	node.MemoryBytes, node.MaxMemoryBytes = st.UsedMemory, st.MaxMemory
	node.Keys, node.OpsPerSecond, node.Clients = st.KeyCount(), st.OpsPerSecond, st.Clients
	node.RunID, node.SeenAt, node.Since = st.RunID, timePointer(st.SeenAt), timePointer(st.Since)
}

// judge gives a group's state and the one problem that matters most:
//
//	down       the master does not answer
//	attention  never looked at, or nobody looks now; a node has another role
//	           than intended; a replica is away or its link is down; memory is
//	           nearly full
//	ok         none of these
//
// The age of the figures says nothing: the leader writes them when they
// change. Whether they are the present is whether there is a leader.
func judge(leader string, g *topo.Group, seen *topo.Observed, observed bool, now time.Time) (GroupState, string) {
	if !observed {
		return GroupAttention, "No coordinator has looked at this group yet."
	}
	master := seen.Node(g.Master())
	if master != nil && !master.Reachable {
		return GroupDown, fmt.Sprintf("The master %s does not answer: %s.", master.Addr, reason(master.Error))
	}
	if leader == "" {
		return GroupAttention, fmt.Sprintf("No coordinator looks at it: its figures are of %s ago.", roughly(now.Sub(seen.At)))
	}
	for _, n := range g.Nodes {
		st := seen.Node(n.Addr)
		switch {
		case st == nil:
			return GroupAttention, fmt.Sprintf("The %s %s was not looked at yet.", n.Role, n.Addr)
		case !st.Reachable:
			return GroupAttention, fmt.Sprintf("The replica %s does not answer: %s.", n.Addr, reason(st.Error))
		case st.Role != "" && st.Role != n.Role:
			return GroupAttention, fmt.Sprintf("%s should be a %s but is a %s.", n.Addr, n.Role, st.Role)
		case st.Loading:
			return GroupAttention, fmt.Sprintf("%s is loading its data.", n.Addr)
		case n.Role == topo.Replica && !st.LinkUp:
			return GroupAttention, fmt.Sprintf("The replica %s is not connected to its master.", n.Addr)
		}
	}
	if master != nil && master.MaxMemory > 0 && float64(master.UsedMemory) > 0.85*float64(master.MaxMemory) {
		return GroupAttention, fmt.Sprintf("The master %s uses %d %% of its memory.", master.Addr,
			100*master.UsedMemory/master.MaxMemory)
	}
	return GroupOK, ""
}

func reason(text string) string {
	if text == "" {
		return "no reason known"
	}
	return text
}

func timePointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
