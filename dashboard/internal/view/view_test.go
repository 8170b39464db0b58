package view

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/report"
)

var (
	now   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	quiet = slog.New(slog.DiscardHandler)
)

func item(t *testing.T, key string, rev int64, v any) store.Item {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return store.Item{Key: key, Value: data, Rev: rev}
}

func slotSet(text string) topo.SlotSet {
	set, err := topo.ParseSlots(text, 1024)
	if err != nil {
		panic(err)
	}
	return set
}

func topology() *topo.Topology {
	return &topo.Topology{
		Format: topo.Format, Cluster: "c", History: "h", Scheme: topo.CRC32, Databases: 16, Epoch: 5,
		Groups: []topo.Group{
			{ID: "g1", Nodes: []topo.Node{{Addr: "n1:1", Role: topo.Master}, {Addr: "n2:1", Role: topo.Replica}}},
			{ID: "g2", Nodes: []topo.Node{{Addr: "n3:1", Role: topo.Master}}},
		},
		Slots:   []topo.Run{{First: 0, Last: 511, Group: "g1"}, {First: 512, Last: 1023, Group: "g2"}},
		Proxies: []topo.Member{{ID: "p1", Incarnation: "i1", State: topo.Admitted}},
	}
}

func meta() topo.Meta {
	return topo.Meta{Format: topo.Format, Cluster: "c", Name: "test", Scheme: topo.CRC32, Databases: 16}
}

func seen(group string, nodes ...topo.NodeStatus) topo.Observed {
	return topo.Observed{Format: topo.Format, Group: group, At: now, Nodes: nodes}
}

func node(addr string, role topo.Role) topo.NodeStatus {
	return topo.NodeStatus{Addr: addr, Reachable: true, Role: role, LinkUp: role == topo.Replica, UsedMemory: 100, Keys: map[string]int64{"0": 10, "3": 5}}
}

// healthy is a state in which nothing is the matter.
func healthy() *State {
	s := emptyState()
	m := meta()
	s.Rev, s.Leader, s.Meta, s.Topology = 9, "c1", &m, topology()
	s.Observed["g1"] = seen("g1", node("n1:1", topo.Master), node("n2:1", topo.Replica))
	s.Observed["g2"] = seen("g2", node("n3:1", topo.Master))
	s.Proxies["p1"] = topo.ProxyRecord{ID: "p1", Incarnation: "i1", AppliedEpoch: 5}
	return s
}

func TestSlotMap(t *testing.T) {
	s := healthy()
	s.Topology.Slots = []topo.Run{{First: 0, Last: 511, Group: "g1"}, {First: 600, Last: 1023, Group: "g2"}}
	s.Topology.Hold = &topo.Hold{ID: "h1", Phase: topo.Holding, Slots: slotSet("40-49")}
	s.Operations["op-1"] = &topo.Operation{ID: "op-1", State: topo.OpRunning, Moves: []topo.MoveProgress{
		{Move: topo.Move{Slots: slotSet("0-99"), From: "g1", To: "g2"}, State: topo.MoveHandingOver},
		{Move: topo.Move{Slots: slotSet("200-299"), From: "g1", To: "g2"}, State: topo.MovePending},
		{Move: topo.Move{Slots: slotSet("600-609"), From: "g1", To: "g2"}, State: topo.MovePurging}, // switched
	}}
	s.Operations["op-2"] = &topo.Operation{ID: "op-2", State: topo.OpFailed, Moves: []topo.MoveProgress{
		{Move: topo.Move{Slots: slotSet("700"), From: "g2", To: "g1"}, State: topo.MoveCopying},
	}}
	want := []SlotRun{
		{"0-39", "g1", SlotMoving, "g2"},
		{"40-49", "g1", SlotHeld, "g2"},
		{"50-99", "g1", SlotMoving, "g2"},
		{"100-511", "g1", SlotOnline, ""},
		{"512-599", "", SlotUnassigned, ""},
		{"600-1023", "g2", SlotOnline, ""},
	}
	if got := SlotMap(s); !reflect.DeepEqual(got.Items, want) || got.Epoch != 5 || got.SlotCount != 1024 {
		t.Errorf("got %+v", got)
	}
	if got := SlotMap(emptyState()); got.Items == nil || len(got.Items) != 0 {
		t.Errorf("without a topology: %+v", got)
	}
}

func TestLookupKey(t *testing.T) {
	s := healthy()
	a, found := LookupKey(s, "{user}.name")
	b, _ := LookupKey(s, "user")
	if !found || a.Tag != "user" || a.Slot != b.Slot || a.Master == "" || a.Group != s.Topology.Owner(topo.Slot(a.Slot)) {
		t.Errorf("got %+v and %+v", a, b)
	}
	if _, found := LookupKey(emptyState(), "x"); found {
		t.Error("a key was found without a topology")
	}
}

