package router

import (
	"slices"
	"testing"

	"shardis/coordinator/topo"
)

func testTopology() *topo.Topology {
	return &topo.Topology{
		Format: topo.Format, Scheme: topo.CRC16, Databases: 16, Epoch: 7,
		Groups: []topo.Group{
			{ID: "g1", Nodes: []topo.Node{{Addr: "h:2", Role: topo.Replica}, {Addr: "h:1", Role: topo.Master}}},
			{ID: "g2", Nodes: []topo.Node{{Addr: "h:3", Role: topo.Master}}},
			{ID: "g3", Nodes: []topo.Node{{Addr: "h:4", Role: topo.Master}}},
		},
		Slots: []topo.Run{{First: 10, Last: 99, Group: "g1"}, {First: 100, Last: 100, Group: "g2"}},
	}
}

func TestTableRoutes(t *testing.T) {
	topology := testTopology()
	topology.Hold = &topo.Hold{ID: "h1", Slots: topo.SlotSet{{First: 20, Last: 20}, {First: 200, Last: 201}}}
	table := Build(topology)
	tests := []struct {
		name    string
		slot    topo.Slot
		group   int
		refusal Refusal
	}{
		{"first of a run", 10, 0, OK},
		{"last of a run", 99, 0, OK},
		{"run of one", 100, 1, OK},
		{"unassigned", 9, -1, Unassigned},
		{"last slot", 16383, -1, Unassigned},
		{"held", 20, 0, Held},
		{"held and unassigned", 200, -1, Held},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			group, refusal := table.Route(tt.slot)
			if group != tt.group || refusal != tt.refusal {
				t.Errorf("slot %d goes to %d, %d", tt.slot, group, refusal)
			}
		})
	}
	if g := table.Groups[0]; g.Master != "h:1" || g.Slots != 90 {
		t.Errorf("group %+v", g)
	}
	if slot, ok := table.Anchor(); slot != 10 || !ok {
		t.Errorf("anchor %d, %v", slot, ok)
	}
	if table.GroupByID("g2") != 1 || table.GroupByID("x") != -1 {
		t.Error("group by id")
	}
}

func TestTableDrainNodes(t *testing.T) {
	before := Build(testTopology())
	topology := testTopology()
	topology.Slots = []topo.Run{{First: 10, Last: 49, Group: "g1"}, {First: 50, Last: 100, Group: "g2"}}
	topology.Hold = &topo.Hold{ID: "h1", Slots: topo.SlotSet{{First: 60, Last: 70}}}
	held := Build(topology)
	if nodes := held.DrainNodes(before); !slices.Equal(nodes, []string{"h:3", "h:1", "h:2"}) {
		t.Errorf("nodes to drain: %v", nodes)
	}
	if nodes := before.DrainNodes(held); nodes != nil {
		t.Errorf("nodes to drain without a hold: %v", nodes)
	}
}
