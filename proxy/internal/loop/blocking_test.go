package loop_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/session"
)

// blockedClients waits until so many clients of the proxy are blocked.
func (w *world) blockedClients(n int) {
	w.t.Helper()
	asking := dial(w.t, w.addr)
	within(w.t, fmt.Sprint(n, " blocked clients"), func() bool {
		return strings.Contains(string(asking.do("INFO", "clients")), fmt.Sprintf("blocked_clients:%d\r\n", n))
	})
}

// Scripts whose replies must be the bytes of a redis-server: "other …" is sent
// by another client once the first one waits.
func TestBlockingAsRedis(t *testing.T) {
	w := startWorld(t, session.Config{})
	oracle := localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
	for name, script := range map[string]string{
		"there":    "rpush l 1 2 3|blpop l 0|brpop l 1|blmpop 1 1 l left count 5|blmove l l left left 0.01|brpoplpush l m 0.01",
		"timeout":  "blpop l 0.02|brpop l k 0.02|blmove l m left right 0.02|brpoplpush l m 0.02|blmpop 0.02 1 l left|bzpopmin z 0.02|bzmpop 0.02 1 z min|xread block 20 streams x $",
		"wrong":    "blpop l x|blpop l -1|blpop|blmpop x 1 l left|blmpop 1 0 l left|blmpop 1 1 l middle|blpop l 1e400|xread block x streams x $|xread block -1 streams x 0|bzpopmin z nan|xreadgroup group g c block 0 streams x >",
		"type":     "set s 1|blpop s 0|bzpopmin s 0|xread block 0 streams s 0|del s",
		"waits":    "send blpop l 5|other rpush l a b|get|send bzpopmax z 5|other zadd z 1 m|get|send xread block 5000 streams x $|other xadd x 1-1 f v|get|send blmove l2 l3 left right 5|other lpush l2 v|get|lrange l3 0 -1|del l l2 l3 z x",
		"follows":  "send blpop q 5|send set after 1|send get after|other rpush q v|get|get|get|del q",
		"group":    "xgroup create y g $ mkstream|send xreadgroup group g c block 5000 streams y >|other xadd y 2-1 a b|get|xpending y g|del y",
		"pipeline": "send rpush p 1|send blpop p 0|send rpush p 2|send blpop p 0|send llen p|get|get|get|get|get",
	} {
		for _, proto := range []string{"2", "3"} {
			t.Run(name+"/"+proto, func(t *testing.T) {
				var got [2]string
				for i, addr := range []string{oracle.Addr, w.addr} {
					c, other := dial(t, addr), dial(t, addr)
					c.do("HELLO", proto)
					var all strings.Builder
					for line := range strings.SplitSeq(strings.NewReplacer(" l", " {a}l", " m", " {a}m", " k", " {a}k").Replace(script), "|") {
						words := strings.Fields(strings.NewReplacer("{a}left", "left", "{a}lpush", "lpush", "{a}llen", "llen", "{a}max", "max", "{a}min", "min", "{a}mkstream", "mkstream", "{a}middle", "middle", "1 {a}m", "1 m").Replace(line))
						switch words[0] {
						case "send":
							c.send(encode(words[1:]...))
						case "other":
							within(t, "the first client to block", func() bool {
								return strings.Contains(string(other.do("INFO", "clients")), "blocked_clients:1\r\n")
							})
							other.do(words[1:]...)
						case "get":
							if len(words) == 1 {
								all.Write(c.reply())
								break
							}
							fallthrough
						default:
							all.Write(c.do(words...))
						}
						all.WriteString("|" + words[0] + "|")
					}
					got[i] = all.String()
				}
				if got[0] != got[1] {
					t.Errorf("redis:   %q\nshardis: %q", got[0], got[1])
				}
			})
		}
	}
}

