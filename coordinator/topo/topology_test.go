package topo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardis/coordinator/topo"
)

// sample is a topology that uses every field.
func sample(t testing.TB) *topo.Topology {
	t.Helper()
	empty := &topo.Topology{Format: topo.Format, Cluster: "c", History: "h", Scheme: topo.CRC16, Databases: 16}
	return next(t, empty, func(n *topo.Topology) {
		n.Groups = []topo.Group{
			{ID: "g1", Nodes: []topo.Node{{Addr: "10.0.0.1:6379", Role: topo.Master, Zone: "a"}, {Addr: "10.0.0.2:6379", Role: topo.Replica}}},
			{ID: "g2", Nodes: []topo.Node{{Addr: "[fd00::1]:6379", Role: topo.Master}}},
			{ID: "g3", Nodes: []topo.Node{{Addr: "redis-3.example:6379", Role: topo.Master}}},
		}
		n.Assign(topo.SlotSet{{First: 0, Last: 8191}}, "g1")
		n.Assign(topo.SlotSet{{First: 100, Last: 100}, {First: 10000, Last: 16383}}, "g2")
		n.Proxies = []topo.Member{{ID: "p1", Incarnation: "i1", State: topo.Admitted}, {ID: "p2", Incarnation: "i1", State: topo.Evicting}}
		n.Hold = &topo.Hold{ID: "hold-1", Phase: topo.Holding, Slots: topo.SlotSet{{First: 5, Last: 9}}, Attempt: "a", Timeout: 1500}
	})
}

func next(t testing.TB, from *topo.Topology, change func(*topo.Topology)) *topo.Topology {
	t.Helper()
	n, err := from.Next(change)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNextLeavesTheOriginalAlone(t *testing.T) {
	c := sample(t)
	before, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	n := next(t, c, func(n *topo.Topology) {
		n.Groups[0].Nodes[0].Role, n.Groups[0].Nodes[1].Role = topo.Replica, topo.Master
		n.Slots[0].Group = "g3"
		n.Proxies[0].State = topo.Evicting
		n.Hold.Phase = topo.Promoting
		n.Hold.Slots[0].Last = 10
		n.Epoch = 99 // Next decides.
	})
	if n.Epoch != c.Epoch+1 {
		t.Errorf("epoch %d follows %d", n.Epoch, c.Epoch)
	}
	after, err := c.Encode()
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the original changed to %s", after)
	}
	if _, err := c.Next(func(n *topo.Topology) { n.Groups = nil }); err == nil {
		t.Error("an invalid change was accepted")
	}
}

func TestNextJoinsRuns(t *testing.T) {
	n := next(t, sample(t), func(n *topo.Topology) {
		n.Slots = []topo.Run{{First: 0, Last: 4, Group: "g1"}, {First: 5, Last: 9, Group: "g1"}, {First: 11, Last: 12, Group: "g1"}, {First: 13, Last: 14, Group: "g2"}}
	})
	want := []topo.Run{{First: 0, Last: 9, Group: "g1"}, {First: 11, Last: 12, Group: "g1"}, {First: 13, Last: 14, Group: "g2"}}
	if !slices.Equal(n.Slots, want) {
		t.Errorf("got %v", n.Slots)
	}
}

func TestAssignAndOwners(t *testing.T) {
	c := sample(t)
	want := []topo.Run{{First: 0, Last: 99, Group: "g1"}, {First: 100, Last: 100, Group: "g2"}, {First: 101, Last: 8191, Group: "g1"}, {First: 10000, Last: 16383, Group: "g2"}}
	if !slices.Equal(c.Slots, want) {
		t.Fatalf("got %v", c.Slots)
	}
	for slot, owner := range c.Owners() {
		if got := c.Owner(topo.Slot(slot)); got != owner {
			t.Fatalf("slot %d: %q by search, %q by array", slot, got, owner)
		}
	}
	if s := c.Unassigned().String(); s != "8192-9999" {
		t.Errorf("unassigned: %s", s)
	}
	if s := c.SlotsOf("g1").String(); s != "0-99,101-8191" {
		t.Errorf("of g1: %s", s)
	}
	c = next(t, c, func(n *topo.Topology) { n.Assign(topo.CRC16.All(), "") })
	if len(c.Slots) != 0 || c.Unassigned().Len() != 16384 || c.Owner(0) != "" {
		t.Errorf("after taking all: %v", c.Slots)
	}
}

