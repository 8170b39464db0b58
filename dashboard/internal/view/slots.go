package view

import (
	"shardis/coordinator/topo"
)

// SlotState says how a run of slots is served.
type SlotState string

const (
	SlotOnline     SlotState = "online"
	SlotHeld       SlotState = "held"       // commands wait for a hand-over
	SlotUnassigned SlotState = "unassigned" // nobody serves them
	SlotMoving     SlotState = "moving"     // served by group, being copied to "to"
)

// SlotRun is a run of neighboring slots that are served alike.
type SlotRun struct {
	Slots string    `json:"slots" example:"0-255" doc:"First and last slot of the run, or one slot."`
	Group string    `json:"group" doc:"The group that owns them; empty while unassigned."`
	State SlotState `json:"state" enum:"online,held,unassigned,moving"`
	To    string    `json:"to,omitempty" doc:"The group they are moving to."`
}

// Slots is the slot map.
type Slots struct {
	Epoch     uint64    `json:"epoch"`
	SlotCount int       `json:"slotCount"`
	Items     []SlotRun `json:"items"`
}

type slotInfo struct {
	owner, to string
	state     SlotState
}

// slotInfos says for each slot how it is served; nil without a topology.
func slotInfos(s *State) []slotInfo {
	t := s.Topology
	if t == nil {
		return nil
	}
	infos := make([]slotInfo, t.Scheme.Slots())
	for slot, owner := range t.Owners() {
		infos[slot] = slotInfo{owner: owner, state: SlotOnline}
		if owner == "" {
			infos[slot].state = SlotUnassigned
		}
	}
	mark := func(slots topo.SlotSet, f func(*slotInfo)) {
		for _, slot := range slots.Slots() {
			if int(slot) < len(infos) {
				f(&infos[slot])
			}
		}
	}
	for _, op := range s.Operations {
		if op.State.Finished() {
			continue
		}
		for _, m := range op.Moves {
			if !copying(m.State) {
				continue
			}
			mark(m.Slots, func(i *slotInfo) {
				if i.owner == m.From {
					i.state, i.to = SlotMoving, m.To
				}
			})
		}
	}
	if t.Hold != nil {
		mark(t.Hold.Slots, func(i *slotInfo) { i.state = SlotHeld })
	}
	return infos
}

// copying reports whether the move is under way and its slots still belong to
// their old owner.
func copying(s topo.MoveState) bool {
	switch s {
	case topo.MovePreparing, topo.MoveCopying, topo.MoveCatchingUp, topo.MoveHandingOver:
		return true
	}
	return false
}

// SlotMap derives the slot map.
func SlotMap(s *State) Slots {
	out := Slots{Items: []SlotRun{}}
	infos := slotInfos(s)
	if infos == nil {
		if s.Meta != nil {
			out.SlotCount = s.Meta.Scheme.Slots()
		}
		return out
	}
	out.Epoch, out.SlotCount = uint64(s.Topology.Epoch), len(infos)
	for first := 0; first < len(infos); {
		last := first
		for last+1 < len(infos) && infos[last+1] == infos[first] {
			last++
		}
		r := topo.SlotRange{First: topo.Slot(first), Last: topo.Slot(last)}
		out.Items = append(out.Items, SlotRun{r.String(), infos[first].owner, infos[first].state, infos[first].to})
		first = last + 1
	}
	return out
}

// Lookup says where a key lives.
type Lookup struct {
	Key    string    `json:"key"`
	Tag    string    `json:"tag" doc:"The part of the key that is hashed."`
	Slot   int       `json:"slot"`
	Group  string    `json:"group" doc:"Empty while the slot is unassigned."`
	Master string    `json:"master"`
	State  SlotState `json:"state" enum:"online,held,unassigned,moving"`
	To     string    `json:"to,omitempty"`
}

// LookupKey finds the slot of a key and who serves it; false without a
// topology.
func LookupKey(s *State, key string) (Lookup, bool) {
	t := s.Topology
	if t == nil {
		return Lookup{}, false
	}
	slot := t.Scheme.SlotOf([]byte(key))
	info := slotInfos(s)[slot]
	out := Lookup{Key: key, Tag: string(t.Scheme.Tag([]byte(key))), Slot: int(slot), Group: info.owner, State: info.state, To: info.to}
	if g := t.Group(info.owner); g != nil {
		out.Master = g.Master()
	}
	return out, true
}
