// Package router decides which group answers for a slot.
//
// A Table is built from one topology and never changes. A loop runs one table
// at a time, so all commands of a turn are routed by the same epoch. To change
// routing, build a new Table and hand it to every loop.
package router

import (
	"shardis/coordinator/topo"
)

// Group is one target of commands: the master of a group.
type Group struct {
	ID     string
	Master string // host:port
	Slots  int    // how many it owns
	Held   int    // how many of these are held
	// GivenUp: it gets another master now. Nothing is sent there any more.
	GivenUp bool

	MasterZone string
	Replicas   []Replica
}

// Replica is a node that may answer reads in its master's place.
type Replica struct{ Addr, Zone string }

// Table is a compiled topology.
type Table struct {
	Epoch     topo.Epoch
	Databases int
	HoldID    string  // hold in force, "" without one
	Groups    []Group // in the topology's order; an Owner is an index of it

	scheme topo.Scheme
	slots  []entry // by slot
}

// entry is the index in Groups of a slot's owner plus one, 0 if unassigned, and
// the held bit. Two bytes a slot: the array is read at random for each command,
// and shares the nearest caches with everything else.
type entry uint16

const (
	held entry = 1 << 15
	none       = -1
)

func (e entry) owner() int { return int(e&^held) - 1 }
func (e entry) held() bool { return e&held != 0 }

// Build compiles a topology.
func Build(t *topo.Topology) *Table {
	table := &Table{
		Epoch:     t.Epoch,
		Databases: t.Databases,
		scheme:    t.Scheme,
		slots:     make([]entry, t.Scheme.Slots()),
		Groups:    make([]Group, len(t.Groups)),
	}
	index := make(map[string]int, len(t.Groups))
	for i := range t.Groups {
		g := &t.Groups[i]
		table.Groups[i] = Group{ID: g.ID, Master: g.Master()}
		for _, n := range g.Nodes {
			if n.Role == topo.Master {
				table.Groups[i].MasterZone = n.Zone
			} else {
				table.Groups[i].Replicas = append(table.Groups[i].Replicas, Replica{n.Addr, n.Zone})
			}
		}
		index[g.ID] = i
	}
	for _, run := range t.Slots {
		owner, ok := index[run.Group]
		if !ok {
			continue
		}
		for s := int(run.First); s <= int(run.Last); s++ {
			table.slots[s] = entry(owner + 1)
		}
		table.Groups[owner].Slots += int(run.Last) - int(run.First) + 1
	}
	if c := t.MasterChange(); c != nil {
		if g, ok := index[c.Group]; ok {
			table.Groups[g].GivenUp = true
		}
	}
	if t.Hold != nil {
		table.HoldID = t.Hold.ID
		for _, r := range t.Hold.Slots {
			for s := int(r.First); s <= int(r.Last); s++ {
				e := &table.slots[s]
				if owner := e.owner(); owner != none && !e.held() {
					table.Groups[owner].Held++
				}
				*e |= held
			}
		}
	}
	return table
}

// Refusal is why a command has no route now. The zero value is "none".
type Refusal uint8

const (
	OK         Refusal = iota
	Unassigned         // no group owns the slot
	Held               // a hand-over is under way: wait for the next table
)

// Slot is the slot of a key.
func (t *Table) Slot(key []byte) topo.Slot { return t.scheme.SlotOf(key) }

// Slots is the number of slots of the scheme.
func (t *Table) Slots() int { return len(t.slots) }

// Route gives the group, an index of Groups, that answers for slot now. With
// the refusal Held the group is the owner so far; with Unassigned it is -1.
func (t *Table) Route(slot topo.Slot) (group int, refusal Refusal) {
	e := t.slots[slot]
	if e.held() {
		return e.owner(), Held
	}
	if e == 0 {
		return none, Unassigned
	}
	return e.owner(), OK
}

// Owner is the group, an index of Groups, that owns slot, -1 if none does.
func (t *Table) Owner(slot topo.Slot) int { return t.slots[slot].owner() }

// Held reports whether commands for slot must wait.
func (t *Table) Held(slot topo.Slot) bool { return t.slots[slot].held() }

// AnyHeld reports whether a command that changes every slot must wait.
func (t *Table) AnyHeld() bool {
	for i := range t.Groups {
		if t.Groups[i].Held > 0 {
			return true
		}
	}
	return false
}

// AllHeld reports whether not even what is read of all slots of a group may be
// asked of it now: all its slots are held, or it gets another master.
func (t *Table) AllHeld(group int) bool {
	g := &t.Groups[group]
	return g.GivenUp || g.Held > 0 && g.Held == g.Slots
}

// Gained reports, for each group, whether what it has can not be compared with
// what it had in the table run before: it owns a slot that it did not own, or
// has another master.
func (t *Table) Gained(before *Table) []bool {
	gained := make([]bool, len(t.Groups))
	was := make([]int, len(t.Groups)) // index in before
	for i := range t.Groups {
		was[i] = none
		if before != nil {
			was[i] = before.GroupByID(t.Groups[i].ID)
		}
		gained[i] = was[i] == none || before.Groups[was[i]].Master != t.Groups[i].Master
	}
	for s, e := range t.slots {
		if owner := e.owner(); owner != none && !gained[owner] {
			gained[owner] = s >= len(before.slots) || before.slots[s].owner() != was[owner]
		}
	}
	return gained
}

// nodesOf lists the nodes, masters first, of the groups that own, in t, the
// slots that holding holds.
func (t *Table) nodesOf(holding *Table) []string {
	seen := make([]bool, len(t.Groups))
	var masters, others []string
	for s, e := range t.slots {
		owner := e.owner()
		if owner != none && s < len(holding.slots) && holding.slots[s].held() && !seen[owner] {
			seen[owner] = true
			masters = append(masters, t.Groups[owner].Master)
			for _, r := range t.Groups[owner].Replicas {
				others = append(others, r.Addr)
			}
		}
	}
	return append(masters, others...)
}

// GivenUp is the master that is being replaced, "" if none is.
func (t *Table) GivenUp() string {
	for i := range t.Groups {
		if t.Groups[i].GivenUp {
			return t.Groups[i].Master
		}
	}
	return ""
}

// DrainNodes lists the nodes that may still work on commands for the slots
// that t holds: of their owners in t and in the table run before, nil if none.
func (t *Table) DrainNodes(before *Table) []string {
	if t.HoldID == "" {
		return nil
	}
	nodes := t.nodesOf(t)
	if before != nil {
		nodes = append(nodes, before.nodesOf(t)...)
	}
	return nodes
}

// Anchor is the group that answers commands without a key, such as scripts
// that name none: the owner of the lowest assigned slot. ok is false while no
// slot is assigned.
func (t *Table) Anchor() (slot topo.Slot, ok bool) {
	for s, e := range t.slots {
		if e.owner() != none {
			return topo.Slot(s), true
		}
	}
	return 0, false
}

// GroupOfMaster finds the group whose master has that address, -1 if none.
func (t *Table) GroupOfMaster(addr string) int {
	for i := range t.Groups {
		if t.Groups[i].Master == addr {
			return i
		}
	}
	return none
}

// GroupByID finds a group, -1 if there is none of that id.
func (t *Table) GroupByID(id string) int {
	for i := range t.Groups {
		if t.Groups[i].ID == id {
			return i
		}
	}
	return none
}
