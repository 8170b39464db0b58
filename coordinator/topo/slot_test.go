package topo_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"shardis/coordinator/topo"
)

func TestParseSlots(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "",
		" , ,":              "",
		"7":                 "7",
		"0-99,512":          "0-99,512",
		"512, 0 - 99":       "0-99,512",
		"5-6,1-2,3-4":       "1-6",
		"1-10,3-4":          "1-10",
		"0-16383":           "0-16383",
		"16383,16382,0,0,0": "0,16382-16383",
	} {
		got, err := topo.ParseSlots(text, 16384)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"a", "-", "-1", "1-", "+1", "1-2-3", "16384", "0-16384", "9-3", "1_0", "0x1", "1.5", "99999999999999999999", "１"} {
		if got, err := topo.ParseSlots(text, 16384); err == nil {
			t.Errorf("%q was accepted as %q", text, got)
		}
	}
	if _, err := topo.ParseSlots("1024", 1024); err == nil {
		t.Error("a slot past the limit was accepted")
	}
}

// TestSlotSetAgreesWithAMap compares the set with the plainest one there is.
func TestSlotSetAgreesWithAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	random := func() (topo.SlotSet, map[topo.Slot]bool) {
		var ranges []topo.SlotRange
		all := map[topo.Slot]bool{}
		for range r.IntN(8) {
			first := topo.Slot(r.IntN(200))
			last := first + topo.Slot(r.IntN(30))
			if r.IntN(10) == 0 {
				first, last = 16383-first/8, 16383
			}
			ranges = append(ranges, topo.SlotRange{First: first, Last: last})
			for s := int(first); s <= int(last); s++ {
				all[topo.Slot(s)] = true
			}
		}
		return topo.NewSlotSet(ranges...), all
	}
	for range 2000 {
		a, inA := random()
		b, inB := random()
		overlap := false
		for s := range inA {
			overlap = overlap || inB[s]
		}
		if a.Len() != len(inA) || len(a.Slots()) != len(inA) || a.Overlaps(b) != overlap || b.Overlaps(a) != overlap {
			t.Fatalf("%s and %s: wrong length or overlap", a, b)
		}
		for i, x := range a {
			if x.First > x.Last || (i > 0 && int(x.First) <= int(a[i-1].Last)+1) {
				t.Fatalf("%s is not sorted, disjoint and joined", a)
			}
		}
		u := a.Union(b)
		for _, s := range []topo.Slot{0, 1, 50, 199, 230, topo.Slot(r.IntN(256)), 16382, 16383} {
			if a.Contains(s) != inA[s] || u.Contains(s) != (inA[s] || inB[s]) {
				t.Fatalf("%s: slot %d", a, s)
			}
		}
		if back := topo.SlotSetOf(a.Slots()); !slices.Equal(back, a) {
			t.Fatalf("%s became %s", a, back)
		}
	}
}

func TestSlotSetJSON(t *testing.T) {
	type doc struct {
		Slots topo.SlotSet `json:"slots"`
		None  topo.SlotSet `json:"none,omitzero"`
	}
	data, err := json.Marshal(doc{Slots: topo.SlotSet{{First: 0, Last: 99}, {First: 512, Last: 512}}})
	if err != nil || string(data) != `{"slots":"0-99,512"}` {
		t.Fatalf("got %s, %v", data, err)
	}
	var back doc
	if err := json.Unmarshal(data, &back); err != nil || back.Slots.String() != "0-99,512" || back.None != nil {
		t.Fatalf("got %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"slots":"1-x"}`), &back); err == nil {
		t.Fatal("bad slots were accepted")
	}
}

func FuzzParseSlots(f *testing.F) {
	for _, text := range []string{"", "0-99,512", " 1 , 2", "5-3", "16383", "-1", "0-16383,0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := topo.ParseSlots(text, 16384)
		if err != nil {
			return
		}
		if !slices.Equal(set, topo.NewSlotSet(set...)) {
			t.Fatalf("%q: %v is not sorted and joined", text, set)
		}
		if n := len(set); n > 0 && set[n-1].Last > 16383 {
			t.Fatalf("%q: past the limit", text)
		}
		back, err := topo.ParseSlots(set.String(), 16384)
		if err != nil || !slices.Equal(back, set) {
			t.Fatalf("%q: %s became %s, %v", text, set, back, err)
		}
	})
}