func TestGroupState(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*State)
		state  GroupState
		says   string
	}{
		"all well":           {func(*State) {}, GroupOK, ""},
		"never looked at":    {func(s *State) { delete(s.Observed, "g1") }, GroupAttention, "No coordinator has looked"},
		"unchanged for long": {func(s *State) { o := s.Observed["g1"]; o.At = now.Add(-time.Hour); s.Observed["g1"] = o }, GroupOK, ""},
		"nobody looks": {func(s *State) {
			o := s.Observed["g1"]
			o.At = now.Add(-time.Minute)
			s.Observed["g1"], s.Leader = o, ""
		}, GroupAttention, "60 s ago"},
		"master away":           {func(s *State) { s.Observed["g1"].Nodes[0].Reachable = false }, GroupDown, "n1:1 does not answer"},
		"replica away":          {func(s *State) { s.Observed["g1"].Nodes[1].Reachable = false }, GroupAttention, "n2:1 does not answer"},
		"replica not connected": {func(s *State) { s.Observed["g1"].Nodes[1].LinkUp = false }, GroupAttention, "not connected"},
		"another role":          {func(s *State) { s.Observed["g1"].Nodes[0].Role = topo.Replica }, GroupAttention, "should be a master"},
		"loading":               {func(s *State) { s.Observed["g1"].Nodes[0].Loading = true }, GroupAttention, "loading"},
		"memory nearly full":    {func(s *State) { s.Observed["g1"].Nodes[0].MaxMemory = 110 }, GroupAttention, "90 %"},
		"node not seen yet":     {func(s *State) { s.Observed["g1"] = seen("g1", node("n1:1", topo.Master)) }, GroupAttention, "n2:1 was not looked at"},
		"draining": {func(s *State) {
			s.Operations["op"] = &topo.Operation{ID: "op", Goal: topo.GoalDrain, State: topo.OpRunning, Moves: []topo.MoveProgress{{Move: topo.Move{From: "g1", To: "g2"}}}}
		}, GroupDraining, ""},
	} {
		s := healthy()
		tt.change(s)
		g := Groups(s, now)[0]
		if g.State != tt.state || !strings.Contains(g.Problem, tt.says) || (tt.says == "") != (g.Problem == "") {
			t.Errorf("%s: %s, %q", name, g.State, g.Problem)
		}
	}
	s := healthy()
	o := s.Observed["g1"]
	o.Hidden = 4
	s.Observed["g1"] = o
	if g := Groups(s, now)[0]; g.Keys != 11 || g.SlotCount != 512 || g.Slots != "0-511" || len(g.Nodes) != 2 {
		t.Errorf("figures: %+v", g)
	}
}

func TestProxyState(t *testing.T) {
	s := healthy()
	s.Topology.Epoch = 8
	s.Topology.Proxies = append(s.Topology.Proxies,
		topo.Member{ID: "p2", Incarnation: "i1", State: topo.Evicting},
		topo.Member{ID: "p3", Incarnation: "i1", State: topo.Admitted},
		topo.Member{ID: "p4", Incarnation: "i1", State: topo.Admitted},
		topo.Member{ID: "p5", Incarnation: "old", State: topo.Admitted})
	s.Proxies["p4"] = topo.ProxyRecord{ID: "p4", Incarnation: "i1", Draining: true}
	s.Proxies["p5"] = topo.ProxyRecord{ID: "p5", Incarnation: "new"}
	s.Proxies["p6"] = topo.ProxyRecord{ID: "p6", Incarnation: "i1"}
	want := map[string]ProxyState{"p1": ProxyServing, "p2": ProxyEvicting, "p3": ProxyDown, "p4": ProxyDraining, "p5": ProxyStarting, "p6": ProxyStarting}
	live := map[string]Figures{"p1": {Status: report.Status{Incarnation: "another", OpsPerSecond: 7}, At: now}}
	for _, p := range Proxies(s, live) {
		if p.State != want[p.ID] {
			t.Errorf("%s is %s, want %s", p.ID, p.State, want[p.ID])
		}
		if p.ID == "p1" && (p.EpochLag != 3 || p.OpsPerSecond != 0 || p.FiguresAt != nil) {
			t.Errorf("p1 has figures of another incarnation: %+v", p)
		}
	}
}

func TestStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*State)
		away   bool
		health Health
		says   string // in the sentence
		title  string // of the first finding
	}{
		"all well":     {func(*State) {}, false, HealthOK, "All 1024 slots served. 2 groups, 1 proxy. Nothing is moving.", ""},
		"etcd away":    {func(*State) {}, true, HealthCritical, "1 thing needs attention", "etcd does not answer"},
		"not created":  {func(s *State) { s.Meta, s.Topology = nil, nil }, false, HealthCritical, "shardis init", "not created"},
		"nothing read": {func(s *State) { *s = *emptyState() }, false, HealthOK, "Waiting for etcd", ""},
		"unassigned":   {func(s *State) { s.Topology.Slots = s.Topology.Slots[:1] }, false, HealthCritical, "512 of 1024 slots served", "512 slots are not assigned"},
		"no groups":    {func(s *State) { s.Topology.Slots, s.Topology.Groups = nil, nil }, false, HealthAttention, "None of 1024", "No groups yet"},
		"master away":  {func(s *State) { s.Observed["g2"].Nodes[0].Reachable = false }, false, HealthCritical, "512 of 1024 slots served", "Group g2 is down"},
		"no leader":    {func(s *State) { s.Leader = "" }, false, HealthAttention, "All 1024", "No coordinator leads"},
		"no proxy":     {func(s *State) { delete(s.Proxies, "p1") }, false, HealthCritical, "0 proxies", "No proxy serves"},
		"running": {func(s *State) {
			s.Operations["op"] = &topo.Operation{
				ID: "op", Kind: topo.OpMigrate, Goal: topo.GoalSlots, State: topo.OpRunning,
				Progress: topo.Progress{Fraction: .5, SlotsDone: 10, SlotsTotal: 20, ETASeconds: 130},
			}
		}, false, HealthOK, "Rebalance: 50 %, 10 of 20 slots, about 2 min left.", ""},
		"parked": {func(s *State) {
			s.Operations["op"] = &topo.Operation{ID: "op", Kind: topo.OpMigrate, State: topo.OpRunning, Moves: []topo.MoveProgress{
				{Move: topo.Move{Slots: slotSet("7")}, State: topo.MoveParked, Reason: "a big key"},
			}}
		}, false, HealthAttention, "", "Slots 7 wait for a decision"},
	} {
		s := healthy()
		tt.change(s)
		st := StatusOf(s, nil, !tt.away, now)
		if st.Health != tt.health || !strings.Contains(st.Summary, tt.says) {
			t.Errorf("%s: %s, %q", name, st.Health, st.Summary)
		}
		if (tt.title == "") != (len(st.Attention) == 0) || (tt.title != "" && !strings.Contains(st.Attention[0].Title, tt.title)) {
			t.Errorf("%s: attention %+v", name, st.Attention)
		}
	}
}

func TestApply(t *testing.T) {
	s, c := emptyState().apply(store.Batch{Rev: 10, Reset: true, Puts: []store.Item{
		item(t, store.KeyMeta, 1, meta()), item(t, store.KeyTopology, 2, topology()),
		item(t, store.PrefixOperations+"op-1", 3, topo.Operation{ID: "op-1"}),
		{Key: store.PrefixElection + "coordinator/b", Value: []byte("second"), Rev: 9},
		{Key: store.PrefixElection + "coordinator/a", Value: []byte("first"), Rev: 8},
		item(t, store.PrefixSecrets+"g1", 4, topo.Secret{Password: "s3cret"}),
	}}, quiet)
	if s.Leader != "first" || s.Meta == nil || s.Topology == nil || len(s.Operations) != 1 || s.gone != 10 || len(c.topics) != len(Topics) {
		t.Fatalf("after the first batch: %+v, %+v", s, c)
	}
	next, c := s.apply(store.Batch{
		Rev: 11,
		Puts: []store.Item{
			item(t, store.PrefixOperations+"op-2", 11, topo.Operation{ID: "op-2"}),
			{Key: store.KeyTopology, Value: []byte("{broken"), Rev: 11},
			{Key: store.PrefixOperations + "op-3", Value: []byte("null"), Rev: 11},
		},
		Deletes: []string{store.PrefixElection + "coordinator/a"},
	}, quiet)
	if next.Leader != "second" || next.Topology != s.Topology || len(next.Operations) != 2 {
		t.Errorf("after the second: %+v", next)
	}
	if len(s.Operations) != 1 || s.Leader != "first" {
		t.Error("the state before was changed")
	}
	if !c.operations["op-2"] || c.operations["op-1"] || next.opRevs["op-2"] != 11 || next.opRevs["op-1"] != 10 || next.revs[TopicProxies] != 10 {
		t.Errorf("change %+v, revisions %v %v", c, next.opRevs, next.revs)
	}
	last, _ := next.apply(store.Batch{Rev: 12, Deletes: []string{store.PrefixOperations + "op-1", store.KeyTopology}}, quiet)
	if last.gone != 12 || last.Topology != nil || len(last.Operations) != 1 {
		t.Errorf("after deletes: %+v", last)
	}
	again, _ := last.apply(store.Batch{Rev: 13, Reset: true}, quiet)
	if again.Meta != nil || len(again.Operations) != 0 || again.gone != 13 {
		t.Errorf("after a reset without content: %+v", again)
	}
}

