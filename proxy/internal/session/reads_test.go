package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/resp"
)

// readWorld is a world in which each group has two replicas, gNr1 in zone a and
// gNr2 in zone b. Keys b, z and foo are of g1, g2 and g3.
func readWorld(t *testing.T, cfg Config) *world {
	if cfg.ReadYourWrites == 0 {
		cfg.ReadYourWrites = time.Second
	}
	w := newWorld(t, cfg)
	w.apply(func(n *topo.Topology) {
		for i := range n.Groups {
			g := &n.Groups[i]
			for j, zone := range []string{"a", "b"} {
				name := fmt.Sprintf("%sr%d", g.ID, j+1)
				w.nodes[name] = &node{up: true}
				g.Nodes = append(g.Nodes, topo.Node{Addr: name + ":1", Role: topo.Replica, Zone: zone})
			}
		}
	})
	w.fit()
	return w
}

// fit has a check find all replicas usable now, but for those named.
func (w *world) fit(except ...string) {
	s := &replicas.Snapshot{Verdicts: map[string]replicas.Verdict{}}
	for _, g := range w.table.Groups {
		for _, n := range g.Nodes {
			v := replicas.Verdict{Group: g.ID, Node: n.Addr, State: replicas.Usable, Covered: w.env.Now}
			if slices.Contains(except, strings.TrimSuffix(n.Addr, ":1")) {
				v.State = replicas.Unreachable
			}
			if n.Role == topo.Replica {
				s.Verdicts[n.Addr] = v
			}
		}
	}
	w.env.UseReplicas(s)
	w.settle()
}

func (w *world) reader(name string, mode replicas.Mode) { w.client(name).session.SetReads(mode) }

func (w *world) command(name string, words ...string) {
	w.clientSends(name, resp.AppendCommandStrings(nil, words...))
}

