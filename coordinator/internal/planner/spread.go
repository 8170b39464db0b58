package planner

import (
	"cmp"
	"slices"

	"shardis/coordinator/topo"
)

// nobody owns free slots.
const nobody = -1

// spread is a distribution of slots under change. Groups are indexes into the
// topology's order, which breaks ties.
type spread struct {
	groups []string
	before []int // slot → owner as it is
	owner  []int // slot → owner as planned
	counts []int // group+1 → slots as planned; nobody's first
	needs  []int // group+1 → slots it is to get (> 0) or to give (< 0)
}

func newSpread(t *topo.Topology) *spread {
	s := &spread{
		groups: make([]string, len(t.Groups)),
		owner:  make([]int, t.Scheme.Slots()),
		counts: make([]int, len(t.Groups)+1),
		needs:  make([]int, len(t.Groups)+1),
	}
	index := map[string]int{"": nobody}
	for i, g := range t.Groups {
		s.groups[i] = g.ID
		index[g.ID] = i
	}
	for slot, id := range t.Owners() {
		s.owner[slot] = index[id]
		s.counts[index[id]+1]++
	}
	s.before = slices.Clone(s.owner)
	return s
}

// indexes of the named groups, once each and in the topology's order; of all
// when none is named.
func (s *spread) indexes(ids []string) []int {
	var found []int
	for i, id := range s.groups {
		if len(ids) == 0 || slices.Contains(ids, id) {
			found = append(found, i)
		}
	}
	return found
}

func (s *spread) count(g int) int { return s.counts[g+1] }

func (s *spread) want(g, slots int) { s.needs[g+1] = slots }

func (s *spread) need(g int) int { return s.needs[g+1] }

// fill wants slots more for the groups with the fewest, up to one level.
func (s *spread) fill(groups []int, slots int) {
	for range slots {
		lowest := slices.MinFunc(groups, func(a, b int) int {
			return cmp.Compare(s.count(a)+s.need(a), s.count(b)+s.need(b))
		})
		s.needs[lowest+1]++
	}
}

// give makes to the owner of a range.
func (s *spread) give(r topo.SlotRange, to int) {
	for slot := int(r.First); slot <= int(r.Last); slot++ {
		s.counts[s.owner[slot]+1]--
		s.counts[to+1]++
		s.owner[slot] = to
	}
}

// piece is part of a run that changes its owner.
type piece struct {
	run   int // index into the runs it is taken from
	slots topo.SlotRange
	to    int
}

// giveSurplus hands what from is to give to those that need it.
func (s *spread) giveSurplus(from int) {
	runs := s.runs(from)
	for s.need(from) < 0 {
		p := s.choose(from, runs)
		n := p.slots.Len()
		s.give(p.slots, p.to)
		s.needs[from+1] += n
		s.needs[p.to+1] -= n
		switch r := &runs[p.run]; {
		case n == r.Len():
			runs = slices.Delete(runs, p.run, p.run+1)
		case p.slots.First == r.First:
			r.First += topo.Slot(n)
		default:
			r.Last -= topo.Slot(n)
		}
	}
}

// choose picks the next piece of what from still has, and who gets it:
//
//  1. slots at the side of a run that touch slots of one who needs some; of
//     several the longest piece;
//  2. else the longest run that can be given whole;
//  3. else the end of the longest run (of free slots the beginning, so that an
//     empty cluster is assigned in the order of its groups).
//
// Invariant: the needs of all groups add up to zero, so as long as one has
// slots to give another needs some.
func (s *spread) choose(from int, runs []topo.SlotRange) piece {
	surplus, needy := -s.need(from), s.neediest(from)
	most := min(surplus, s.need(needy))
	var touching piece
	touched := 0
	whole, longest := -1, 0
	for i, r := range runs {
		if to := s.ownerAt(int(r.First) - 1); to != nobody && s.need(to) > 0 {
			if n := min(r.Len(), surplus, s.need(to)); n > touched {
				touching, touched = piece{i, head(r, n), to}, n
			}
		}
		if to := s.ownerAt(int(r.Last) + 1); to != nobody && s.need(to) > 0 {
			if n := min(r.Len(), surplus, s.need(to)); n > touched {
				touching, touched = piece{i, end(r, n), to}, n
			}
		}
		if n := r.Len(); n <= most && (whole < 0 || n > runs[whole].Len()) {
			whole = i
		}
		if r.Len() > runs[longest].Len() {
			longest = i
		}
	}
	switch {
	case touched > 0:
		return touching
	case whole >= 0:
		return piece{whole, runs[whole], needy}
	case from == nobody:
		return piece{longest, head(runs[longest], most), needy}
	}
	return piece{longest, end(runs[longest], most), needy}
}

// neediest is the group that lacks most; of free slots the first that lacks
// any.
func (s *spread) neediest(from int) int {
	found := nobody
	for g := range s.groups {
		if s.need(g) <= 0 {
			continue
		}
		if found == nobody || (from != nobody && s.need(g) > s.need(found)) {
			found = g
		}
	}
	return found
}

func (s *spread) ownerAt(slot int) int {
	if slot < 0 || slot >= len(s.owner) {
		return nobody
	}
	return s.owner[slot]
}

// runs lists the runs of slots a group has.
func (s *spread) runs(g int) []topo.SlotRange {
	var runs []topo.SlotRange
	for slot, owner := range s.owner {
		if owner != g {
			continue
		}
		if n := len(runs); n > 0 && int(runs[n-1].Last) == slot-1 {
			runs[n-1].Last = topo.Slot(slot)
			continue
		}
		runs = append(runs, topo.SlotRange{First: topo.Slot(slot), Last: topo.Slot(slot)})
	}
	return runs
}

func head(r topo.SlotRange, n int) topo.SlotRange {
	return topo.SlotRange{First: r.First, Last: r.First + topo.Slot(n-1)}
}

func end(r topo.SlotRange, n int) topo.SlotRange {
	return topo.SlotRange{First: r.Last - topo.Slot(n-1), Last: r.Last}
}

func (s *spread) changed() bool { return !slices.Equal(s.before, s.owner) }

// moves lists what changed, one move for each pair of groups, in their order.
func (s *spread) moves() []topo.Move {
	type pair struct{ from, to int }
	slots := map[pair][]topo.Slot{}
	var pairs []pair
	for slot, to := range s.owner {
		p := pair{s.before[slot], to}
		if p.from == p.to {
			continue
		}
		if slots[p] == nil {
			pairs = append(pairs, p)
		}
		slots[p] = append(slots[p], topo.Slot(slot))
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	moves := make([]topo.Move, len(pairs))
	for i, p := range pairs {
		moves[i] = topo.Move{Slots: topo.SlotSetOf(slots[p]), To: s.groups[p.to]}
		if p.from != nobody {
			moves[i].From = s.groups[p.from]
		}
	}
	return moves
}