func TestPace(t *testing.T) {
	p := newPace()
	at := now
	mark := func() {
		p.mark(change{topics: map[Topic]bool{TopicSlots: true, TopicStatus: true, TopicOperations: true}, operations: map[string]bool{"a": true}})
	}
	mark()
	keys, wait := p.due(at)
	if len(keys) != 3 || wait >= 0 {
		t.Fatalf("first: %v, %s", keys, wait)
	}
	for _, k := range keys {
		if !p.news(k, at, []byte("1")) {
			t.Errorf("%s is no news", k)
		}
	}
	mark()
	if keys, wait := p.due(at.Add(50 * time.Millisecond)); len(keys) != 0 || wait != 50*time.Millisecond {
		t.Errorf("too early: %v, %s", keys, wait)
	}
	if keys, wait := p.due(at.Add(100 * time.Millisecond)); !reflect.DeepEqual(keys, []string{"slots"}) || wait != 400*time.Millisecond {
		t.Errorf("after 0.1 s: %v, %s", keys, wait)
	}
	if p.news("slots", at, []byte("1")) {
		t.Error("the same again is news")
	}
	p.renew()
	if !p.news("slots", at, []byte("1")) {
		t.Error("for a newcomer it is no news")
	}
	p.forget(func(string) bool { return false })
	if len(p.last) != 0 {
		t.Error("nothing was forgotten")
	}
}

func TestFeedDropsWhoLags(t *testing.T) {
	f := newFeed()
	slow, other := f.open(nil), f.open([]Topic{TopicSlots})
	for i := range QueueLength {
		f.send(TopicStatus, Event{Rev: int64(i)})
	}
	select {
	case <-slow.Lagged():
		t.Fatal("lags although its queue just holds")
	default:
	}
	f.send(TopicStatus, Event{Rev: QueueLength})
	<-slow.Lagged()
	f.send(TopicSlots, Event{Rev: 100})
	if e := <-other.Events(); e.Rev != 100 {
		t.Errorf("the other stream got %+v", e)
	}
	if n, resyncs := f.counts(); n != 1 || resyncs != 1 {
		t.Errorf("%d streams, %d resyncs", n, resyncs)
	}
	f.close(slow) // again, as its owner will
	f.close(other)
}

func TestFiguresAreRates(t *testing.T) {
	first := Figures{}.next(report.Status{Incarnation: "i", CPUSeconds: 10, Errors: 100}, now)
	second := first.next(report.Status{Incarnation: "i", CPUSeconds: 11, Errors: 120}, now.Add(2*time.Second))
	if first.CPUPercent != 0 || second.CPUPercent != 50 || second.ErrorsPerSecond != 10 {
		t.Errorf("got %+v and %+v", first, second)
	}
	if restarted := second.next(report.Status{Incarnation: "j", CPUSeconds: 1}, now.Add(3*time.Second)); restarted.CPUPercent != 0 {
		t.Errorf("a restart gives a rate: %+v", restarted)
	}
}

func TestPollAsksProxies(t *testing.T) {
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/status" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(report.Status{ID: "p1", Incarnation: "i1", OpsPerSecond: 42})
	}))
	defer good.Close()
	release := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer stuck.Close()
	defer close(release)
	records := map[string]topo.ProxyRecord{
		"p1": {Admin: strings.TrimPrefix(good.URL, "http://")}, "p2": {Admin: strings.TrimPrefix(stuck.URL, "http://")}, "p3": {Admin: ""}, "p4": {Admin: "127.0.0.1:1"},
	}
	for i := range 200 { // more than are asked at a time
		records[fmt.Sprintf("q%d", i)] = records["p1"]
	}
	began := time.Now()
	got := newAsker().poll(context.Background(), records, nil)
	if took := time.Since(began); took > 5*pollTimeout {
		t.Errorf("one stuck proxy held all up: %s", took)
	}
	if got["p1"].OpsPerSecond != 42 || got["p1"].At.IsZero() || got["q199"].OpsPerSecond != 42 {
		t.Errorf("p1: %+v", got["p1"])
	}
	if got["p2"].Problem == "" || got["p4"].Problem == "" || !got["p2"].At.IsZero() {
		t.Errorf("p2: %+v, p4: %+v", got["p2"], got["p4"])
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		300 * time.Millisecond: "under 1 s", 90 * time.Second: "90 s", 10 * time.Minute: "10 min", 5 * time.Hour: "5 h", 72 * time.Hour: "3 days",
	} {
		if got := roughly(d); got != want {
			t.Errorf("%s gives %q, want %q", d, got, want)
		}
	}
}