// While slots change hands to and fro each element is popped once, by clients
// that mostly wait for it, and nobody sees an error.
func TestBlockingDuringHandOvers(t *testing.T) {
	w := startWorld(t, session.Config{})
	ctx := t.Context()
	const queues, consumers = 12, 12
	var popped sync.Map
	var taken, pushed atomic.Int64
	var producing, consuming sync.WaitGroup
	stop := make(chan struct{})
	for i := range consumers {
		consuming.Go(func() {
			c := client(t, w.addr, &redis.Options{MaxRetries: -1, ReadTimeout: -1, PoolSize: 1})
			queue, stream := fmt.Sprint("queue", i), fmt.Sprint("stream", i)
			last := "$"
			for {
				if i%3 == 2 {
					// The stream's last entries, from "$" at first.
					found, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{stream}, ID: last, Block: 0, Count: 10}).Result()
					if err != nil {
						t.Errorf("XREAD: %v", err)
						return
					}
					for _, m := range found[0].Messages {
						if m.Values["n"] == "end" {
							return
						}
						last = m.ID
						if _, twice := popped.LoadOrStore(stream+m.ID, true); twice {
							t.Errorf("entry %s of %s came twice", m.ID, stream)
						}
						taken.Add(1)
					}
					continue
				}
				got, err := c.BLPop(ctx, 0, queue).Result()
				if err != nil {
					t.Errorf("BLPOP: %v", err)
					return
				}
				if got[1] == "end" {
					return
				}
				if _, twice := popped.LoadOrStore(got[1], true); twice {
					t.Errorf("%s was popped twice", got[1])
				}
				taken.Add(1)
			}
		})
	}
	w.blockedClients(consumers)
	for i := range queues {
		producing.Go(func() {
			c := client(t, w.addr, &redis.Options{MaxRetries: -1})
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				var err error
				if i%3 == 2 {
					err = c.XAdd(ctx, &redis.XAddArgs{Stream: fmt.Sprint("stream", i), Values: []any{"n", n}}).Err()
				} else {
					err = c.RPush(ctx, fmt.Sprint("queue", i), fmt.Sprint(i, ":", n)).Err()
				}
				if err != nil {
					t.Errorf("producer: %v", err)
					return
				}
				pushed.Add(1)
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	for round := range 24 {
		first := topo.Slot(round % 6 * 2700)
		w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 2699}), fmt.Sprint("g", 1+(round*3+round/6)%4))
	}
	close(stop)
	producing.Wait()
	within(t, "all elements", func() bool { return taken.Load() == pushed.Load() })
	c := client(t, w.addr, &redis.Options{})
	for i := range queues {
		if i%3 == 2 {
			c.XAdd(ctx, &redis.XAddArgs{Stream: fmt.Sprint("stream", i), Values: []any{"n", "end"}})
		} else {
			c.RPush(ctx, fmt.Sprint("queue", i), "end")
		}
	}
	consuming.Wait()
	t.Logf("%d elements", taken.Load())
}

// A wait is ended, by a hold that nothing follows, by nobody else's clients.
func TestBlockingOverHoldsKeepsItsTime(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := dial(t, w.addr)
	c.send(encode("BLPOP", "q", "3"))
	w.blockedClients(1)
	begun := time.Now()
	for i := range 3 {
		w.next(func(t *topo.Topology) {
			t.Hold = &topo.Hold{ID: fmt.Sprint("hold", i), Phase: topo.Holding, Slots: t.Scheme.All()}
		})
		w.drained()
		w.next(func(t *topo.Topology) { t.Hold = nil })
	}
	if got := string(c.reply()); got != "*-1\r\n" {
		t.Errorf("after its time: %q", got)
	}
	if waited := time.Since(begun); waited < 2*time.Second {
		t.Errorf("waited %s of 3 s", waited)
	}
}

func TestBlockedClientsEnd(t *testing.T) {
	w := startWorld(t, session.Config{})
	other := dial(t, w.addr)
	block := func() (*raw, string) {
		c := dial(t, w.addr)
		id := strings.TrimSpace(string(c.do("CLIENT", "ID"))[1:])
		c.send(encode("BLPOP", "q", "0"))
		w.blockedClients(1)
		return c, id
	}
	for how, want := range map[string]string{"TIMEOUT": "*-1\r\n", "ERROR": "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"} {
		c, id := block()
		if got := string(other.do("CLIENT", "UNBLOCK", id, how)); got != ":1\r\n" {
			t.Errorf("CLIENT UNBLOCK %s: %q", how, got)
		}
		if got := string(c.reply()); got != want {
			t.Errorf("unblocked by %s: %q", how, got)
		}
		if got := string(other.do("CLIENT", "UNBLOCK", id, how)); got != ":0\r\n" {
			t.Errorf("CLIENT UNBLOCK %s of one that is not blocked: %q", how, got)
		}
	}
	c, _ := block()
	c.c.Close() // nobody may pop for it now
	w.blockedClients(0)
	within(t, "the node to see it go", func() bool {
		return w.node(groupIndex(w, "q")).Info(t.Context(), "clients").Val() != "" &&
			strings.Contains(w.node(groupIndex(w, "q")).Info(t.Context(), "clients").Val(), "blocked_clients:0")
	})
	other.do("RPUSH", "q", "kept")
	if got := string(other.do("LLEN", "q")); got != ":1\r\n" {
		t.Errorf("the element of a client that was gone: %q", got)
	}
	other.do("DEL", "q")
	c, id := block()
	other.do("CLIENT", "KILL", "ID", id)
	if _, err := c.r.ReadByte(); err == nil {
		t.Error("CLIENT KILL of a blocked client: it still gets replies")
	}
	w.blockedClients(0)
	c, _ = block()
	w.nodes[groupIndex(w, "q")].Kill()
	if got := string(c.reply()); !strings.HasPrefix(got, "-ERR the connection to the master was lost") {
		t.Errorf("the node died: %q", got)
	}
}

func groupIndex(w *world, key string) int {
	owner := w.topo.Owner(w.topo.Scheme.SlotOf([]byte(key)))
	for i, g := range w.topo.Groups {
		if g.ID == owner {
			return i
		}
	}
	return -1
}
