package failover

import (
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
)

var now = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

// scene is a cluster of one group: master a, silent for ten seconds, replicas b
// and c in sync, and three proxies that all can not reach a.
func scene() (Cluster, Group) {
	replica := func(addr string, offset int64) Node {
		return Node{Addr: addr, Asked: true, Status: topo.NodeStatus{Addr: addr, Reachable: true, Role: topo.Replica, MasterAddr: "a",
			RunID: "run-" + addr, ReplID: "line", Offset: offset, LastIO: -1, Priority: 100}}
	}
	g := Group{ID: "g1", Master: "a", Run: "run-a", Lineage: "line", Offset: 1000, Live: 3, Against: 3, Nodes: []Node{
		{Addr: "a", Zone: "z1", Asked: true, Silent: 10 * time.Second, Status: topo.NodeStatus{Addr: "a", RunID: "run-a", Role: topo.Master, ReplID: "line"}},
		replica("b", 900), replica("c", 950),
	}}
	return Cluster{Now: now, Masters: 10, Silent: 1, Admitted: 3, Live: 3}, g
}

func answers(g *Group) *topo.NodeStatus {
	m := &g.Nodes[0]
	m.Silent, m.Status.Reachable = 0, true
	return &m.Status
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Cluster, g *Group)
		kind   Kind
		to     string
		says   string
	}{
		{"down, the one with most takes over", func(*Cluster, *Group) {}, Failover, "c", "3 of 3 proxies"},
		{"answers", func(_ *Cluster, g *Group) { answers(g) }, Fine, "", ""},
		{"not asked yet", func(_ *Cluster, g *Group) { g.Nodes[0].Asked = false }, Suspect, "", "not asked"},
		{"silent too shortly", func(_ *Cluster, g *Group) { g.Nodes[0].Silent = 2900 * time.Millisecond }, Suspect, "", "down counts after 3s"},
		{"a refused port counts sooner", func(_ *Cluster, g *Group) { g.Nodes[0].Silent, g.Nodes[0].Refused = 1100*time.Millisecond, true }, Failover, "c", ""},
		{"… but not at once", func(_ *Cluster, g *Group) { g.Nodes[0].Silent, g.Nodes[0].Refused = 900*time.Millisecond, true }, Suspect, "", ""},
		{"another patience", func(c *Cluster, _ *Group) { c.Settings.DownAfter = time.Minute }, Suspect, "", "1m0s"},
		{"two of three proxies", func(_ *Cluster, g *Group) { g.Against = 2 }, Failover, "c", ""},
		{"one of three proxies", func(_ *Cluster, g *Group) { g.Against = 1 }, Suspect, "", "only 1 of 3"},
		{"half of the proxies", func(c *Cluster, g *Group) { c.Live, g.Live, g.Against = 2, 2, 1 }, Suspect, "", "only 1 of 2"},
		{"no proxy is there", func(c *Cluster, g *Group) { c.Live, g.Live, g.Against = 0, 0, 0 }, Suspect, "", "cut off"},
		{"there are no proxies", func(c *Cluster, g *Group) { c.Admitted, c.Live, g.Live, g.Against = 0, 0, 0, 0 }, Failover, "c", ""},
		{"a replica hears it", func(_ *Cluster, g *Group) { s := &g.Nodes[1].Status; s.LinkUp, s.LastIO = true, 1 }, Suspect, "", "replica b hears"},
		{"a replica heard it", func(_ *Cluster, g *Group) { s := &g.Nodes[1].Status; s.LinkUp, s.LastIO = true, 2 }, Failover, "c", ""},
		{"a replica hears somebody else", func(_ *Cluster, g *Group) {
			s := &g.Nodes[1].Status
			s.LinkUp, s.LastIO, s.MasterAddr = true, 0, "x"
		}, Failover, "c", ""},
		{"many at once, all confirm", func(c *Cluster, _ *Group) { c.Silent = 5 }, Failover, "c", ""},
		{"many at once, not all confirm", func(c *Cluster, g *Group) { c.Silent, g.Against = 5, 2 }, Suspect, "", "every proxy must"},
		{"many at once, nobody to confirm", func(c *Cluster, g *Group) { c.Silent, c.Admitted, c.Live, g.Live, g.Against = 5, 0, 0, 0, 0 }, Suspect, "", "no proxy to confirm"},
		{"two of four are not many", func(c *Cluster, g *Group) { c.Masters, c.Silent, g.Against = 4, 2, 2 }, Failover, "c", ""},

		{"maintenance", func(c *Cluster, _ *Group) { c.Settings.MaintenanceUntil = now.Add(time.Second) }, Blocked, "c", "maintenance"},
		{"maintenance is over", func(c *Cluster, _ *Group) { c.Settings.MaintenanceUntil = now }, Failover, "c", ""},
		{"just had one", func(_ *Cluster, g *Group) { g.Failovers = []time.Time{now.Add(-59 * time.Second)} }, Blocked, "c", "was just made"},
		{"had one a while ago", func(_ *Cluster, g *Group) { g.Failovers = []time.Time{now.Add(-61 * time.Second)} }, Failover, "c", ""},
		{"had two in a row", func(_ *Cluster, g *Group) {
			g.Failovers = []time.Time{now.Add(-170 * time.Second), now.Add(-100 * time.Second)}
		}, Blocked, "c", "was just made"},
		{"too much would be lost", func(c *Cluster, _ *Group) { c.Settings.MaxLoss = 49 }, Blocked, "c", "50 bytes behind"},
		{"not too much", func(c *Cluster, _ *Group) { c.Settings.MaxLoss = 50 }, Failover, "c", ""},

		{"no replica", func(_ *Cluster, g *Group) { g.Nodes = g.Nodes[:1] }, Blocked, "", "has no replica"},
		{"no replica answers", func(_ *Cluster, g *Group) { g.Nodes[1].Status.Reachable, g.Nodes[2].Status.Reachable = false, false }, Blocked, "", "b does not answer"},
		{"the best is loading", func(_ *Cluster, g *Group) { g.Nodes[2].Status.Loading = true }, Failover, "b", ""},
		{"the best has other data", func(_ *Cluster, g *Group) { g.Nodes[2].Status.ReplID = "other" }, Failover, "b", ""},
		{"the best must never", func(_ *Cluster, g *Group) { g.Nodes[2].Status.Priority = 0 }, Failover, "b", ""},
		{"equal, by priority", func(_ *Cluster, g *Group) { g.Nodes[1].Status.Offset, g.Nodes[2].Status.Priority = 950, 200 }, Failover, "b", ""},
		{"equal, by zone", func(_ *Cluster, g *Group) { g.Nodes[1].Status.Offset, g.Nodes[2].Zone = 950, "z1" }, Failover, "c", ""},
		{"one was promoted before", func(_ *Cluster, g *Group) {
			s := &g.Nodes[2].Status
			s.Role, s.ReplID, s.PrevReplID, s.Priority = topo.Master, "new", "line", 0
		}, Failover, "c", ""},
		{"one is somebody else's master", func(_ *Cluster, g *Group) { s := &g.Nodes[2].Status; s.Role, s.ReplID = topo.Master, "new" }, Failover, "b", ""},

		{"strict: the one in sync", func(c *Cluster, g *Group) { c.Settings.Durability, g.InSync = topo.Strict, []string{"b"} }, Failover, "b", ""},
		{"strict: none in sync", func(c *Cluster, _ *Group) { c.Settings.Durability = topo.Strict }, Blocked, "", "was not in sync"},
		{"strict: one that may have more is away", func(c *Cluster, g *Group) {
			c.Settings.Durability, g.InSync, g.Nodes[0].Silent = topo.Strict, []string{"b", "c"}, 4*time.Second
			g.Nodes[2].Status.Reachable = false
		}, Blocked, "", "may have more"},
		{"strict: it was waited for", func(c *Cluster, g *Group) {
			c.Settings.Durability, g.InSync = topo.Strict, []string{"b", "c"}
			g.Nodes[2].Status.Reachable = false
		}, Failover, "b", ""},

		{"restarted", func(_ *Cluster, g *Group) { answers(g).RunID = "x" }, Failover, "c", "restarted"},
		{"restarted, whatever the proxies say", func(_ *Cluster, g *Group) { answers(g).RunID, g.Against = "x", 0 }, Failover, "c", ""},
		{"restarted, its replicas took over its data", func(_ *Cluster, g *Group) {
			answers(g).RunID, g.Nodes[1].Status.ReplID, g.Nodes[2].Status.ReplID = "x", "new", "new"
		}, Adopt, "a", "no replica has its data"},
		{"restarted, no replica", func(_ *Cluster, g *Group) { answers(g).RunID, g.Nodes = "x", g.Nodes[:1] }, Adopt, "a", ""},
		{"restarted, no replica, loading", func(_ *Cluster, g *Group) {
			s := answers(g)
			s.RunID, s.Loading, g.Nodes = "x", true, g.Nodes[:1]
		}, Suspect, "", "loading"},
		{"restarted in maintenance", func(c *Cluster, g *Group) { answers(g).RunID, c.Settings.MaintenanceUntil = "x", now.Add(time.Hour) }, Blocked, "c", "maintenance"},
		{"the process was never recorded", func(_ *Cluster, g *Group) { answers(g).RunID, g.Run = "x", "" }, Fine, "", ""},

		{"made a replica a moment ago", func(_ *Cluster, g *Group) { s := answers(g); s.Role, s.MasterAddr = topo.Replica, "x" }, Suspect, "", "replica of x"},
		{"made a replica of somebody, data intact", func(_ *Cluster, g *Group) {
			s := answers(g)
			s.Role, s.MasterAddr, g.Unmade = topo.Replica, "x", 4*time.Second
		}, Remake, "a", ""},
		{"made a replica of somebody, data gone", func(_ *Cluster, g *Group) {
			s := answers(g)
			s.Role, s.MasterAddr, s.ReplID, g.Unmade = topo.Replica, "x", "other", 4*time.Second
		}, Failover, "c", ""},
		{"a replica was made master by hand", func(_ *Cluster, g *Group) {
			s := answers(g)
			s.Role, s.MasterAddr, g.Unmade = topo.Replica, "b", 4*time.Second
			g.Nodes[1].Status.Role = topo.Master
		}, Failover, "b", "which is one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, g := scene()
			tc.change(&c, &g)
			v := Judge(c, g)
			if v.Kind != tc.kind || v.To != tc.to || !strings.Contains(v.Reason, tc.says) {
				t.Errorf("got %+v, want %s to %q that says %q", v, tc.kind, tc.to, tc.says)
			}
			if v.Kind != Fine && v.Reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestLossIsWhatTheMasterHadMore(t *testing.T) {
	c, g := scene()
	if v := Judge(c, g); v.Loss != 50 {
		t.Errorf("loss %d", v.Loss)
	}
	g.Offset = 10 // last seen long ago
	if v := Judge(c, g); v.Loss != 0 {
		t.Errorf("loss %d", v.Loss)
	}
}

func TestRestDoublesWhileFailoversRepeat(t *testing.T) {
	at := func(minutes ...float64) []time.Time {
		var all []time.Time
		for _, m := range minutes {
			all = append(all, now.Add(time.Duration(m*float64(time.Minute))))
		}
		return all
	}
	for _, tc := range []struct {
		had  []time.Time
		rest time.Duration
	}{
		{at(0), time.Minute},
		{at(0, 1.5), 2 * time.Minute},
		{at(0, 1.5, 4), 4 * time.Minute},
		{at(0, 1.5, 4, 30), time.Minute},
		{at(0, 1, 2, 4, 8, 16, 32, 64, 128, 189), time.Hour},
	} {
		if got := Rest(tc.had).Sub(tc.had[len(tc.had)-1]); got != tc.rest {
			t.Errorf("after %d: %s, want %s", len(tc.had), got, tc.rest)
		}
	}
	if !Rest(nil).IsZero() {
		t.Error("a rest after nothing")
	}
}