func TestLookups(t *testing.T) {
	c := sample(t)
	if c.Group("g2").Master() != "[fd00::1]:6379" || c.Group("gx") != nil {
		t.Error("Group")
	}
	if c.GroupOfNode("10.0.0.2:6379").ID != "g1" || c.GroupOfNode("10.0.0.9:6379") != nil {
		t.Error("GroupOfNode")
	}
	if c.Member("p2").State != topo.Evicting || c.Member("px") != nil {
		t.Error("Member")
	}
}

func TestValidateRefuses(t *testing.T) {
	for says, breakIt := range map[string]func(*topo.Topology){
		"unknown slot scheme":           func(n *topo.Topology) { n.Scheme = "md5" },
		"databases is 0":                func(n *topo.Topology) { n.Databases = 0 },
		"group g1 is listed twice":      func(n *topo.Topology) { n.Groups[1].ID = "g1" },
		"\"G2\" is not a valid id":      func(n *topo.Topology) { n.Groups[1].ID = "G2" },
		"is in group g1 and in group":   func(n *topo.Topology) { n.Groups[1].Nodes[0].Addr = "10.0.0.1:6379" },
		"is not an address":             func(n *topo.Topology) { n.Groups[1].Nodes[0].Addr = "10.0.0.1" },
		"has 0 masters":                 func(n *topo.Topology) { n.Groups[1].Nodes[0].Role = topo.Replica },
		"has 2 masters":                 func(n *topo.Topology) { n.Groups[0].Nodes[1].Role = topo.Master },
		"unknown role":                  func(n *topo.Topology) { n.Groups[0].Nodes[1].Role = "slave" },
		"belong to unknown group":       func(n *topo.Topology) { n.Slots[0].Group = "gx" },
		"overlaps the one before":       func(n *topo.Topology) { n.Slots[1].First = 50 },
		"is not inside 0-16383":         func(n *topo.Topology) { n.Slots[3].Last = 16384 },
		"slot run 9-5":                  func(n *topo.Topology) { n.Slots[0] = topo.Run{First: 9, Last: 5, Group: "g1"} },
		"is not inside 0-1023":          func(n *topo.Topology) { n.Scheme = topo.CRC32 },
		"proxy p1 is listed twice":      func(n *topo.Topology) { n.Proxies[1].ID = "p1" },
		"proxy p1 has unknown state":    func(n *topo.Topology) { n.Proxies[0].State = "gone" },
		"proxy p1 has no incarnation":   func(n *topo.Topology) { n.Proxies[0].Incarnation = "" },
		"proxy: \"\" is not a valid id": func(n *topo.Topology) { n.Proxies[0].ID = "" },
		"unknown phase":                 func(n *topo.Topology) { n.Hold.Phase = "waiting" },
		"reaches past slot 16383":       func(n *topo.Topology) { n.Hold.Slots[0].Last = 16384 },
		"are not sorted and joined":     func(n *topo.Topology) { n.Hold.Slots = topo.SlotSet{{First: 9, Last: 9}, {First: 1, Last: 2}} },
	} {
		if _, err := sample(t).Next(breakIt); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
}

func TestCheckAddr(t *testing.T) {
	for addr, ok := range map[string]bool{
		"10.0.0.1:6379": true, "redis-1.a.example:1": true, "[::1]:6379": true, "[fe80::1%eth0]:6379": true, "my_redis:65535": true,
		"": false, ":6379": false, "host": false, "host:": false, "host:0": false, "host:65536": false, "host:06379": false, "host:+6379": false,
		"Host:6379": false, "a b:6379": false, "::1:6379": false, "redis://host:6379": false, "user@host:6379": false, "host:6379 ": false,
	} {
		if err := topo.CheckAddr(addr); (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "g-1": true, strings.Repeat("x", 40): true,
		"": false, "-a": false, "a-": false, "A": false, "a_b": false, "a/b": false, strings.Repeat("x", 41): false, "a\n": false,
	} {
		if err := topo.CheckID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestEncodeDecode(t *testing.T) {
	c := sample(t)
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(`"slots":{"g1":"0-99,101-8191","g2":"100,10000-16383"}`)) {
		t.Errorf("stored as %s", data)
	}
	back, err := topo.DecodeTopology(data)
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Fatalf("got %+v, %v, want %+v", back, err, c)
	}
	for says, data := range map[string]string{
		"format 2 is not 1":       strings.Replace(string(data), `"format":1`, `"format":2`, 1),
		"overlaps":                strings.Replace(string(data), `"100,`, `"101,`, 1),
		"belong to unknown group": strings.Replace(string(data), `"g2":"100`, `"gx":"100`, 1),
		"unexpected end":          string(data[:len(data)/2]),
		"cannot unmarshal":        `[]`,
		"format 0":                `null`,
	} {
		if _, err := topo.DecodeTopology([]byte(data)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
}

// etcd takes requests of 1.5 MiB. The worst a cluster of 500 groups and 1,000
// proxies can become is to stay far below.
func TestTheLargestTopologyFitsEtcd(t *testing.T) {
	c := next(t, &topo.Topology{Format: topo.Format, Scheme: topo.CRC16, Databases: 16}, func(n *topo.Topology) {
		owned := make([][]topo.Slot, 500)
		for s := range 16384 {
			owned[s%500] = append(owned[s%500], topo.Slot(s))
		}
		for i := range 500 {
			g := topo.Group{ID: fmt.Sprintf("a-group-with-a-very-long-name-of-its-%03d", i)}
			for j, role := range []topo.Role{topo.Master, topo.Replica, topo.Replica} {
				g.Nodes = append(g.Nodes, topo.Node{Addr: fmt.Sprintf("redis-%d-%d.some.long.example.com:6379", i, j), Role: role, Zone: "eu-west-1a"})
			}
			n.Groups = append(n.Groups, g)
			for _, s := range owned[i] {
				n.Slots = append(n.Slots, topo.Run{First: s, Last: s, Group: g.ID})
			}
		}
		slices.SortFunc(n.Slots, func(a, b topo.Run) int { return int(a.First) - int(b.First) })
		for i := range 1000 {
			n.Proxies = append(n.Proxies, topo.Member{ID: fmt.Sprintf("proxy-on-some-machine-%d", i), Incarnation: "abcdefghij", State: topo.Admitted})
		}
	})
	if len(c.Slots) != 16384 {
		t.Fatalf("%d runs", len(c.Slots))
	}
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(data))
	if len(data) > 512<<10 {
		t.Errorf("%d bytes: more than a third of what etcd takes", len(data))
	}
	back, err := topo.DecodeTopology(data)
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("it does not come back as it was: %v", err)
	}
}

func FuzzDecodeTopology(f *testing.F) {
	data, err := sample(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":1,"scheme":"crc32/1024","databases":1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := topo.DecodeTopology(data)
		if err != nil {
			return
		}
		stored, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := topo.DecodeTopology(stored)
		if err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if !reflect.DeepEqual(back, c) {
			t.Fatalf("%+v became %+v", c, back)
		}
		if owned := len(c.Owners()) - c.Unassigned().Len(); owned < 0 {
			t.Fatal("more slots owned than there are")
		}
		var any any
		if err := json.Unmarshal(stored, &any); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkDecodeTopology(b *testing.B) {
	data, err := sample(b).Encode()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := topo.DecodeTopology(data); err != nil {
			b.Fatal(err)
		}
	}
}
