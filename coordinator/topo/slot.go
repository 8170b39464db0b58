package topo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Slot is one hash slot, 0 ≤ slot < Scheme.Slots().
type Slot uint16

// SlotRange is the inclusive range First-Last.
type SlotRange struct {
	First, Last Slot
}

// Len is the number of slots in the range.
func (r SlotRange) Len() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether s lies in the range.
func (r SlotRange) Contains(s Slot) bool { return r.First <= s && s <= r.Last }

// String gives "7" for one slot and "0-99" for more.
func (r SlotRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
}

// SlotSet is a set of slots as sorted, disjoint, non-adjacent ranges. The zero
// value is the empty set. Its text and JSON form is "0-99,512".
type SlotSet []SlotRange

// ParseSlots reads a list such as "0-99,512". Spaces around parts are allowed;
// parts may overlap and come in any order. limit is the scheme's slot count.
func ParseSlots(text string, limit int) (SlotSet, error) {
	var ranges []SlotRange
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := parseSlot(first, limit)
		if err != nil {
			return nil, err
		}
		b, err := parseSlot(last, limit)
		if err != nil {
			return nil, err
		}
		if b < a {
			return nil, fmt.Errorf("slot range %q runs backwards", part)
		}
		ranges = append(ranges, SlotRange{a, b})
	}
	return NewSlotSet(ranges...), nil
}

func parseSlot(text string, limit int) (Slot, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseUint(text, 10, 16) // no sign, no underscores
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && int(n) >= limit:
		return 0, fmt.Errorf("slot %s is outside 0-%d", text, limit-1)
	case err != nil:
		return 0, fmt.Errorf("slot %q is not a number", text)
	}
	return Slot(n), nil
}

// NewSlotSet unites ranges into a set.
func NewSlotSet(ranges ...SlotRange) SlotSet {
	if len(ranges) == 0 {
		return nil
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b SlotRange) int { return cmp.Compare(a.First, b.First) })
	set := SlotSet{sorted[0]}
	for _, r := range sorted[1:] {
		last := &set[len(set)-1]
		if int(r.First) <= int(last.Last)+1 {
			last.Last = max(last.Last, r.Last)
			continue
		}
		set = append(set, r)
	}
	return set
}

// SlotSetOf collects single slots.
func SlotSetOf(slots []Slot) SlotSet {
	ranges := make([]SlotRange, len(slots))
	for i, s := range slots {
		ranges[i] = SlotRange{s, s}
	}
	return NewSlotSet(ranges...)
}

// Len is the number of slots in the set.
func (s SlotSet) Len() int {
	n := 0
	for _, r := range s {
		n += r.Len()
	}
	return n
}

// Contains reports whether slot is in the set.
func (s SlotSet) Contains(slot Slot) bool {
	_, found := slices.BinarySearchFunc(s, slot, func(r SlotRange, slot Slot) int {
		switch {
		case r.Last < slot:
			return -1
		case r.First > slot:
			return 1
		}
		return 0
	})
	return found
}

// Slots lists every slot of the set in rising order.
func (s SlotSet) Slots() []Slot {
	all := make([]Slot, 0, s.Len())
	for _, r := range s {
		for slot := int(r.First); slot <= int(r.Last); slot++ {
			all = append(all, Slot(slot))
		}
	}
	return all
}

// Union is the set of slots in s or other.
func (s SlotSet) Union(other SlotSet) SlotSet {
	return NewSlotSet(slices.Concat(s, other)...)
}

// Overlaps reports whether any slot is in both sets.
func (s SlotSet) Overlaps(other SlotSet) bool {
	for len(s) > 0 && len(other) > 0 {
		switch {
		case s[0].Last < other[0].First:
			s = s[1:]
		case other[0].Last < s[0].First:
			other = other[1:]
		default:
			return true
		}
	}
	return false
}

// String gives the text form, "" for the empty set.
func (s SlotSet) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (s SlotSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the bound is that of the
// largest scheme, a Topology checks its own when it is validated.
func (s *SlotSet) UnmarshalText(text []byte) error {
	set, err := ParseSlots(string(text), maxSlots)
	if err != nil {
		return err
	}
	*s = set
	return nil
}
