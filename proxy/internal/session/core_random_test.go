package session

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/resp"
)

var seed = flag.Uint64("seed", 0, "of the random conversations; 0 picks one")

// simulation plays random clients against nodes that keep real values, while
// connections break and slots move by hold, drain, move and release. Whatever
// happens: each client gets one reply for each command, in order, and never
// one that belongs to somebody else; and no acknowledged write is lost.
type simulation struct {
	*world
	r      *rand.Rand
	stores map[string]map[string]string // by group
	outbox map[*backend.Pipeline][]byte // replies on their way
	expect map[string][]func(reply string) error
	tokens int

	// acked is, per key, the highest number whose SET was acknowledged, sent
	// the highest that was sent. A key has one writer, and numbers only rise.
	acked, sent map[string]int
	moving      bool
}

func newSimulation(t *testing.T, r *rand.Rand) *simulation {
	s := &simulation{
		world: newWorld(t, Config{MaxInflight: 16}), r: r,
		stores: map[string]map[string]string{}, outbox: map[*backend.Pipeline][]byte{},
		expect: map[string][]func(string) error{}, acked: map[string]int{}, sent: map[string]int{},
	}
	s.table.Slots[2].Last = 16383
	for g, n := range s.nodes {
		s.stores[g] = map[string]string{}
		n.handle = func(p *backend.Pipeline, words []string) { s.execute(g, p, words) }
	}
	s.apply(func(*topo.Topology) {})
	return s
}

// execute is a node.
func (s *simulation) execute(group string, p *backend.Pipeline, words []string) {
	store, out := s.stores[group], s.outbox[p]
	value := func(k string) {
		if v, ok := store[k]; ok {
			out = resp.AppendBulkString(out, v)
		} else {
			out = resp.AppendNull(out, 2)
		}
	}
	switch words[0] {
	case "GET":
		value(words[1])
	case "SET":
		store[words[1]] = words[2]
		out = resp.AppendOK(out)
	case "MGET":
		out = resp.AppendArray(out, len(words)-1)
		for _, k := range words[1:] {
			value(k)
		}
	case "MSET":
		for i := 1; i < len(words); i += 2 {
			store[words[i]] = words[i+1]
		}
		out = resp.AppendOK(out)
	default:
		s.t.Fatalf("node got %q", words)
	}
	s.outbox[p] = out
}

// checkValue says whether a reply may be the value of key: written to it, and
// not older than what was acknowledged when the read was sent.
func (s *simulation) checkValue(key string, reply string, atLeast int) error {
	if reply == "$-1\r\n" {
		if atLeast > 0 {
			return fmt.Errorf("%s is gone, %d was acknowledged", key, atLeast)
		}
		return nil
	}
	_, text, _ := strings.Cut(strings.TrimSuffix(reply, "\r\n"), "\r\n")
	owner, number, _ := strings.Cut(text, "#")
	n := 0
	_, err := fmt.Sscan(number, &n)
	if owner != key || err != nil {
		return fmt.Errorf("foreign reply for %s: %q", key, reply)
	}
	if n < atLeast || n > s.sent[key] {
		return fmt.Errorf("%s is %d, acknowledged %d, sent %d", key, n, atLeast, s.sent[key])
	}
	return nil
}

func isError(reply string) bool {
	for _, code := range []string{"-ERR the connection", "-CLUSTERDOWN no conn", "-TRYAGAIN", "-ERR the master"} {
		if strings.HasPrefix(reply, code) {
			return true
		}
	}
	return false
}

