package topo

import (
	"fmt"
	"slices"
	"time"
)

// Epoch is the version of a topology. It goes up by one with each change;
// proxies refuse a lower one.
type Epoch uint64

// Role of a node, in Redis's words.
type Role string

const (
	Master  Role = "master"
	Replica Role = "replica"
)

// Node is one Redis process of a group.
type Node struct {
	Addr string `json:"addr"` // host:port; identifies the node within the cluster
	Role Role   `json:"role"` // the role intended for it
	Zone string `json:"zone,omitempty"`
}

// Group is one master and its replicas, the unit that owns slots.
type Group struct {
	ID    string `json:"id"`
	Nodes []Node `json:"nodes"`
	// Run is the run id of the process that was made or accepted as the master.
	// Another one at its address restarted, or is not the group's at all; nobody
	// is let in there before that was judged. "": never recorded.
	Run string `json:"run,omitempty"`
}

// Master is the address of the group's master, "" if it has none.
func (g *Group) Master() string {
	for _, n := range g.Nodes {
		if n.Role == Master {
			return n.Addr
		}
	}
	return ""
}

// Run is a run of neighboring slots with one owner.
type Run struct {
	First, Last Slot
	Group       string
}

// MemberState is where a proxy stands with the cluster.
type MemberState string

const (
	// Admitted proxies serve; each has its own ACL user on every node.
	Admitted MemberState = "admitted"
	// Evicting proxies are being fenced: their users are removed from every
	// node and never put back.
	Evicting MemberState = "evicting"
)

// Member is one proxy as the topology knows it.
type Member struct {
	ID          string      `json:"id"`
	Incarnation string      `json:"incarnation"`
	State       MemberState `json:"state"`
}

// ProxyUser is the name of the ACL user a proxy logs in to nodes with.
func ProxyUser(id, incarnation string) string { return "shardis-" + id + "-" + incarnation }

// HoldPhase is how far a hold has come.
type HoldPhase string

const (
	// Holding may still be cancelled by a transaction on the topology.
	Holding HoldPhase = "holding"
	// Promoting is a change of master under way: nobody cancels it, and a new
	// leader takes it to its end.
	Promoting HoldPhase = "promoting"
)

// Hold asks proxies to keep commands for some slots waiting. There is at most
// one in a cluster.
type Hold struct {
	ID      string    `json:"id"`
	Phase   HoldPhase `json:"phase"`
	Slots   SlotSet   `json:"slots"`
	Attempt string    `json:"attempt,omitempty"` // the migration attempt it serves
	// Timeout is how long after applying it a proxy may cancel a hold in
	// phase holding when the leader did not.
	Timeout time.Duration `json:"timeout_ns"`
	// Change is set in phase promoting.
	Change *MasterChange `json:"change,omitempty"`
}

// MasterChange is a group's master being replaced. From is given up the moment
// a proxy applies this: it closes its connections there, and what becomes of
// the bytes it sent before is no longer its business
// (docs/adr/0020-failover.md).
type MasterChange struct {
	Group     string `json:"group"`
	From      string `json:"from"`
	To        string `json:"to"`
	Operation string `json:"operation"`
}

// Topology is the one document proxies run. Treat it as immutable: derive
// changes with Next.
type Topology struct {
	Format    int      `json:"format"`
	Cluster   string   `json:"cluster"` // cluster id
	History   string   `json:"history"` // new after a recovery, so that epochs of two histories are never mixed
	Scheme    Scheme   `json:"scheme"`
	Databases int      `json:"databases"`
	Epoch     Epoch    `json:"epoch"`
	Groups    []Group  `json:"groups"`
	Slots     []Run    `json:"-"` // sorted; slots in no run are unassigned; stored by group, see codec.go
	Proxies   []Member `json:"proxies"`
	Hold      *Hold    `json:"hold,omitempty"`
}

// MasterChange is the change of master under way, nil if there is none.
func (t *Topology) MasterChange() *MasterChange {
	if t.Hold == nil || t.Hold.Phase != Promoting {
		return nil
	}
	return t.Hold.Change
}

// Group finds a group by id, nil if there is none.
func (t *Topology) Group(id string) *Group {
	for i := range t.Groups {
		if t.Groups[i].ID == id {
			return &t.Groups[i]
		}
	}
	return nil
}

