// Package planner turns a goal into a plan: which slots go from which group to
// which, what each group has before and after, and what speaks against it. It
// is pure: topology and measurements in, plan out, the same for the same input.
//
// How slots are chosen. First each group gets a target count: for an even
// spread, the base count or one more, the extra ones going to those that have
// the most already, so that no other even spread moves fewer slots; for drain
// and assign, the lowest groups are filled up to one level. Then slots are
// taken from groups above their target (spread.go), where possible so that a
// run is taken whole, or from the side where it touches slots of its new
// owner: a rebalance leaves few runs more than there were.
//
// Rejected: assigning slots by a hash ring, which moves about as few but leaves
// thousands of runs and counts that differ by tens of percents; and planning by
// bytes instead of slots: sizes change while the plan is looked at, and slots of
// one group are about equal unless a single key dominates, which no plan cures.
package planner

import (
	"fmt"
	"slices"
	"time"

	"shardis/coordinator/topo"
)

// Lifetime of a plan that nobody submits.
const Lifetime = time.Hour

// Kind says what is wrong with a request.
type Kind string

const (
	Invalid      Kind = "invalid"       // the request makes no sense
	UnknownGroup Kind = "unknown-group" // a group it names does not exist
	NothingToDo  Kind = "nothing-to-do" // all is as asked for already
	LastGroup    Kind = "last-group"    // no group would be left to own slots
	Stale        Kind = "stale"         // of Conflicts: the topology changed in a way that matters
)

