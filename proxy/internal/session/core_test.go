package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one loop without sockets: sessions, pipelines and a clock that the
// test moves. Nodes are played by hand; only their logins are answered.
type world struct {
	t       testing.TB
	env     *Env
	table   *topo.Topology
	clients map[string]*client
	nodes   map[string]*node // by group
	shared  []byte
	buffers resp.Buffers

	sessions  []*Session
	pipelines []*backend.Pipeline
	hungUp    func(*backend.Pipeline) // told of connections that the proxy closes
}

type client struct {
	session *Session
	sends   []byte // not yet read by the session
	got     []byte
	closed  bool
}

type node struct {
	up    bool
	pipes []*backend.Pipeline // connected, in the order they connected
	got   []string            // commands received and not yet looked at
	kills []string

	// handle, if set, takes commands instead of got.
	handle func(p *backend.Pipeline, words []string)
}

func newWorld(t testing.TB, cfg Config) *world { return newWorldWith(t, cfg, backend.Config{}) }

// newWorldWith is newWorld with that configuration of the pipelines.
func newWorldWith(t testing.TB, cfg Config, pipelines backend.Config) *world {
	w := &world{t: t, clients: map[string]*client{}, nodes: map[string]*node{}, shared: make([]byte, 64<<10)}
	st := stats.NewLoop(command.Count(), 0)
	if pipelines.Probe == 0 {
		pipelines.Probe = -1 // conversations are told by the commands alone
	}
	pool := backend.NewPool(pipelines, &w.buffers, st, w)
	w.env = NewEnv(cfg, pool, st, &w.buffers)
	w.env.SetNow(int64(time.Hour))
	w.table = &topo.Topology{Format: topo.Format, Scheme: topo.CRC16, Databases: 16}
	for i := range 3 {
		id := fmt.Sprintf("g%d", i+1)
		w.nodes[id] = &node{up: true}
		w.table.Groups = append(w.table.Groups, topo.Group{ID: id, Nodes: []topo.Node{{Addr: id + ":1", Role: topo.Master}}})
		w.table.Slots = append(w.table.Slots, topo.Run{First: topo.Slot(5000 * i), Last: topo.Slot(5000*i + 4999), Group: id})
	}
	w.table.Slots[2].Last = 16000 // 16001-16383 are unassigned
	return w
}

// Dial implements backend.Dialer.
func (w *world) Dial(p *backend.Pipeline) { p.Handle = 1 }

// Hangup implements backend.Dialer.
func (w *world) Hangup(p *backend.Pipeline) {
	p.Handle = -1
	if w.hungUp != nil {
		w.hungUp(p)
	}
	for _, n := range w.nodes {
		for i, x := range n.pipes {
			if x == p {
				n.pipes = append(n.pipes[:i:i], n.pipes[i+1:]...)
				return
			}
		}
	}
}

// apply changes the topology and puts it in force.
func (w *world) apply(change func(*topo.Topology)) {
	next, err := w.table.Next(change)
	if err != nil {
		w.t.Fatal(err)
	}
	w.table = next
	w.env.Apply(router.Build(next))
	w.settle()
}

// settle does what a loop does until nothing is left to do.
func (w *world) settle() {
	for {
		w.sessions = w.env.TakeResumable(w.sessions)
		resumed := len(w.sessions)
		for _, s := range w.sessions {
			s.Resume()
		}
		for _, c := range w.clients {
			w.read(c)
		}
		w.pipelines = w.env.Pool.TakeDirty(w.pipelines)
		for _, p := range w.pipelines {
			w.flush(p)
		}
		w.sessions = w.env.TakeDirty(w.sessions)
		for _, s := range w.sessions {
			for _, c := range w.clients {
				if c.session == s {
					c.got = append(c.got, s.Out()...)
					s.Wrote(len(s.Out()))
					if s.Done() && !c.closed {
						c.closed = true
						s.Detach(s.Reason)
					}
				}
			}
		}
		if resumed+len(w.pipelines)+len(w.sessions) == 0 {
			return
		}
	}
}

