package topo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// The stored form of a topology gives the slots of each group as text:
//
//	"slots": {"g1": "0-5460", "g2": "5461-16383"}
//
// etcd takes requests of 1.5 MiB, and every change of the topology goes to every
// proxy. As a list of runs, 16,384 alternating slots with the longest group ids
// come to 1.4 MB; like this to 0.1 MB, and the usual few runs to next to
// nothing (docs/adr/0003-topology-as-one-document.md).

// stored shadows the field that is stored in another form.
type stored struct {
	*plain
	Slots map[string]SlotSet `json:"slots"`
}

type plain Topology // without the methods

// MarshalJSON implements json.Marshaler.
func (t Topology) MarshalJSON() ([]byte, error) {
	slots := map[string]SlotSet{}
	for _, r := range t.Slots {
		slots[r.Group] = append(slots[r.Group], SlotRange{r.First, r.Last})
	}
	for group, ranges := range slots {
		slots[group] = NewSlotSet(ranges...)
	}
	return json.Marshal(stored{(*plain)(&t), slots})
}

// UnmarshalJSON implements json.Unmarshaler. It does not validate.
func (t *Topology) UnmarshalJSON(data []byte) error {
	s := stored{plain: (*plain)(t)}
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	t.Slots = []Run{}
	for group, ranges := range s.Slots {
		for _, r := range ranges {
			t.Slots = append(t.Slots, Run{r.First, r.Last, group})
		}
	}
	slices.SortFunc(t.Slots, func(a, b Run) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Group, b.Group)) })
	return nil
}

// Encode gives the stored form.
func (t *Topology) Encode() ([]byte, error) { return json.Marshal(t) }

// DecodeTopology reads the stored form and validates it.
func DecodeTopology(data []byte) (*Topology, error) {
	var t Topology
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("decode topology: %w", err)
	}
	if t.Format != Format {
		return nil, fmt.Errorf("decode topology: format %d is not %d: another release wrote it", t.Format, Format)
	}
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("decode topology: %w", err)
	}
	return &t, nil
}
