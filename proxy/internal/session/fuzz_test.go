package session

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/backend"
	"shardis/proxy/resp"
)

// Fuzzing a session with its nodes. The input is a program of the clients, of
// the network and of nodes that reply in pieces, late, never, too much or
// rubbish. Every argument that a client sends carries the identity of its
// request, and nodes put it into their replies, so that a reply that belongs to
// another request is told by its content, whatever its shape.

// player is one client and the replies it still awaits, in order.
type player struct {
	name   string
	unsent []byte
	await  []expectation
}

// expectation is what a reply must be: made of these tags alone, or an error
// that a proxy may give; or, for commands answered without a node, a prefix.
type expectation struct {
	tags   []string
	prefix string
}

type arena struct {
	*world
	players []*player
	outbox  map[*backend.Pipeline][]byte // replies on their way
	owed    map[*backend.Pipeline]int    // commands the node has not answered
	muted   map[string]bool              // nodes that take commands and never answer
	serial  int
	moving  bool
}

func newArena(t testing.TB) *arena {
	a := &arena{
		world:  newWorldWith(t, Config{MaxInflight: 8, OutputSoft: 64 << 10, OutputHard: 64 << 20}, backend.Config{CommandTimeout: time.Second}),
		outbox: map[*backend.Pipeline][]byte{}, owed: map[*backend.Pipeline]int{}, muted: map[string]bool{},
	}
	a.hungUp = func(p *backend.Pipeline) {
		delete(a.outbox, p)
		delete(a.owed, p)
	}
	a.table.Slots[2].Last = 16383
	for i := range 3 {
		a.players = append(a.players, &player{name: fmt.Sprint("c", i)})
	}
	for g, n := range a.nodes {
		n.handle = func(p *backend.Pipeline, words []string) {
			if a.muted[g] || a.owed[p] > 0 {
				// Nor will it answer the next one: that would be a reply to this.
				a.owed[p]++
				return
			}
			a.outbox[p] = append(a.outbox[p], answer(words)...)
		}
	}
	a.apply(func(*topo.Topology) {})
	return a
}

var tagPattern = regexp.MustCompile(`<\d+>`)

// answer is a node's reply: of any shape, and with the tags of the command.
func answer(words []string) []byte {
	if strings.EqualFold(words[0], "command") {
		return []byte("*1\r\n*-1\r\n")
	}
	tags := tagPattern.FindAllString(strings.Join(words[1:], " "), -1)
	if len(tags) == 0 {
		return []byte("+OK\r\n")
	}
	if strings.EqualFold(words[0], "mget") {
		b := resp.AppendArray(nil, len(words)-1)
		for _, w := range words[1:] {
			b = resp.AppendBulkString(b, tagPattern.FindString(w))
		}
		return b
	}
	tag := tags[0]
	switch shape := tag[len(tag)-2] % 8; shape {
	case 0:
		return resp.AppendStatus(nil, tag)
	case 1:
		return resp.AppendError(nil, "NODE "+tag)
	case 2:
		return fmt.Appendf(nil, "%%2\r\n+k\r\n*2\r\n:1\r\n+%s\r\n$1\r\nb\r\n_\r\n", tag)
	case 3:
		return fmt.Appendf(nil, "|1\r\n+ttl\r\n,3.5\r\n~2\r\n(123456789012345678901\r\n+%s\r\n", tag)
	case 4:
		return fmt.Appendf(nil, "*3\r\n*0\r\n$-1\r\n*1\r\n$%d\r\n%s\r\n", len(tag)+2, tag+"\r\n")
	case 5:
		return fmt.Appendf(nil, "=%d\r\ntxt:%s\r\n", len(tag)+4, tag)
	case 6:
		return resp.AppendBulkString(nil, tag+strings.Repeat("x", 3000))
	default:
		return resp.AppendBulkString(nil, tag)
	}
}

// honest are the errors that a request may get because of its node.
var honest = []string{
	"-ERR the connection to the master was lost", "-ERR the master did not answer", "-ERR the master sent an invalid reply",
	"-CLUSTERDOWN no connection", "-TRYAGAIN ", "-ERR unknown command",
}

func (e *expectation) check(reply []byte) error {
	if e.prefix != "" {
		if !bytes.HasPrefix(reply, []byte(e.prefix)) {
			return fmt.Errorf("%q does not begin with %q", reply, e.prefix)
		}
		return nil
	}
	for _, text := range honest {
		if bytes.HasPrefix(reply, []byte(text)) {
			return nil
		}
	}
	found := tagPattern.FindAllString(string(reply), -1)
	if len(found) == 0 {
		return fmt.Errorf("%q has no tag, it must have one of %v", reply, e.tags)
	}
	for _, tag := range found {
		if !slices.Contains(e.tags, tag) {
			return fmt.Errorf("%q is a foreign reply, its request has %v", reply, e.tags)
		}
	}
	return nil
}

