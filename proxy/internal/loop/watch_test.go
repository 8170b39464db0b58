package loop_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/session"
)

// Scripts whose replies must be the bytes of a redis-server; "other …" is sent by
// another client, and "all …;…" sends commands in one piece.
func TestWatchAsRedis(t *testing.T) {
	w := startWorld(t, session.Config{})
	oracle := localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
	for name, script := range map[string]string{
		"unchanged":     "watch a|get a|multi|incr a|exec|get a",
		"changed":       "watch a|get a|other set a 5|multi|incr a|exec|get a|multi|incr a|exec",
		"own write":     "watch a|set a 1|multi|incr a|exec|get a",
		"own before":    "all set a 1;watch a;get a;multi;incr a;exec;get a",
		"several":       "watch a {a}b|watch {a}c|other set {a}c 1|multi|get a|exec",
		"twice":         "watch a|watch a|multi|get a|exec",
		"other key":     "watch a|other set {a}b 1|multi|get {a}b|exec",
		"empty":         "watch a|multi|exec|watch a|other set a 9|multi|exec|multi|exec",
		"unwatch":       "watch a|other set a 2|unwatch|multi|get a|exec|unwatch|unwatch x",
		"discard":       "watch a|other set a 3|multi|discard|multi|get a|exec",
		"no discard":    "watch a|other set a 3|discard|multi|get a|exec",
		"aborted":       "watch a|multi|nosuch|exec|multi|get a|exec",
		"aborted, both": "watch a|other set a 7|multi|get|exec|multi|get a|exec",
		"inside":        "watch a|multi|watch a|watch {a}b|get a|unwatch|exec",
		"inside alone":  "multi|watch a|unwatch|set a 1|exec",
		"reset":         "watch a|other set a 1|reset|multi|get a|exec",
		"expires":       "set a 1 px 40|watch a|other wait-gone a|multi|get a|exec",
		"deleted":       "set a 1|watch a|other del a|multi|get a|exec|exists a",
		"database":      "watch a|select 1|set a 1|multi|set a 2|get a|exec|select 0|exists a",
		"database, too": "watch a|other set a 6|select 1|multi|set a 2|exec|exists a|select 0",
		"protocol":      "watch a|hello 3|multi|hgetall {a}no|exec|watch a|hello 2|multi|hgetall {a}no|exec",
		"pipelined":     "all watch a;get a;multi;set a 1;exec;get a;watch a;set a 2;multi;set a 3;exec;get a",
		"failing":       "set a x|watch a|multi|incr a|set a y|exec|get a",
		"flushed":       "set a 1|watch a|other flushall|multi|get a|exec",
		"skipped":       "client reply skip|watch a|multi|set a 4|exec",
		"arity":         "watch|exec|discard|multi extra",
		"quit":          "watch a|multi|set a 1|quit",
	} {
		for _, proto := range []string{"2", "3"} {
			t.Run(name+"/"+proto, func(t *testing.T) {
				var got [2]string
				for i, addr := range []string{oracle.Addr, w.addr} {
					got[i] = play(t, addr, proto, script)
				}
				if got[0] != got[1] {
					t.Errorf("redis:   %q\nshardis: %q", got[0], got[1])
				}
			})
		}
	}
}

// play runs a script of TestWatchAsRedis and returns all replies.
func play(t *testing.T, addr, proto, script string) string {
	c, other := dial(t, addr), dial(t, addr)
	c.do("HELLO", proto)
	c.do("FLUSHALL")
	var all strings.Builder
	skip := false
	for line := range strings.SplitSeq(script, "|") {
		first, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(line)
		switch {
		case first == "other" && words[1] == "wait-gone":
			within(t, "the key to expire", func() bool { return string(other.do("EXISTS", words[2])) == ":0\r\n" })
		case first == "other":
			other.do(words[1:]...)
		case first == "all":
			commands := strings.Split(rest, ";")
			var b []byte
			for _, command := range commands {
				b = append(b, encode(strings.Fields(command)...)...)
			}
			c.send(b)
			for range commands {
				all.Write(c.reply())
			}
		case skip, line == "client reply skip":
			c.send(encode(words...))
			skip = !skip
		case first == "hello":
			c.do(words...)
		default:
			all.Write(c.do(words...))
		}
		all.WriteString("|" + first + "|")
	}
	return all.String()
}

