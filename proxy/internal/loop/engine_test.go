package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/loop"
	"shardis/proxy/internal/router"
)

// serve runs an engine until the test ends.
func serve(t *testing.T, cfg loop.Config) *loop.Engine {
	t.Helper()
	if cfg.Listen == nil {
		cfg.Listen = []string{"127.0.0.1:0"}
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	e, err := loop.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

func address(e *loop.Engine) string { return e.Addrs()[0].String() }

// topology spreads the slots evenly over the nodes, one group each.
func topology(nodes ...string) *topo.Topology {
	t := &topo.Topology{Format: topo.Format, Scheme: topo.CRC16, Databases: 16, Epoch: 1}
	slots := t.Scheme.Slots()
	for i, node := range nodes {
		id := fmt.Sprintf("g%d", i+1)
		t.Groups = append(t.Groups, topo.Group{ID: id, Nodes: []topo.Node{{Addr: node, Role: topo.Master}}})
		t.Slots = append(t.Slots, topo.Run{
			First: topo.Slot(i * slots / len(nodes)), Last: topo.Slot((i+1)*slots/len(nodes) - 1), Group: id,
		})
	}
	return t
}

// next changes a topology and applies it.
func next(t *testing.T, e *loop.Engine, from *topo.Topology, change func(*topo.Topology)) *topo.Topology {
	t.Helper()
	to, err := from.Next(change)
	if err != nil {
		t.Fatal(err)
	}
	e.Apply(router.Build(to))
	return to
}

// eventually waits for a condition that nothing announces.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	for !condition() {
		select {
		case <-every.C:
		case <-deadline.C:
			t.Fatal("not within 20 s: ", what)
		}
	}
}

func redisNode(t *testing.T) *localredis.Process {
	t.Helper()
	if _, err := localredis.Find(); err != nil {
		t.Skip(err)
	}
	return localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
}

// Random pipelines through the proxy over three nodes get the replies that one
// redis-server gives, in both protocols and however the bytes are cut.
func TestRandomPipelinesAgainstOneRedis(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	e := serve(t, loop.Config{})
	e.Apply(router.Build(topology(redisNode(t).Addr, redisNode(t).Addr, redisNode(t).Addr)))
	single := redisNode(t)
	for client := range 6 {
		t.Run(fmt.Sprintf("client %d", client), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			proxy, server := dial(t, address(e)), dial(t, single.Addr)
			prefix := fmt.Sprintf("{%d", client) // so that clients do not meet
			for round := range 12 {
				var pipeline []byte
				n := 1 + r.IntN(200)
				var texts []string
				for range n {
					args := randomCommand(r, prefix)
					if round == 0 && len(texts) == 0 {
						args = []string{"HELLO", fmt.Sprint(2 + client%2)}
					}
					texts = append(texts, strings.Join(args, " "))
					pipeline = append(pipeline, encode(args...)...)
				}
				go server.send(pipeline)
				go func() {
					for rest := pipeline; len(rest) > 0; {
						cut := 1 + r.IntN(len(rest))
						proxy.send(rest[:cut])
						rest = rest[cut:]
					}
				}()
				for i, text := range texts {
					want, got := server.reply(), proxy.reply()
					if strings.HasPrefix(text, "HELLO") {
						continue
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("round %d, command %d, %.200s:\n%.500q\nwant\n%.500q", round, i, text, got, want)
					}
				}
			}
		})
	}
}

// randomCommand makes a command whose reply depends on nothing but the
// commands before it.
func randomCommand(r *rand.Rand, prefix string) []string {
	key := func() string { return fmt.Sprintf("%s-%d}", prefix, r.IntN(40)) }
	value := func() string {
		sizes := []int{0, 1, 10, 100, 5000, 100_000}
		return strings.Repeat(string(rune('a'+r.IntN(26))), sizes[min(r.IntN(40), r.IntN(40), 5)])
	}
	switch r.IntN(22) {
	case 0, 1, 2:
		return []string{"SET", key(), value()}
	case 3, 4, 5:
		return []string{"GET", key()}
	case 6:
		return []string{"MGET", key(), key(), key(), key()}
	case 7:
		return []string{"MSET", key(), value(), key(), value(), key(), value()}
	case 8:
		return []string{"DEL", key(), key(), key()}
	case 9:
		return []string{"EXISTS", key(), key(), key(), key()}
	case 10:
		return []string{"APPEND", key(), value()}
	case 11:
		return []string{"INCR", key()}
	case 12:
		return []string{"HSET", key() + "h", "f", value()}
	case 13:
		return []string{"HGETALL", key() + "h"}
	case 14:
		return []string{"RPUSH", key() + "l", value()}
	case 15:
		return []string{"LRANGE", key() + "l", "0", "3"}
	case 16:
		return []string{"ZADD", key() + "z", "1.5", "m"}
	case 17:
		return []string{"ZRANGE", key() + "z", "0", "-1", "WITHSCORES"}
	case 18:
		return []string{"ECHO", value()}
	case 19:
		return []string{"EVAL", "return {KEYS[1], ARGV[1]}", "1", key(), value()}
	case 20:
		return []string{"NOSUCH", key()}
	}
	return []string{"GETSET", key(), value()}
}