// Error is why no plan can be made, or an old one no longer holds.
type Error struct {
	Kind   Kind
	Field  string // JSON pointer into the request, "" when none is to blame
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func refuse(kind Kind, field, format string, args ...any) *Error {
	return &Error{kind, field, fmt.Sprintf(format, args...)}
}

// Make plans how to reach what req asks for. observed has what is known of each
// group, by id; what is missing is estimated as nothing and noted as a check.
// The caller names the plan (Plan.ID). Errors are of type *Error.
func Make(req topo.PlanRequest, t *topo.Topology, observed map[string]topo.Observed, now time.Time) (*topo.Plan, error) {
	if len(t.Groups) == 0 {
		return nil, refuse(Invalid, "", "there are no groups yet: add one first")
	}
	for i, id := range req.Groups {
		if t.Group(id) == nil {
			return nil, refuse(UnknownGroup, fmt.Sprintf("/groups/%d", i), "group %q does not exist", id)
		}
	}
	s := newSpread(t)
	var err *Error
	switch req.Goal {
	case topo.GoalSlots:
		err = even(s, req)
	case topo.GoalDrain:
		err = drain(s, req)
	case topo.GoalMove:
		err = move(s, req)
	case topo.GoalAssign:
		err = assign(s, req)
	default:
		err = refuse(Invalid, "/goal", "goal %q is not known: want %s, %s, %s or %s",
			req.Goal, topo.GoalSlots, topo.GoalDrain, topo.GoalMove, topo.GoalAssign)
	}
	if err != nil {
		return nil, err
	}
	p := &topo.Plan{
		Format:    topo.Format,
		Request:   req,
		BaseEpoch: t.Epoch,
		Moves:     s.moves(),
		CreatedAt: now,
		ExpiresAt: now.Add(Lifetime),
	}
	estimate(p, t, observed)
	p.Checks = check(p, t, observed, now)
	return p, nil
}

// even spreads what the chosen groups own evenly over them.
func even(s *spread, req topo.PlanRequest) *Error {
	chosen := s.indexes(req.Groups)
	if len(chosen) < 2 {
		return refuse(NothingToDo, "/groups", "slots can be balanced among two groups or more, not %d", len(chosen))
	}
	total := 0
	for _, g := range chosen {
		total += s.count(g)
	}
	if total == 0 {
		return refuse(NothingToDo, "/goal", "these groups own no slots: assign the free ones instead")
	}
	// Who has most keeps most.
	byCount := slices.Clone(chosen)
	slices.SortStableFunc(byCount, func(a, b int) int { return s.count(b) - s.count(a) })
	base, extra := total/len(chosen), total%len(chosen)
	for i, g := range byCount {
		target := base
		if i < extra {
			target++
		}
		s.want(g, target-s.count(g))
	}
	for _, g := range chosen {
		s.giveSurplus(g)
	}
	if !s.changed() {
		return refuse(NothingToDo, "/goal", "the slots are spread evenly already")
	}
	return nil
}

// drain takes all slots from the named groups.
func drain(s *spread, req topo.PlanRequest) *Error {
	if len(req.Groups) == 0 {
		return refuse(Invalid, "/groups", "name the groups to take the slots from")
	}
	leaving := s.indexes(req.Groups)
	var staying []int
	for g := range s.groups {
		if !slices.Contains(leaving, g) {
			staying = append(staying, g)
		}
	}
	if len(staying) == 0 {
		return refuse(LastGroup, "/groups", "no group would be left to take the slots: add one first")
	}
	total := 0
	for _, g := range leaving {
		total += s.count(g)
	}
	if total == 0 {
		return refuse(NothingToDo, "/groups", "these groups own no slots already")
	}
	s.fill(staying, total)
	for _, g := range leaving {
		s.want(g, -s.count(g))
		s.giveSurplus(g)
	}
	return nil
}

// move gives the named slots to one group.
func move(s *spread, req topo.PlanRequest) *Error {
	to := slices.Index(s.groups, req.ToGroup)
	switch {
	case req.ToGroup == "":
		return refuse(Invalid, "/toGroup", "name the group that is to get the slots")
	case to < 0:
		return refuse(UnknownGroup, "/toGroup", "group %q does not exist", req.ToGroup)
	case req.Slots.Len() == 0:
		return refuse(Invalid, "/slots", "name the slots to move, for example 0-99,512")
	}
	if last := int(req.Slots[len(req.Slots)-1].Last); last >= len(s.owner) {
		return refuse(Invalid, "/slots", "slot %d is outside 0-%d", last, len(s.owner)-1)
	}
	var free []topo.Slot
	for _, slot := range req.Slots.Slots() {
		if s.owner[slot] == nobody {
			free = append(free, slot)
		}
	}
	if len(free) > 0 {
		return refuse(Invalid, "/slots", "slots %s have no owner: assign them instead", topo.SlotSetOf(free))
	}
	for _, r := range req.Slots {
		s.give(r, to)
	}
	if !s.changed() {
		return refuse(NothingToDo, "/slots", "group %s owns these slots already", req.ToGroup)
	}
	return nil
}

// assign spreads the slots nobody owns.
func assign(s *spread, req topo.PlanRequest) *Error {
	free := s.count(nobody)
	if free == 0 {
		return refuse(NothingToDo, "/goal", "every slot has an owner already")
	}
	s.fill(s.indexes(req.Groups), free)
	s.want(nobody, -free)
	s.giveSurplus(nobody)
	return nil
}

// Conflicts says whether a plan made for an earlier topology still holds: the
// groups exist, and each slot is still with the group it is to be taken from.
// That the epoch rose is no conflict: coming and going proxies raise it, too.
func Conflicts(p *topo.Plan, current *topo.Topology) error {
	if current.Epoch < p.BaseEpoch {
		return refuse(Stale, "", "the plan was made for epoch %d, but the topology is of epoch %d", p.BaseEpoch, current.Epoch)
	}
	owners := current.Owners()
	for _, m := range p.Moves {
		for _, id := range []string{m.From, m.To} {
			if id != "" && current.Group(id) == nil {
				return refuse(Stale, "", "group %s is no longer there", id)
			}
		}
		var gone []topo.Slot
		for _, slot := range m.Slots.Slots() {
			if int(slot) >= len(owners) || owners[slot] != m.From {
				gone = append(gone, slot)
			}
		}
		if len(gone) > 0 {
			from := "with group " + m.From
			if m.From == "" {
				from = "free"
			}
			return refuse(Stale, "", "slots %s are no longer %s", topo.SlotSetOf(gone), from)
		}
	}
	return nil
}