func TestWatchRefusals(t *testing.T) {
	w := startWorld(t, session.Config{MaxBlocked: 2})
	c := dial(t, w.addr)
	const crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	expect := func(c *raw, want string, words ...string) {
		t.Helper()
		if got := string(c.do(words...)); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", words, got, want)
		}
	}
	expect(c, crossSlot, "WATCH", "a", "b")
	expect(c, "+OK", "WATCH", "a")
	expect(c, crossSlot, "WATCH", "b")
	expect(c, "+OK", "MULTI")
	expect(c, crossSlot, "SET", "b", "1") // of a slot that is not watched
	expect(c, "-EXECABORT", "EXEC")
	expect(c, "+OK", "WATCH", "b")
	expect(c, "+OK", "UNWATCH")

	// One client with a connection of its own for each of the two loops.
	clients := []*raw{dial(t, w.addr), dial(t, w.addr), dial(t, w.addr)}
	expect(clients[0], "+OK", "WATCH", "a")
	expect(clients[1], "+OK", "WATCH", "a")
	expect(clients[2], "-ERR too many clients wait in blocking commands or watch keys already\r\n", "WATCH", "a")
	expect(clients[2], "-ERR too many clients", "BLPOP", "q", "1")
	expect(clients[0], "+OK", "UNWATCH")
	expect(clients[1], "+OK", "UNWATCH")
	expect(clients[2], "+OK", "WATCH", "a")
}

// A watch does not outlive what it is about: EXEC answers nil.
func TestWatchBroken(t *testing.T) {
	w := startWorld(t, session.Config{})
	slots := topo.NewSlotSet(topo.SlotRange{First: 0, Last: 16383})
	for name, event := range map[string]func(owner int){
		"slot moved": func(owner int) {
			w.handOver(slots, fmt.Sprint("g", 1+(owner+1)%4))
		},
		"slot moved and came back": func(owner int) {
			w.handOver(slots, fmt.Sprint("g", 1+(owner+1)%4))
			w.handOver(slots, fmt.Sprint("g", 1+owner))
		},
		"connection killed": func(owner int) {
			w.node(owner).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		},
	} {
		for _, proto := range []string{"2", "3"} {
			c := dial(t, w.addr)
			c.do("HELLO", proto)
			c.do("SET", "a", "1")
			c.do("WATCH", "a")
			owner := groupIndex(w, "a")
			event(owner)
			within(t, "GET", func() bool { return string(c.do("GET", "a")) == "$1\r\n1\r\n" })
			c.do("WATCH", "{a}more")
			c.do("MULTI")
			c.do("SET", "a", "2")
			want := map[string]string{"2": "*-1\r\n", "3": "_\r\n"}[proto]
			if got := string(c.do("EXEC")); got != want {
				t.Errorf("%s: EXEC: %q", name, got)
			}
			c.do("WATCH", "a")
			c.do("MULTI")
			c.do("INCR", "a")
			if got := string(c.do("EXEC")); got != "*1\r\n:2\r\n" {
				t.Errorf("%s: the next EXEC: %q", name, got)
			}
		}
	}
}

// A hold that moves nothing does not break a watch: EXEC waits for its end.
func TestWatchOverHold(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := dial(t, w.addr)
	c.do("WATCH", "a")
	c.do("MULTI")
	c.do("SET", "a", "1")
	w.next(func(t *topo.Topology) {
		t.Hold = &topo.Hold{ID: "h", Phase: topo.Holding, Slots: t.Scheme.All()}
	})
	w.drained() // nothing is under way, although a connection watches
	c.send(encode("EXEC"))
	other := dial(t, w.addr)
	within(t, "EXEC to wait", func() bool {
		return strings.Contains(string(other.do("CLIENT", "LIST")), "cmd=exec")
	})
	w.next(func(t *topo.Topology) { t.Hold = nil })
	if got := string(c.reply()); got != "*1\r\n+OK\r\n" {
		t.Errorf("EXEC: %q", got)
	}
}