// Requests that the kernel already has when a hold comes are waited for; those
// of other slots go on meanwhile; what was held runs on the new owner.
func TestHoldDrainsAndReleases(t *testing.T) {
	one, two := redisNode(t), redisNode(t)
	e := serve(t, loop.Config{})
	topology := topology(one.Addr, two.Addr)
	e.Apply(router.Build(topology))
	direct := client(t, one.Addr, &redis.Options{})
	proxied := client(t, address(e), &redis.Options{})
	ctx := t.Context()

	// foo is in slot 12182 (g2), bar in 5061 (g1).
	if err := proxied.Set(ctx, "bar", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// The node sleeps: requests to it stay without a reply.
	if err := one.Freeze(); err != nil {
		t.Fatal(err)
	}
	early := make(chan error, 1)
	go func() { early <- proxied.Incr(ctx, "bar").Err() }()
	eventually(t, "the request is with the node", func() bool {
		for _, b := range e.Backends() {
			if b.Node == one.Addr && b.Inflight > 0 {
				return true
			}
		}
		return false
	})
	topology = next(t, e, topology, func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: "h1", Phase: topo.Holding, Slots: topo.SlotSet{{First: 5061, Last: 5061}}}
	})
	eventually(t, "the table is applied", func() bool { return e.Applied() == topology.Epoch })
	late := make(chan error, 1)
	go func() { late <- proxied.Incr(ctx, "bar").Err() }()
	if err := proxied.Set(ctx, "foo", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the late request is held", func() bool { return e.Stats().Held > 0 })
	if id := e.Drained(); id != "" {
		t.Fatalf("drained %s with a request at the node", id)
	}
	if err := one.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "drained", func() bool { return e.Drained() == "h1" })
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	if n := direct.Get(ctx, "bar").Val(); n != "2" {
		t.Fatalf("bar is %s on the source after the drain", n)
	}
	if err := client(t, two.Addr, &redis.Options{}).Set(ctx, "bar", "100", 0).Err(); err != nil {
		t.Fatal(err)
	}
	next(t, e, topology, func(t *topo.Topology) {
		t.Hold = nil
		t.Assign(topo.SlotSet{{First: 5061, Last: 5061}}, "g2")
	})
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	if n := proxied.Get(ctx, "bar").Val(); n != "101" {
		t.Errorf("bar is %s on the target after the release", n)
	}
	if n := direct.Get(ctx, "bar").Val(); n != "2" {
		t.Errorf("bar is %s on the source after the release", n)
	}
}

// A node that does not answer in time: its clients get an error, the connection
// is replaced, and a hold is drained only once the node confirmed the end of the
// old one. Clients of other nodes notice nothing.
func TestSilentNodeIsTimedOut(t *testing.T) {
	one, two := redisNode(t), redisNode(t)
	cfg := loop.Config{Loops: 1}
	cfg.Backend.CommandTimeout = time.Second
	e := serve(t, cfg)
	topology := topology(one.Addr, two.Addr)
	e.Apply(router.Build(topology))
	c := dial(t, address(e))
	if got := c.do("SET", "bar", "0"); string(got) != "+OK\r\n" {
		t.Fatalf("got %q", got)
	}
	if err := one.Freeze(); err != nil {
		t.Fatal(err)
	}
	c.send(encode("INCR", "bar"))
	other := dial(t, address(e))
	started := time.Now()
	if got := other.do("SET", "foo", "1"); string(got) != "+OK\r\n" || time.Since(started) > 800*time.Millisecond {
		t.Errorf("other node: %q after %v", got, time.Since(started))
	}
	if got := c.reply(); !strings.Contains(string(got), "did not answer in time; the command may or may not") {
		t.Errorf("got %q", got)
	}
	topology = next(t, e, topology, func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: "h1", Phase: topo.Holding, Slots: topo.SlotSet{{First: 5061, Last: 5061}}}
	})
	eventually(t, "the table is applied", func() bool { return e.Applied() == topology.Epoch })
	if id := e.Drained(); id != "" {
		t.Error("drained while the frozen node may still run the command")
	}
	if err := one.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "drained", func() bool { return e.Drained() == "h1" })
	next(t, e, topology, func(t *topo.Topology) { t.Hold = nil })
	if got := c.do("EXISTS", "bar"); string(got) != ":1\r\n" {
		t.Errorf("got %q", got)
	}
}