// flush delivers a pipeline's bytes to its node, connecting it first.
func (w *world) flush(p *backend.Pipeline) {
	n := w.nodes[strings.TrimSuffix(p.Node(), ":1")]
	if p.Handle == 1 {
		if !n.up {
			p.Handle = -1
			p.Lost(errors.New("connection refused"))
			return
		}
		p.Handle = 2
		n.pipes = append(n.pipes, p)
		p.Connected()
	}
	out := p.Out()
	var framer resp.Framer
	for len(out) > 0 {
		args, size, err := framer.Next(out)
		if size == 0 || err != nil {
			w.t.Fatalf("node %s: %d bytes, %v: %q", p.Node(), size, err, out)
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		p.Wrote(size)
		out = p.Out()
		switch text := strings.Join(words, " "); {
		case strings.HasPrefix(text, "CLIENT KILL"):
			n.kills = append(n.kills, text)
			w.nodeSends(p, ":0\r\n")
		case text == "CLIENT ID":
			w.nodeSends(p, fmt.Sprintf(":%d\r\n", 100+len(n.pipes)))
		case text == "INFO server":
			w.nodeSends(p, string(resp.AppendBulkString(nil, "redis_version:7.0.15\r\n")))
		case words[0] == "CLIENT" || words[0] == "HELLO" || words[0] == "AUTH" || words[0] == "SELECT":
			w.nodeSends(p, "+OK\r\n")
		case n.handle != nil:
			n.handle(p, words)
		default:
			n.got = append(n.got, text)
		}
	}
}

// nodeSends has a pipeline receive bytes.
func (w *world) nodeSends(p *backend.Pipeline, text string) {
	for len(text) > 0 {
		size := copy(p.Space(w.shared), text)
		if err := p.Received(w.shared, size); err != nil {
			w.Hangup(p)
			p.Lost(err)
			return
		}
		text = text[size:]
	}
}

func (w *world) client(name string) *client {
	c := w.clients[name]
	if c == nil {
		c = &client{session: New(w.env, int64(len(w.clients)+1), 0, "127.0.0.1:1", "127.0.0.1:2")}
		w.clients[name] = c
	}
	return c
}

func (w *world) clientSends(name string, data []byte) {
	c := w.client(name)
	c.sends = append(c.sends, data...)
	w.read(c)
	w.settle()
}

// read delivers what a client sent as far as its session takes it.
func (w *world) read(c *client) {
	for len(c.sends) > 0 && c.session.WantRead() && !c.closed {
		n := copy(c.session.Space(w.shared), c.sends)
		c.session.Received(w.shared, n)
		c.sends = c.sends[n:]
	}
}

// tick moves the clock in steps as a loop would see them.
func (w *world) tick(d time.Duration) {
	for end := w.env.Now + int64(d); w.env.Now < end; {
		w.env.SetNow(min(end, w.env.Now+int64(10*time.Millisecond)))
		w.env.Pool.Tick()
		w.env.Tick()
		for _, p := range w.connecting() {
			w.flush(p)
		}
		w.settle()
	}
}

func (w *world) connecting() []*backend.Pipeline {
	var list []*backend.Pipeline
	if w.env.Table == nil {
		return nil
	}
	for g := range w.env.Table.Groups {
		for _, proto := range []int{2, 3} {
			for db := range 2 {
				if p := w.env.Pool.Lane(proto, db).To(g); p.Handle == 1 {
					list = append(list, p)
				}
			}
		}
	}
	return list
}

// TestScripts plays the conversations in testdata/core. A line is one step:
//
//	client NAME WORD…          the client sends a command
//	raw NAME "TEXT"            the client sends these bytes
//	got NAME "TEXT"            the client received exactly this since the last got
//	closed NAME                the connection of the client is closed
//	paused NAME, reading NAME  the client is not read, is read
//	node GROUP WORD… | WORD…   the group's node received exactly these commands
//	reply GROUP "TEXT"         the node sends these bytes on its oldest connection
//	reply GROUP:N "TEXT"       … on its Nth connection, from 1
//	kills GROUP WORD…          the node was asked to end these connections
//	lost GROUP                 the node's connections break
//	down GROUP, up GROUP       the node refuses connections, takes them
//	hold SLOTS                 a table with a hold is applied
//	release [SLOTS GROUP]      a table without it, the slots moved
//	drained, not drained       what the pool says of the hold
//	wait DURATION              time passes
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{MaxInflight: 8, OutputSoft: 4096, OutputHard: 16384}
			if strings.Contains(string(text), "# password") {
				cfg.Password = "secret"
			}
			w := newWorld(t, cfg)
			if !strings.Contains(string(text), "# no table") {
				w.apply(func(*topo.Topology) {})
			}
			for i, line := range strings.Split(string(text), "\n") {
				line = strings.TrimSpace(line)
				if line == "" || line[0] == '#' {
					continue
				}
				if err := w.step(line); err != nil {
					t.Fatalf("%s:%d: %s: %v", file, i+1, line, err)
				}
			}
		})
	}
}