// sends queues a command of a kind; cut is how many bytes of it are sent later.
func (a *arena) sends(p *player, kind, cut int) {
	tag := func() string {
		a.serial++
		return fmt.Sprintf("<%d>", a.serial)
	}
	var args []string
	e := expectation{}
	keyed := func(words ...string) {
		t := tag()
		args, e.tags = append(words, "key"+t), []string{t}
	}
	switch kind {
	case 0, 1, 2:
		keyed("GET")
	case 3:
		keyed("SET")
		args = append(args, strings.Repeat("v", 200*cut))
	case 4:
		args = []string{"MGET"}
		for range 2 + cut%4 {
			t := tag()
			args, e.tags = append(args, "key"+t), append(e.tags, t)
		}
	case 5:
		keyed("EVAL", "return 1", "1")
	case 6:
		t := tag()
		args, e.tags = []string{"ECHO", t}, []string{t}
	case 7:
		args, e.prefix = []string{"HELLO", fmt.Sprint(2 + cut%2)}, "*14"
		if cut%2 == 1 {
			e.prefix = "%7"
		}
	case 8:
		args, e.prefix = []string{"SELECT", fmt.Sprint(cut % 2)}, "+OK"
	case 9:
		args, e.prefix = []string{"CLIENT", "GETNAME"}, "$-1"
		if a.client(p.name).session.Proto() == 3 || len(p.await) > 0 {
			args, e.prefix = []string{"CLIENT", "ID"}, ":"
		}
	case 10:
		args, e.prefix = []string{fmt.Sprint("NOSUCH", cut)}, "-ERR unknown command"
	default:
		args, e.prefix = []string{"PING"}, "+PONG"
	}
	p.await = append(p.await, e)
	p.unsent = append(p.unsent, resp.AppendCommandStrings(nil, args...)...)
	a.transmit(p, max(0, len(p.unsent)-cut))
}

func (a *arena) transmit(p *player, n int) {
	data := p.unsent[:n]
	p.unsent = slices.Clone(p.unsent[n:])
	a.clientSends(p.name, data)
}

// deliver brings up to n bytes of each of a node's connections to the proxy.
func (a *arena) deliver(group string, n int) {
	for _, p := range slices.Clone(a.nodes[group].pipes) {
		out := a.outbox[p]
		part := min(n, len(out))
		a.outbox[p] = slices.Clone(out[part:])
		a.nodeSends(p, string(out[:part]))
		a.settle()
	}
}

// misbehave has a node send what is no reply to anything.
func (a *arena) misbehave(group string, what int) {
	for _, p := range slices.Clone(a.nodes[group].pipes) {
		junk := []string{"?\r\n", "$5\r\nab\r\n\r\n", "*-5\r\n", ">2\r\n+message\r\n+<0>\r\n", "HTTP/1.1 400\r\n\r\n", "+<0>\r\n", "$2\r\n<0>\r\n"}[what%7]
		if junk == "+<0>\r\n" && (a.owed[p] > 0 || len(a.outbox[p]) > 0) {
			continue // it would be a reply to something
		}
		// In the middle of a reply it would be part of it.
		a.nodeSends(p, string(a.outbox[p])+junk)
		delete(a.outbox, p)
		a.settle()
	}
}

func (a *arena) lose(group string) {
	n := a.nodes[group]
	pipes := n.pipes
	n.pipes = nil
	for _, p := range pipes {
		delete(a.outbox, p)
		delete(a.owed, p)
		p.Handle = -1
		p.Lost(errors.New("reset"))
	}
	a.settle()
}

func (a *arena) shift(to string, first int) {
	if !a.moving {
		a.apply(func(t *topo.Topology) {
			t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: topo.SlotSet{{First: 0, Last: topo.Slot(first)}}}
		})
	} else {
		a.apply(func(t *topo.Topology) {
			slots := t.Hold.Slots
			t.Hold = nil
			t.Assign(slots, to)
		})
	}
	a.moving = !a.moving
}

// check takes what the clients got.
func (a *arena) check() {
	for _, p := range a.players {
		c := a.client(p.name)
		for {
			n := resp.Skip(c.got)
			if n == 0 {
				break
			}
			if len(p.await) == 0 {
				a.t.Fatalf("%s got a reply too many: %q", p.name, c.got[:n])
			}
			if err := p.await[0].check(c.got[:n]); err != nil {
				a.t.Fatalf("%s: %v", p.name, err)
			}
			c.got = c.got[n:]
			p.await = p.await[1:]
		}
	}
}