// Connections that watched are used again, clean, and are not lost by clients
// that leave.
func TestWatchGivesBack(t *testing.T) {
	w := startWorld(t, session.Config{})
	node := w.node(groupIndex(w, "a"))
	connections := func() int {
		return strings.Count(node.ClientList(t.Context()).Val(), "name=shardis ")
	}
	ends := [][]string{{"EXEC"}, {"DISCARD"}, {"UNWATCH"}, {"RESET"}, {"QUIT"}, {"NOSUCH", "EXEC"}, nil}
	run := func(end []string) {
		c := dial(t, w.addr)
		c.do("WATCH", "a")
		if len(end) > 0 && end[0] != "UNWATCH" {
			c.do("MULTI")
			c.do("INCR", "a")
		}
		for _, word := range end {
			c.do(word)
		}
		if end == nil {
			c.c.Close()
			return
		}
		if end[0] == "QUIT" || end[0] == "RESET" {
			return
		}
		// What is left on the connection would show.
		c.do("SET", "{a}x", "1")
		c.do("WATCH", "{a}y")
		c.do("SET", "a", "1")
		c.do("MULTI")
		c.do("INCR", "{a}x")
		if got := string(c.do("EXEC")); got != "*1\r\n:2\r\n" {
			t.Errorf("after %v: %q", end, got)
		}
	}
	for range 5 {
		for _, end := range ends {
			run(end)
		}
	}
	within(t, "the connections to be few", func() bool { return connections() <= 2*2+2 })
}

// Counters raised by WATCH, GET, MULTI, SET, EXEC while slots change hands and
// connections die: each success is counted once, one of unknown outcome at most
// once, and nothing else.
func TestWatchDuringHandOvers(t *testing.T) {
	w := startWorld(t, session.Config{})
	ctx := t.Context()
	const clients, counters = 8, 6
	var wins, unknown [counters]atomic.Int64
	var losses atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := client(t, w.addr, &redis.Options{PoolSize: 1, MaxRetries: -1})
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				k := n % counters
				key, log := fmt.Sprintf("{c%d}", k), fmt.Sprintf("{c%d}log", k)
				var next int64
				err := c.Watch(ctx, func(tx *redis.Tx) error {
					v, err := tx.Get(ctx, key).Int64()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					next = v + 1
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
						p.Set(ctx, key, next, 0)
						p.RPush(ctx, log, next)
						return nil
					})
					return err
				}, key)
				switch {
				case err == nil:
					wins[k].Add(1)
				case errors.Is(err, redis.TxFailedErr):
					losses.Add(1)
				case strings.HasPrefix(err.Error(), "ERR the connection to the master was lost"):
					unknown[k].Add(1)
				default:
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	for round := range 24 {
		first := topo.Slot(round % 6 * 2700)
		w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 2699}), fmt.Sprint("g", 1+(round*3+round/6)%4))
		before := total(&wins)
		within(t, "a success", func() bool { return total(&wins) > before })
		if round%3 == 2 {
			for i := range w.nodes {
				w.node(i).Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
		}
	}
	close(stop)
	all.Wait()
	c := client(t, w.addr, &redis.Options{})
	for k := range counters {
		least := wins[k].Load()
		v, _ := c.Get(ctx, fmt.Sprintf("{c%d}", k)).Int64()
		if v < least || v > least+unknown[k].Load() {
			t.Errorf("counter %d is %d after %d successes and %d of unknown outcome", k, v, least, unknown[k].Load())
		}
		log := c.LRange(ctx, fmt.Sprintf("{c%d}log", k), 0, -1).Val()
		if int64(len(log)) != v {
			t.Errorf("counter %d is %d and has %d entries", k, v, len(log))
		}
		for i, entry := range log {
			if entry != fmt.Sprint(i+1) {
				t.Errorf("counter %d: entry %d is %s", k, i, entry)
				break
			}
		}
	}
	if losses.Load() == 0 {
		t.Error("no EXEC failed: that proves nothing")
	}
	t.Logf("%d successes, %d failures, %d of unknown outcome", total(&wins), losses.Load(), total(&unknown))
}

func total(counts *[6]atomic.Int64) (sum int64) {
	for i := range counts {
		sum += counts[i].Load()
	}
	return sum
}