// GroupOfNode finds the group that has a node of this address, nil if none.
func (t *Topology) GroupOfNode(addr string) *Group {
	for i := range t.Groups {
		for _, n := range t.Groups[i].Nodes {
			if n.Addr == addr {
				return &t.Groups[i]
			}
		}
	}
	return nil
}

// Member finds a proxy by id, nil if it is not one.
func (t *Topology) Member(id string) *Member {
	for i := range t.Proxies {
		if t.Proxies[i].ID == id {
			return &t.Proxies[i]
		}
	}
	return nil
}

// Owner is the id of the group that owns slot, "" when it is unassigned. It
// searches; to route many commands build an array with Owners.
func (t *Topology) Owner(slot Slot) string {
	i, found := slices.BinarySearchFunc(t.Slots, slot, func(r Run, slot Slot) int {
		switch {
		case r.Last < slot:
			return -1
		case r.First > slot:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return t.Slots[i].Group
}

// Owners is the owner of each slot, indexed by slot, "" where unassigned.
func (t *Topology) Owners() []string {
	owners := make([]string, t.Scheme.Slots())
	for _, r := range t.Slots {
		for s := int(r.First); s <= int(r.Last); s++ {
			owners[s] = r.Group
		}
	}
	return owners
}

// SlotsOf is the set of slots a group owns.
func (t *Topology) SlotsOf(group string) SlotSet {
	var ranges []SlotRange
	for _, r := range t.Slots {
		if r.Group == group {
			ranges = append(ranges, SlotRange{r.First, r.Last})
		}
	}
	return NewSlotSet(ranges...)
}

// Unassigned is the set of slots nobody owns.
func (t *Topology) Unassigned() SlotSet {
	var free []SlotRange
	next := 0
	for _, r := range t.Slots {
		if int(r.First) > next {
			free = append(free, SlotRange{Slot(next), r.First - 1})
		}
		next = int(r.Last) + 1
	}
	if total := t.Scheme.Slots(); next < total {
		free = append(free, SlotRange{Slot(next), Slot(total - 1)})
	}
	return NewSlotSet(free...)
}

// Assign gives slots to group ("" takes them from everybody). It is for use
// inside a change passed to Next.
func (t *Topology) Assign(slots SlotSet, group string) {
	owners := t.Owners()
	for _, r := range slots {
		for s := int(r.First); s <= int(r.Last) && s < len(owners); s++ {
			owners[s] = group
		}
	}
	t.Slots = t.Slots[:0:0]
	for s, owner := range owners {
		if owner == "" {
			continue
		}
		if n := len(t.Slots); n > 0 && t.Slots[n-1].Group == owner && int(t.Slots[n-1].Last) == s-1 {
			t.Slots[n-1].Last = Slot(s)
			continue
		}
		t.Slots = append(t.Slots, Run{Slot(s), Slot(s), owner})
	}
}

// Next derives the topology of the following epoch: a deep copy of t, changed
// by change, with its epoch raised by one, validated, its runs as few as can be.
func (t *Topology) Next(change func(*Topology)) (*Topology, error) {
	next := t.clone()
	change(next)
	next.Epoch = t.Epoch + 1
	if err := next.Validate(); err != nil {
		return nil, fmt.Errorf("topology of epoch %d: %w", next.Epoch, err)
	}
	next.Slots = joined(next.Slots)
	return next, nil
}

// joined unites neighboring runs of one owner.
func joined(runs []Run) []Run {
	all := make([]Run, 0, len(runs))
	for _, r := range runs {
		if n := len(all); n > 0 && all[n-1].Group == r.Group && int(all[n-1].Last)+1 == int(r.First) {
			all[n-1].Last = r.Last
			continue
		}
		all = append(all, r)
	}
	return all
}

func (t *Topology) clone() *Topology {
	c := *t
	c.Groups = slices.Clone(t.Groups)
	for i := range c.Groups {
		c.Groups[i].Nodes = slices.Clone(t.Groups[i].Nodes)
	}
	c.Slots = slices.Clone(t.Slots)
	c.Proxies = slices.Clone(t.Proxies)
	if t.Hold != nil {
		hold := *t.Hold
		hold.Slots = slices.Clone(hold.Slots)
		if hold.Change != nil {
			change := *hold.Change
			hold.Change = &change
		}
		c.Hold = &hold
	}
	return &c
}