// takes gives, by node, the commands received since the last call.
func (w *world) takes() string {
	var all []string
	for name, n := range w.nodes {
		for _, c := range n.got {
			all = append(all, name+" "+c)
		}
		n.got = nil
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func (w *world) answers(name, text string) {
	w.t.Helper()
	if len(w.nodes[name].pipes) == 0 {
		w.t.Fatalf("%s has no connection", name)
	}
	w.nodeSends(w.nodes[name].pipes[0], text)
	w.settle()
}

func (w *world) got(name, want string) {
	w.t.Helper()
	c := w.client(name)
	if got := string(c.got); got != want {
		w.t.Errorf("client %s got %q, want %q", name, got, want)
	}
	c.got = nil
}

func (w *world) expect(want string) {
	w.t.Helper()
	if got := w.takes(); got != want {
		w.t.Errorf("nodes received %q, want %q", got, want)
	}
}

func TestReadsFollowTheMode(t *testing.T) {
	w := readWorld(t, Config{Zone: "a"})
	w.reader("p", replicas.Prefer)
	w.reader("n", replicas.Nearest)
	w.reader("o", replicas.Only)

	w.command("m", "GET", "b")
	w.expect("g1 GET b")
	seen := map[string]int{}
	for range 10 {
		w.command("p", "GET", "b")
		seen[w.takes()]++
	}
	if seen["g1r1 GET b"] != 5 || seen["g1r2 GET b"] != 5 {
		t.Errorf("replicas do not take turns: %v", seen)
	}
	for range 3 {
		w.command("n", "GET", "b")
		w.expect("g1r1 GET b")
	}

	w.fit("g1r1")
	w.takes()
	w.command("n", "GET", "b") // no replica in the zone, and the master is elsewhere
	w.expect("g1r2 GET b")
	w.fit("g1r1", "g1r2")
	w.takes()
	w.command("p", "GET", "b")
	w.expect("g1 GET b")
	w.command("o2", "PING")
	w.reader("o2", replicas.Only)
	w.command("o2", "GET", "b")
	w.got("o2", "+PONG\r\n-CLUSTERDOWN no replica of this slot may answer reads now\r\n")

	// Its zone has the master alone: that is nearer than another zone's replica.
	w.apply(func(n *topo.Topology) { n.Groups[0].Nodes[0].Zone = "a" })
	w.fit("g1r1")
	w.takes()
	w.command("n", "GET", "b")
	w.expect("g1 GET b")
}

func TestOnlyPlainReadsGoToReplicas(t *testing.T) {
	w := readWorld(t, Config{})
	w.fit("g1r2", "g2r2", "g3r2")
	tests := []struct{ command, want string }{
		{"GET b", "g1r1 GET b"},
		{"HGETALL b", "g1r1 HGETALL b"},
		{"EVAL_RO x 1 b", "g1r1 EVAL_RO x 1 b"},
		{"MGET b z", "g1r1 MGET b; g2r1 MGET z"},
		{"MGET b", "g1r1 MGET b"},
		{"EXISTS b z foo", "g1r1 EXISTS b; g2r1 EXISTS z; g3r1 EXISTS foo"},
		{"TOUCH b z", "g1 TOUCH b; g2 TOUCH z"},
		{"EVAL x 1 b", "g1 EVAL x 1 b"},
		{"DBSIZE", "g1 DBSIZE; g2 DBSIZE; g3 DBSIZE"},
		{"GETDEL b", "g1 GETDEL b"},
		{"SET b 1", "g1 SET b 1"},
		{"DEL b z", "g1 DEL b; g2 DEL z"},
	}
	for i, tt := range tests {
		name := fmt.Sprint("c", i)
		w.reader(name, replicas.Prefer)
		w.command(name, strings.Fields(tt.command)...)
		w.expect(tt.want)
	}
}

func TestReadYourWrites(t *testing.T) {
	w := readWorld(t, Config{})
	w.fit("g1r2", "g2r2", "g3r2")
	w.reader("c", replicas.Prefer)
	w.reader("other", replicas.Prefer)
	w.command("c", "SET", "b", "1")
	w.command("c", "GET", "b")
	w.command("other", "GET", "b")
	w.expect("g1 GET b; g1 SET b 1; g1r1 GET b")
	w.answers("g1r1", "$1\r\n0\r\n")
	w.tick(1500 * time.Millisecond) // longer than the guard, but there is no reply
	w.fit("g1r2", "g2r2", "g3r2")
	w.command("c", "MGET", "b", "z")
	w.expect("g1 MGET b; g2 MGET z")
	w.answers("g1", "+OK\r\n$1\r\n1\r\n*1\r\n$1\r\n1\r\n")
	w.answers("g2", "*1\r\n$-1\r\n")
	w.tick(990 * time.Millisecond)
	w.command("c", "GET", "b")
	w.expect("g1 GET b")
	w.command("c", "GET", "z")
	w.expect("g2r1 GET z")
	w.tick(10 * time.Millisecond)
	w.command("c", "GET", "b")
	w.expect("g1r1 GET b")
	w.command("c", "FLUSHALL")
	w.command("c", "GET", "z")
	w.expect("g1 FLUSHALL; g2 FLUSHALL; g2 GET z; g3 FLUSHALL")

	// A transaction counts as a write, and its reads go to the master.
	w.reader("t", replicas.Prefer)
	w.command("t", "MULTI")
	w.command("t", "GET", "b")
	w.command("t", "EXEC")
	w.command("t", "GET", "b")
	w.expect("g1 EXEC; g1 GET b; g1 GET b; g1 MULTI")

	// RESET returns to the mode of the listener.
	w.reader("d", replicas.Prefer)
	w.client("d").session.useReads(replicas.Master)
	w.command("d", "GET", "b")
	w.expect("g1 GET b")
	w.command("d", "RESET")
	w.command("d", "GET", "b")
	w.expect("g1r1 GET b")
}

func TestFailedReadGoesToTheMaster(t *testing.T) {
	w := readWorld(t, Config{})
	w.fit("g1r2", "g2r2", "g3r2")
	w.reader("c", replicas.Prefer)

	w.command("c", "GET", "b")
	w.command("c", "GET", "bb{b}")
	w.takes()
	w.answers("g1r1", "-LOADING Redis is loading the dataset in memory\r\n$1\r\nx\r\n")
	w.expect("g1 GET b")
	w.got("c", "")
	w.answers("g1", "$1\r\ny\r\n")
	w.got("c", "$1\r\ny\r\n$1\r\nx\r\n")

	// The master's own error is the answer.
	w.command("c", "GET", "b")
	w.answers("g1r1", "-WRONGTYPE no\r\n")
	w.answers("g1", "-WRONGTYPE yes\r\n")
	w.got("c", "-WRONGTYPE yes\r\n")
	w.takes()

	// A part of a split read.
	w.command("c", "MGET", "b", "z")
	w.expect("g1r1 MGET b; g2r1 MGET z")
	w.answers("g1r1", "*1\r\n$1\r\n1\r\n")
	w.loseReplica("g2", 0)
	w.expect("g2 MGET z")
	w.answers("g2", "*1\r\n$1\r\n2\r\n")
	w.got("c", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n")
	if st := w.env.Stats; st.ReplicaRetries != 3 || st.ReplicaReads != 5 || st.Errors != 1 {
		t.Errorf("%d reads, %d retries, %d errors", st.ReplicaReads, st.ReplicaRetries, st.Errors)
	}
}

// loseReplica breaks the connection to a group's first replica.
func (w *world) loseReplica(group string, i int) {
	p := w.env.Pool.Lane(2, 0).ToReplica(w.env.Table.GroupByID(group), i)
	w.Hangup(p)
	p.Lost(errors.New("connection reset"))
	w.settle()
}

func TestReplicaThatCanNotBeReached(t *testing.T) {
	w := readWorld(t, Config{})
	w.fit("g1r2")
	w.nodes["g1r1"].up = false
	w.reader("c", replicas.Prefer)
	w.command("c", "GET", "b")
	w.expect("")
	w.fit("g1r1", "g1r2") // the check found out: what waits there is given back
	w.expect("g1 GET b")
	w.answers("g1", "$1\r\n1\r\n")
	w.got("c", "$1\r\n1\r\n")

	// A replica that stopped answering after it took a command.
	w.nodes["g1r1"].up = true
	w.fit("g1r2")
	w.tick(2 * time.Second)
	w.fit("g1r2")
	w.command("c", "GET", "b")
	w.expect("g1r1 GET b")
	w.fit("g1r1", "g1r2")
	w.expect("g1 GET b")
	w.answers("g1", "$1\r\n2\r\n")
	w.got("c", "$1\r\n2\r\n")
}

func TestVerdictsAgeWithoutChecks(t *testing.T) {
	w := readWorld(t, Config{MaxLag: 3 * time.Second})
	w.reader("c", replicas.Prefer)
	w.tick(3 * time.Second)
	w.command("c", "GET", "b")
	if got := w.takes(); got == "g1 GET b" {
		t.Error("max_lag is not over yet")
	}
	w.tick(10 * time.Millisecond)
	w.command("c", "GET", "b")
	w.expect("g1 GET b")
}

// After a hand-over the replicas of the new owner answer only once they have
// what the owner had when this loop learned of it.
func TestReplicasOfANewOwnerWait(t *testing.T) {
	w := readWorld(t, Config{})
	w.reader("c", replicas.Prefer)
	w.tick(100 * time.Millisecond)
	before := w.env.Now
	slot := topo.CRC16.SlotOf([]byte("b"))
	w.apply(func(n *topo.Topology) {
		n.Assign(topo.SlotSet{{First: slot, Last: slot}}, "g2")
	})
	w.tick(50 * time.Millisecond)
	covering := func(at int64) {
		s := &replicas.Snapshot{Verdicts: map[string]replicas.Verdict{}}
		for _, name := range []string{"g1r1:1", "g2r1:1"} {
			s.Verdicts[name] = replicas.Verdict{Group: name[:2], Node: name, State: replicas.Usable, Covered: at}
		}
		w.env.UseReplicas(s)
	}
	covering(before - 1)
	w.command("c", "GET", "b")
	w.command("c", "GET", "z")
	w.command("c", "GET", "f")
	w.expect("g1r1 GET f; g2 GET b; g2 GET z")
	covering(w.env.Now)
	w.command("c", "GET", "b")
	w.expect("g2r1 GET b")
}

// A hold drains replicas too, but does not wait for one that does not answer.
func TestHoldDrainsReplicas(t *testing.T) {
	w := readWorld(t, Config{})
	w.fit("g1r2")
	w.reader("c", replicas.Prefer)
	w.reader("d", replicas.Prefer)
	w.command("c", "GET", "b")
	w.expect("g1r1 GET b")
	slot := topo.CRC16.SlotOf([]byte("b"))
	slots := topo.SlotSet{{First: slot, Last: slot}}
	w.apply(func(n *topo.Topology) { n.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: slots} })
	w.command("d", "GET", "b")
	w.expect("")
	if w.env.Pool.Drained() {
		t.Fatal("drained with a read under way")
	}
	w.tick(100 * time.Millisecond)
	if !w.env.Pool.Drained() {
		t.Fatal("waits for a replica that does not answer")
	}
	w.expect("")
	w.apply(func(n *topo.Topology) {
		n.Hold = nil
		n.Assign(slots, "g3")
	})
	w.expect("g3 GET b; g3 GET b")
}

// Random clients, verdicts, losses and answers; the master has a counter that
// only its writes change, replicas are behind. A client never reads less than it
// wrote within the guard, nor a reply of another request.
func TestReadYourWritesRandomized(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	w := readWorld(t, Config{ReadYourWrites: 200 * time.Millisecond})
	type update struct {
		at    int64
		value int
	}
	history := map[string][]update{} // by key, as masters executed it
	const lag = int64(150 * time.Millisecond)
	value := func(key string, until int64) int {
		v := 0
		for _, u := range history[key] {
			if u.at <= until {
				v = u.value
			}
		}
		return v
	}
	var later []func()
	for name, n := range w.nodes {
		n.handle = func(p *backend.Pipeline, words []string) {
			later = append(later, func() {
				if p.Handle != 2 {
					return
				}
				key := words[1]
				if words[0] == "SET" {
					var v int
					fmt.Sscan(words[2], &v)
					history[key] = append(history[key], update{w.env.Now, v})
					w.nodeSends(p, "+OK\r\n")
					return
				}
				at := w.env.Now
				if strings.Contains(name, "r") {
					at -= lag
				}
				w.nodeSends(p, fmt.Sprintf(":%d\r\n", value(key, at)))
			})
		}
	}
	keys := []string{"b", "z", "foo", "c"}
	wrote := map[string]int{} // each key has one writer, who also reads it
	waiting := map[string][]string{}
	for _, k := range keys {
		w.reader(k, replicas.Prefer)
	}
	replicaReads := 0
	for step := range 4000 {
		switch rng.IntN(10) {
		case 0, 1:
			k := keys[rng.IntN(len(keys))]
			wrote[k]++
			w.command(k, "SET", k, fmt.Sprint(wrote[k]))
			waiting[k] = append(waiting[k], "+OK")
		case 2, 3, 4:
			k := keys[rng.IntN(len(keys))]
			w.command(k, "GET", k)
			waiting[k] = append(waiting[k], fmt.Sprintf(":%d", wrote[k]))
		case 5:
			if rng.IntN(20) == 0 {
				w.loseReplica(fmt.Sprint("g", 1+rng.IntN(3)), rng.IntN(2))
			}
			w.fit()
		case 6:
			w.tick(time.Duration(rng.IntN(300)) * time.Millisecond)
		default:
			for range rng.IntN(6) {
				if len(later) > 0 {
					next := later[0]
					later = later[1:]
					next()
					w.settle()
				}
			}
		}
		for _, k := range keys {
			c := w.client(k)
			for {
				line, rest, ok := strings.Cut(string(c.got), "\r\n")
				if !ok {
					break
				}
				c.got = []byte(rest)
				if want := waiting[k][0]; line != want {
					t.Fatalf("step %d: client of %s got %s, want %s", step, k, line, want)
				}
				waiting[k] = waiting[k][1:]
			}
		}
		replicaReads = int(w.env.Stats.ReplicaReads)
	}
	if replicaReads < 100 {
		t.Errorf("only %d reads went to replicas", replicaReads)
	}
}