// A node killed and started again under load: clients get their values or one
// of the honest errors, never something else, and service comes back. The other
// group has no error at all.
func TestKilledNodeComesBack(t *testing.T) {
	one, two := redisNode(t), redisNode(t)
	var cfg loop.Config
	cfg.Backend.Wait = 100 * time.Millisecond
	e := serve(t, cfg)
	e.Apply(router.Build(topology(one.Addr, two.Addr)))
	stop := make(chan struct{})
	const writers = 8
	failures := make(chan error, writers)
	for id := range writers {
		c := dial(t, address(e))
		go func() { failures <- hammer(c, id, stop) }()
	}
	for range 3 {
		before := e.Stats().Commands
		eventually(t, "load", func() bool { return e.Stats().Commands > before+1000 })
		one.Kill()
		<-one.Exited()
		losses := e.Stats().Commands
		eventually(t, "load without the node", func() bool { return e.Stats().Commands > losses+1000 })
		again, err := localredis.Start(t.Context(), one.Config())
		if err != nil {
			t.Fatal(err)
		}
		one = again
		t.Cleanup(again.Stop)
		probe := dial(t, address(e))
		eventually(t, "service is back", func() bool { return string(probe.do("SET", "bar", "1")) == "+OK\r\n" })
	}
	close(stop)
	for range writers {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

// hammer sends pipelines and checks every reply: values carry their key.
func hammer(c *raw, id int, stop chan struct{}) error {
	honest := []string{
		"-ERR the connection to the master was lost", "-CLUSTERDOWN no connection", "-LOADING",
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		var pipeline []byte
		var keys []string
		for i := range 16 {
			key := fmt.Sprintf("k%d:%d", id, (n+i)%50)
			keys = append(keys, key)
			pipeline = append(pipeline, encode("SET", key, key)...)
			pipeline = append(pipeline, encode("GET", key)...)
		}
		c.send(pipeline)
		for _, key := range keys {
			for _, want := range []string{"+OK\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(key), key)} {
				got := string(c.reply())
				if got == want || got == "$-1\r\n" && want[0] == '$' {
					continue
				}
				ok := false
				for _, text := range honest {
					ok = ok || strings.HasPrefix(got, text)
				}
				// foo's group never failed.
				if !ok || topo.CRC16.SlotOf([]byte(key)) >= 8192 {
					return fmt.Errorf("key %s: got %q, want %q", key, got, want)
				}
			}
		}
	}
}

// fakeNode takes connections and answers each command with what reply returns;
// nil closes the connection.
func fakeNode(t *testing.T, reply func(args []string) []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fake := newFake(reply)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = fake.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = fake.Close()
		<-done
	})
	return ln.Addr().String()
}

// A node that sends what nobody asked for, or no RESP at all: the client that
// caused it gets an error, nobody gets a foreign reply, and the connection is
// replaced.
func TestGarbledRepliesReachNobody(t *testing.T) {
	for name, garbage := range map[string]string{
		"a reply too many": "$3\r\nfoo\r\n$7\r\nforeign\r\n",
		"no reply":         "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a push":           ">2\r\n+message\r\n+foreign\r\n",
		"torn bulk":        "$3\r\nforeign\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			node := fakeNode(t, func(args []string) []byte {
				if args[1] == "bad" {
					return []byte(garbage)
				}
				return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(args[1]), args[1])
			})
			e := serve(t, loop.Config{Loops: 1})
			e.Apply(router.Build(topology(node)))
			bad, good := dial(t, address(e)), dial(t, address(e))
			for i := range 20 {
				bad.send(encode("GET", "bad"))
				key := fmt.Sprintf("key%d", i)
				// A reply too many can be told only while none is awaited.
				together := i%2 == 0 && name != "a reply too many"
				if together {
					good.send(encode("GET", key))
				}
				if got := string(bad.reply()); strings.Contains(got, "foreign") {
					t.Fatalf("got %q", got)
				}
				if !together {
					good.send(encode("GET", key))
				}
				got := string(good.reply())
				if !strings.Contains(got, key) && !strings.HasPrefix(got, "-ERR the master sent an invalid reply") && !strings.HasPrefix(got, "-ERR the connection to the master was lost") {
					t.Fatalf("got %q", got)
				}
			}
			if e.Stats().BackendFaults == 0 {
				t.Error("no fault was counted")
			}
		})
	}
}