// command has a client send a random command.
func (s *simulation) command(name string) {
	key := func() string { return fmt.Sprintf("key%d", s.r.IntN(30)) }
	own := func() string { return fmt.Sprintf("%s:%d", name, s.r.IntN(10)) }
	switch s.r.IntN(6) {
	case 0:
		s.tokens++
		token := fmt.Sprintf("token%d", s.tokens)
		s.send(name, func(reply string) error {
			if reply != string(resp.AppendBulkString(nil, token)) {
				return fmt.Errorf("foreign reply to ECHO %s: %q", token, reply)
			}
			return nil
		}, "ECHO", token)
	case 1, 2:
		k := own()
		if s.r.IntN(3) == 0 {
			k = key()
		}
		atLeast := s.acked[k]
		s.send(name, func(reply string) error {
			if isError(reply) {
				return nil
			}
			return s.checkValue(k, reply, atLeast)
		}, "GET", k)
	case 3, 4:
		k := own()
		s.sent[k]++
		n := s.sent[k]
		s.send(name, func(reply string) error {
			if isError(reply) {
				return nil
			}
			s.acked[k] = max(s.acked[k], n)
			if reply != "+OK\r\n" {
				return fmt.Errorf("foreign reply to SET: %q", reply)
			}
			return nil
		}, "SET", k, fmt.Sprintf("%s#%d", k, n))
	case 5:
		keys := []string{own(), own(), own(), own()}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		if s.r.IntN(2) == 0 {
			s.mset(name, keys)
			return
		}
		var atLeast []int
		for _, k := range keys {
			atLeast = append(atLeast, s.acked[k])
		}
		s.send(name, func(reply string) error {
			if isError(reply) {
				return nil
			}
			_, n, size, _ := resp.Header([]byte(reply))
			if n != len(keys) {
				return fmt.Errorf("foreign reply to MGET: %q", reply)
			}
			rest := reply[size:]
			for i, k := range keys {
				n := resp.Skip([]byte(rest))
				if err := s.checkValue(k, rest[:n], atLeast[i]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		}, append([]string{"MGET"}, keys...)...)
	}
}

func (s *simulation) mset(name string, keys []string) {
	args := []string{"MSET"}
	numbers := map[string]int{}
	for _, k := range keys {
		s.sent[k]++
		numbers[k] = s.sent[k]
		args = append(args, k, fmt.Sprintf("%s#%d", k, s.sent[k]))
	}
	s.send(name, func(reply string) error {
		if isError(reply) {
			return nil
		}
		for k, n := range numbers {
			s.acked[k] = max(s.acked[k], n)
		}
		if reply != "+OK\r\n" {
			return fmt.Errorf("foreign reply to MSET: %q", reply)
		}
		return nil
	}, args...)
}

func (s *simulation) send(name string, check func(string) error, args ...string) {
	s.expect[name] = append(s.expect[name], check)
	s.clientSends(name, resp.AppendCommandStrings(nil, args...))
}

// check takes the replies that clients got.
func (s *simulation) check() {
	for name, c := range s.clients {
		for {
			n := resp.Skip(c.got)
			if n == 0 {
				break
			}
			reply := string(c.got[:n])
			c.got = c.got[n:]
			if len(s.expect[name]) == 0 {
				s.t.Fatalf("client %s got a reply too many: %q", name, reply)
			}
			if err := s.expect[name][0](reply); err != nil {
				s.t.Fatalf("client %s: %v", name, err)
			}
			s.expect[name] = s.expect[name][1:]
		}
	}
}

// deliver brings some of the replies on their way to the proxy.
func (s *simulation) deliver(all bool) {
	for _, g := range []string{"g1", "g2", "g3"} {
		for _, p := range slices.Clone(s.nodes[g].pipes) {
			out := s.outbox[p]
			if len(out) == 0 {
				continue
			}
			n := len(out)
			if !all {
				n = s.r.IntN(n + 1)
			}
			s.outbox[p] = bytes.Clone(out[n:])
			s.nodeSends(p, string(out[:n]))
			s.settle()
		}
	}
}

func (s *simulation) lose(group string) {
	n := s.nodes[group]
	pipes := n.pipes
	n.pipes = nil
	for _, p := range pipes {
		delete(s.outbox, p)
		p.Handle = -1
		p.Lost(errors.New("reset"))
	}
	s.settle()
}

// handOver starts a hold, or, once it is drained, moves the values of the held
// slots and releases it.
func (s *simulation) handOver() {
	if !s.moving {
		first := s.r.IntN(16000)
		s.apply(func(t *topo.Topology) {
			t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: topo.SlotSet{{First: topo.Slot(first), Last: topo.Slot(first + s.r.IntN(383))}}}
			if s.r.IntN(2) == 0 {
				t.Hold.Slots = topo.SlotSet{{First: 0, Last: topo.Slot(first)}}
			}
		})
		s.moving = true
		return
	}
	if !s.env.Pool.Drained() {
		return
	}
	slots, to := s.table.Hold.Slots, fmt.Sprintf("g%d", 1+s.r.IntN(3))
	for g, store := range s.stores {
		for k, v := range store {
			if slot := s.table.Scheme.SlotOf([]byte(k)); g != to && slots.Contains(slot) && s.table.Owner(slot) == g {
				s.stores[to][k] = v
				delete(store, k)
			}
		}
	}
	s.apply(func(t *topo.Topology) {
		t.Hold = nil
		t.Assign(slots, to)
	})
	s.moving = false
}

func TestRandomConversations(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	} else {
		rounds = 1
	}
	for round := range rounds {
		playRandom(t, first+uint64(round))
	}
}

func playRandom(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("repeat with -seed %d", seed)
		}
	}()
	s := newSimulation(t, rand.New(rand.NewPCG(seed, 0)))
	groups := []string{"g1", "g2", "g3"}
	for range 600 {
		switch n := s.r.IntN(100); {
		case n < 60:
			s.command(fmt.Sprintf("c%d", s.r.IntN(5)))
		case n < 85:
			s.deliver(false)
		case n < 92:
			s.handOver()
		case n < 95:
			s.lose(groups[s.r.IntN(3)])
		case n < 96:
			s.nodes[groups[s.r.IntN(3)]].up = false
		case n < 98:
			for _, g := range groups {
				s.nodes[g].up = true
			}
		default:
			s.tick(time.Duration(s.r.IntN(300)) * time.Millisecond)
		}
		s.check()
	}
	for _, n := range s.nodes {
		n.up = true
	}
	for range 2000 {
		s.tick(10 * time.Millisecond)
		s.deliver(true)
		s.check()
		if s.moving {
			s.handOver()
		}
	}
	for name, left := range s.expect {
		if len(left) > 0 {
			t.Fatalf("client %s: %d commands got no reply", name, len(left))
		}
	}
	for k, n := range s.acked {
		group := s.table.Owner(s.table.Scheme.SlotOf([]byte(k)))
		if err := s.checkValue(k, string(resp.AppendBulkString(nil, s.stores[group][k])), n); err != nil {
			t.Fatalf("at the end on %s: %v", group, err)
		}
	}
}