func (a *arena) run(program []byte) {
	groups := []string{"g1", "g2", "g3"}
	for i := 0; i+1 < len(program); i += 2 {
		op, n := int(program[i]), int(program[i+1])
		group := groups[n%3]
		switch {
		case op < 128:
			a.sends(a.players[op%3], op/3%13, n%40)
		case op < 140:
			for _, p := range a.players {
				a.transmit(p, min(n, len(p.unsent)))
			}
		case op < 180:
			a.deliver(group, 1+n*n/16)
		case op < 200:
			a.deliver(group, 1<<30)
		case op < 210:
			a.misbehave(group, n/3)
		case op < 220:
			a.lose(group)
		case op < 225:
			a.shift(group, n*60)
		case op < 230:
			a.nodes[group].up = n%2 == 0
		case op < 235:
			a.muted[group] = n%2 == 0
		default:
			a.tick(time.Duration(n*2) * time.Millisecond)
		}
		a.check()
	}
	a.finish(groups)
}

// finish heals everything and waits for the last reply.
func (a *arena) finish(groups []string) {
	if a.moving {
		a.shift("g1", 0)
	}
	for _, p := range a.players {
		a.transmit(p, len(p.unsent))
	}
	for _, g := range groups {
		a.nodes[g].up = true
		delete(a.muted, g)
	}
	waiting := func() (n int) {
		for _, p := range a.players {
			n += len(p.await)
		}
		return n
	}
	for round := 0; waiting() > 0; round++ {
		if round == 1000 {
			for _, p := range a.players {
				a.t.Errorf("%s: no reply to %d commands, the first %v", p.name, len(p.await), p.await[:min(len(p.await), 1)])
			}
			return
		}
		a.tick(20 * time.Millisecond)
		for _, g := range groups {
			a.deliver(g, 1<<30)
		}
		a.check()
	}
	for _, p := range a.players {
		c := a.client(p.name)
		if len(c.got) > 0 || c.closed || c.session.OutputPending() > 0 || c.session.inbox.Len() > 0 || c.session.Inflight() > 0 {
			a.t.Errorf("%s is not at rest: got %q, closed %v, %d in the inbox", p.name, c.got, c.closed, c.session.inbox.Len())
		}
	}
}

func FuzzSessionWithNodes(f *testing.F) {
	f.Add([]byte{0, 0, 1, 5, 2, 9, 150, 200, 190, 0, 190, 1, 190, 2})
	f.Add([]byte{12, 3, 13, 30, 200, 3, 205, 6, 215, 1, 240, 100})
	f.Add([]byte{30, 0, 21, 1, 0, 0, 30, 1, 24, 1, 1, 7, 130, 255, 222, 100, 0, 0, 3, 0, 222, 1})
	f.Add([]byte{231, 0, 0, 1, 3, 1, 6, 2, 250, 255, 250, 255, 231, 1, 0, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 600 {
			return
		}
		newArena(t).run(program)
	})
}

// timely are commands whose replies tell of time or of the connection.
var timely = regexp.MustCompile(`(?i)time|info|client|lolwut|hello|quit|command|acl|config|help`)

// FuzzSessionInput: what a client gets does not depend on how its bytes were cut.
func FuzzSessionInput(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\nMGET a b c\r\n\r\nPING\r\n"), uint16(5), uint16(11))
	f.Add([]byte("RESET\r\nSELECT 1\r\nSET \"a\\x00\" b\r\nRANDOMKEY\r\nnosuch x\r\n*0\r\n*1\r\n$4\r\nPING\r\n"), uint16(20), uint16(30))
	f.Add([]byte("*1\r\n$999999999\r\n"), uint16(3), uint16(4))
	f.Fuzz(func(t *testing.T, input []byte, one, two uint16) {
		if len(input) > 4096 || timely.Match(input) {
			return
		}
		var got [2]string
		var closed [2]bool
		for i := range got {
			w := newWorld(t, Config{})
			for _, n := range w.nodes {
				n.handle = func(p *backend.Pipeline, words []string) {
					if words[0] == "COMMAND" {
						w.nodeSends(p, "*1\r\n*-1\r\n")
						return
					}
					w.nodeSends(p, string(resp.AppendBulkString(nil, strings.Join(words, " "))))
				}
			}
			w.apply(func(*topo.Topology) {})
			rest := input
			if i == 1 {
				for _, cut := range []int{int(one), int(two)} {
					n := min(cut, len(rest))
					w.clientSends("c", rest[:n])
					rest = rest[n:]
				}
			}
			w.clientSends("c", rest)
			w.settle()
			c := w.client("c")
			got[i], closed[i] = string(c.got), c.closed
		}
		if got[0] != got[1] || closed[0] != closed[1] {
			t.Fatalf("whole: %q, closed %v\ncut at %d and %d: %q, closed %v", got[0], closed[0], one, two, got[1], closed[1])
		}
	})
}