// A login that is refused is no connection: commands wait and then fail, and
// nothing is sent behind the AUTH.
func TestRefusedLogin(t *testing.T) {
	commands := make(chan string, 100)
	node := fakeNode(t, func(args []string) []byte {
		commands <- args[0]
		return []byte("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	})
	cfg := loop.Config{Loops: 1}
	cfg.Backend.Wait = 200 * time.Millisecond
	cfg.Backend.User, cfg.Backend.Password = "shardis-p1-1", "old"
	e := serve(t, cfg)
	e.Apply(router.Build(topology(node)))
	c := dial(t, address(e))
	if got := string(c.do("GET", "a")); got != "-CLUSTERDOWN no connection to the master of this slot\r\n" {
		t.Errorf("got %q", got)
	}
	for len(commands) > 0 {
		if name := <-commands; !strings.EqualFold(name, "auth") {
			t.Errorf("the node got %s", name)
		}
	}
	for _, b := range e.Backends() {
		if !strings.Contains(b.Error, "WRONGPASS") {
			t.Errorf("backend %+v", b)
		}
	}
}

func TestListenSaysWhenAPortIsInUse(t *testing.T) {
	first := serve(t, loop.Config{})
	second, err := loop.New(loop.Config{Listen: []string{address(first)}, Loops: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Listen(); err == nil || !strings.Contains(err.Error(), "another process uses this port") {
		t.Errorf("got %v", err)
	}
}

func TestTooManyClients(t *testing.T) {
	e := serve(t, loop.Config{MaxClients: 2})
	first, second := dial(t, address(e)), dial(t, address(e))
	first.do("PING")
	second.do("PING")
	third := dial(t, address(e))
	if got := string(third.reply()); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("got %q", got)
	}
	if _, err := third.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("still open: %v", err)
	}
	first.c.Close()
	eventually(t, "room for another", func() bool {
		c := dial(t, address(e))
		return strings.HasPrefix(string(c.doQuietly("PING")), "+PONG")
	})
}

// doQuietly is do that accepts a closed connection.
func (r *raw) doQuietly(args ...string) []byte {
	_ = r.c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = r.c.Write(encode(args...))
	line, _ := r.r.ReadBytes('\n')
	return line
}

func TestIdleClientsAreClosed(t *testing.T) {
	e := serve(t, loop.Config{IdleTimeout: 100 * time.Millisecond})
	c := dial(t, address(e))
	c.do("PING")
	if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("still open: %v", err)
	}
}

// A client that sends and never reads stalls itself, and is disconnected when
// too much waits for it. Others are served.
func TestSlowReader(t *testing.T) {
	node := redisNode(t)
	cfg := loop.Config{Loops: 1}
	cfg.Session.OutputSoft, cfg.Session.OutputHard = 64<<10, 64<<20
	e := serve(t, cfg)
	e.Apply(router.Build(topology(node.Addr)))
	good := dial(t, address(e))
	big := strings.Repeat("x", 1<<20)
	if got := string(good.do("SET", "big", big)); got != "+OK\r\n" {
		t.Fatalf("got %q", got)
	}
	slow := dial(t, address(e))
	_ = slow.c.SetDeadline(time.Now().Add(30 * time.Second))
	wrote := make(chan error, 1)
	go func() {
		get := bytes.Repeat(encode("GET", "big"), 1000)
		_, err := slow.c.Write(get)
		wrote <- err
	}()
	eventually(t, "the slow client is disconnected", func() bool {
		for _, c := range e.Clients() {
			if c.Addr == slow.c.LocalAddr().String() {
				return false
			}
		}
		return true
	})
	<-wrote
	if got := string(good.do("ECHO", "x")); got != "$1\r\nx\r\n" {
		t.Errorf("got %q", got)
	}
}

// A graceful end answers what was sent, then closes, and takes nobody new.
func TestDrainAnswersFirst(t *testing.T) {
	node := redisNode(t)
	e := serve(t, loop.Config{})
	e.Apply(router.Build(topology(node.Addr)))
	idle, busy := dial(t, address(e)), dial(t, address(e))
	idle.do("PING")
	busy.do("SET", "bar", "1")
	if err := node.Freeze(); err != nil {
		t.Fatal(err)
	}
	busy.send(encode("INCR", "bar"))
	eventually(t, "the request is with the node", func() bool {
		for _, b := range e.Backends() {
			if b.Inflight > 0 {
				return true
			}
		}
		return false
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() { ended <- e.Drain(ctx) }()
	if _, err := idle.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle client is still open: %v", err)
	}
	if err := node.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got := string(busy.reply()); got != ":2\r\n" {
		t.Errorf("got %q", got)
	}
	if _, err := busy.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the busy client is still open: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c, err := net.DialTimeout("tcp", address(e), time.Second); err == nil {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a new client was served")
		}
		c.Close()
	}
}