func (w *world) step(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	name, rest, _ := strings.Cut(rest, " ")
	text := rest
	if strings.HasPrefix(rest, `"`) {
		var err error
		if text, err = strconv.Unquote(rest); err != nil {
			return err
		}
	}
	check := func(ok bool, format string, args ...any) error {
		if ok {
			return nil
		}
		return fmt.Errorf(format, args...)
	}
	switch verb {
	case "client":
		w.clientSends(name, resp.AppendCommandStrings(nil, strings.Fields(text)...))
	case "raw":
		w.clientSends(name, []byte(text))
	case "got":
		c := w.client(name)
		got := string(c.got)
		c.got = nil
		return check(got == text, "got %q", got)
	case "closed":
		return check(w.client(name).closed, "still open")
	case "paused":
		return check(!w.client(name).session.WantRead(), "it is read")
	case "reading":
		return check(w.client(name).session.WantRead(), "it is not read")
	case "reply", "lost", "down", "up", "node", "kills":
		return w.nodeStep(verb, name, text, check)
	case "hold":
		slots, err := topo.ParseSlots(name, 16384)
		w.apply(func(t *topo.Topology) { t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: slots} })
		return err
	case "release":
		w.apply(func(t *topo.Topology) {
			t.Hold = nil
			if name != "" {
				slots, _ := topo.ParseSlots(name, 16384)
				t.Assign(slots, rest)
			}
		})
	case "drained":
		return check(w.env.Pool.Drained(), "it is not")
	case "not":
		return check(!w.env.Pool.Drained(), "it is drained")
	case "wait":
		d, err := time.ParseDuration(name)
		w.tick(d)
		return err
	default:
		return errors.New("unknown step")
	}
	return nil
}

func (w *world) nodeStep(verb, name, text string, check func(bool, string, ...any) error) error {
	name, which, numbered := strings.Cut(name, ":")
	n, number := w.nodes[name], 1
	if numbered {
		number, _ = strconv.Atoi(which)
	}
	switch verb {
	case "reply":
		if len(n.pipes) < number {
			return errors.New("no connection")
		}
		w.nodeSends(n.pipes[number-1], text)
		w.settle()
	case "lost":
		pipes := n.pipes
		n.pipes = nil
		for _, p := range pipes {
			p.Handle = -1
			p.Lost(errors.New("reset"))
		}
		w.settle()
		for _, p := range w.connecting() {
			w.flush(p)
		}
		w.settle()
	case "down":
		n.up = false
	case "up":
		n.up = true
	case "kills":
		got := strings.Join(n.kills, " | ")
		n.kills = nil
		return check(got == text, "got %q", got)
	case "node":
		got := strings.Join(n.got, " | ")
		n.got = nil
		return check(got == text, "got %q", got)
	}
	return nil
}
