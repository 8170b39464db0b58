package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/loop"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/session"
)

// world is an engine of two loops over real redis-servers. Groups g1 to g3 own
// the slots; the spare g4 owns none.
type world struct {
	t      *testing.T
	engine *loop.Engine
	addr   string
	host   string
	port   string
	nodes  []*localredis.Process
	topo   *topo.Topology
	direct map[string]*redis.Client // by node
}

func startWorld(t *testing.T, cfg session.Config) *world {
	t.Helper()
	return startWorldWith(t, cfg, localredis.Config{})
}

// startWorldWith is startWorld with nodes of that configuration.
func startWorldWith(t *testing.T, cfg session.Config, node localredis.Config) *world {
	t.Helper()
	if _, err := localredis.Find(); err != nil {
		t.Skip(err)
	}
	w := &world{t: t, direct: map[string]*redis.Client{}, topo: &topo.Topology{
		Format: 1, Cluster: "test", Scheme: "crc16/16384", Databases: 16, Epoch: 1,
	}}
	w.nodes = make([]*localredis.Process, 4)
	var starting sync.WaitGroup
	for i := range w.nodes {
		own := node
		own.Dir = t.TempDir()
		starting.Go(func() { w.nodes[i] = localredis.StartTest(t, own) })
	}
	starting.Wait()
	for i, n := range w.nodes {
		w.topo.Groups = append(w.topo.Groups, topo.Group{
			ID: fmt.Sprint("g", i+1), Nodes: []topo.Node{{Addr: n.Addr, Role: topo.Master}},
		})
	}
	w.topo.Slots = []topo.Run{{First: 0, Last: 5460, Group: "g1"}, {First: 5461, Last: 10922, Group: "g2"}, {First: 10923, Last: 16383, Group: "g3"}}
	engine, err := loop.New(loop.Config{Listen: []string{"127.0.0.1:0"}, Loops: 2, Session: cfg}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.engine = engine
	w.addr = engine.Addrs()[0].String()
	w.host, w.port, _ = net.SplitHostPort(w.addr)
	engine.Apply(router.Build(w.topo))
	return w
}

// node is a client of a group's master.
func (w *world) node(i int) *redis.Client {
	addr := w.nodes[i].Addr
	if w.direct[addr] == nil {
		w.direct[addr] = client(w.t, addr, &redis.Options{})
	}
	return w.direct[addr]
}

func client(t *testing.T, addr string, o *redis.Options) *redis.Client {
	o.Addr = addr
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// raw is a connection on which bytes are compared.
type raw struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &raw{t, c, bufio.NewReader(c)}
}

func (r *raw) send(b []byte) {
	r.t.Helper()
	_ = r.c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := r.c.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// reply reads one reply of any type.
func (r *raw) reply() []byte {
	r.t.Helper()
	line, err := r.r.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("read reply: %v after %q", err, line)
	}
	kind := line[0]
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch kind {
	case '$', '=':
		if n >= 0 {
			b := make([]byte, n+2)
			if _, err := io.ReadFull(r.r, b); err != nil {
				r.t.Fatal(err)
			}
			line = append(line, b...)
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for range n {
			line = append(line, r.reply()...)
		}
	}
	return line
}

func (r *raw) do(args ...string) []byte {
	r.t.Helper()
	r.send(encode(args...))
	return r.reply()
}

func encode(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}
