package migrate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the random migration test; 0 = by the clock")
	runsFlag = flag.Int("runs", 3, "runs of the random migration test, with seeds that follow each other")
)

// fuzzer makes random commands over few keys, so that they meet each other.
type fuzzer struct {
	rng  *rand.Rand
	tags int
}

func (f *fuzzer) n(n int) int { return f.rng.IntN(n) }

func (f *fuzzer) oneOf(words ...string) string { return words[f.n(len(words))] }

func (f *fuzzer) value() string { return fmt.Sprintf("v%d%s", f.n(50), strings.Repeat("x", f.n(40))) }

func (f *fuzzer) member() string { return fmt.Sprint("m", f.n(12)) }

// key names a key of kind; now and then one of another kind.
func (f *fuzzer) key(tag, kind string) string {
	if f.n(20) == 0 {
		kind = f.oneOf("s", "l", "e", "h", "z", "x")
	}
	return fmt.Sprintf("{%s}:%s%d", tag, kind, f.n(4))
}

func (f *fuzzer) ttl() int { return 20 + f.n(4000) }

func args(words ...any) []any { return words }

// command gives one random command whose keys all have tag.
func (f *fuzzer) command(tag string) []any {
	k := func(kind string) string { return f.key(tag, kind) }
	switch f.n(6) {
	case 0:
		return f.ofStrings(k)
	case 1:
		return f.ofLists(k)
	case 2:
		return f.ofSets(k)
	case 3:
		return f.ofSorted(k)
	case 4:
		return f.ofStreams(k)
	}
	return f.ofAny(k)
}

func (f *fuzzer) ofStrings(k func(string) string) []any {
	all := [][]any{
		args("SET", k("s"), f.value()),
		args("SET", k("s"), f.value(), "PX", f.ttl()),
		args("SET", k("s"), f.value(), "KEEPTTL"),
		args("SET", k("s"), f.value(), "NX"),
		args("SET", k("s"), f.value(), "XX", "GET"),
		args("APPEND", k("s"), f.value()),
		args("INCRBY", k("s"), f.n(100)),
		args("SETRANGE", k("s"), f.n(60), f.value()),
		args("GETDEL", k("s")),
		args("GETEX", k("s"), "PX", f.ttl()),
		args("SETBIT", k("s"), f.n(500), f.n(2)),
		args("BITFIELD", k("s"), "INCRBY", "u8", f.n(20), f.n(9)),
		args("BITOP", f.oneOf("AND", "OR", "XOR"), k("s"), k("s"), k("s")),
		args("MSET", k("s"), f.value(), k("s"), f.value()),
		args("MSETNX", k("s"), f.value(), k("s"), f.value()),
		args("PFADD", k("p"), f.member(), f.member()),
		args("PFMERGE", k("p"), k("p"), k("p")),
		args("PFCOUNT", k("p")),
		args("PSETEX", k("s"), f.ttl(), f.value()),
		args("HSET", k("h"), f.member(), f.value(), f.member(), f.value()),
		args("HDEL", k("h"), f.member()),
		args("HINCRBY", k("h"), "n", f.n(9)),
		args("HINCRBYFLOAT", k("h"), "f", "0.25"),
		args("HSETNX", k("h"), f.member(), f.value()),
	}
	return all[f.n(len(all))]
}

func (f *fuzzer) ofLists(k func(string) string) []any {
	all := [][]any{
		args("RPUSH", k("l"), f.value(), f.value(), f.value()),
		args("LPUSH", k("l"), f.value()),
		args("RPUSHX", k("l"), f.value()),
		args("LPOP", k("l"), 1+f.n(2)),
		args("RPOP", k("l")),
		args("LSET", k("l"), f.n(3), f.value()),
		args("LREM", k("l"), 0, f.value()),
		args("LTRIM", k("l"), f.n(2), 8),
		args("LINSERT", k("l"), "BEFORE", f.value(), f.value()),
		args("LMOVE", k("l"), k("l"), "LEFT", "RIGHT"),
		args("RPOPLPUSH", k("l"), k("l")),
		args("LMPOP", 2, k("l"), k("l"), "LEFT"),
		args("SORT", k("l"), "ALPHA", "STORE", k("l")),
		args("BLPOP", k("l"), k("l"), "0.03"),
		args("BLMOVE", k("l"), k("l"), "LEFT", "LEFT", "0.03"),
		args("BLMPOP", "0.03", 1, k("l"), "RIGHT"),
	}
	return all[f.n(len(all))]
}

func (f *fuzzer) ofSets(k func(string) string) []any {
	all := [][]any{
		args("SADD", k("e"), f.member(), f.member(), f.n(20)),
		args("SADD", k("e"), f.n(99), f.n(99)),
		args("SREM", k("e"), f.member()),
		args("SPOP", k("e")),
		args("SMOVE", k("e"), k("e"), f.member()),
		args("SINTERSTORE", k("e"), k("e"), k("e")),
		args("SUNIONSTORE", k("e"), k("e"), k("e")),
		args("SDIFFSTORE", k("e"), k("e"), k("e")),
		args("SORT", k("e"), "ALPHA", "STORE", k("l")),
	}
	return all[f.n(len(all))]
}

func (f *fuzzer) ofSorted(k func(string) string) []any {
	all := [][]any{
		args("ZADD", k("z"), f.n(50), f.member(), f.rng.Float64(), f.member()),
		args("ZADD", k("z"), "GT", "CH", f.n(50), f.member()),
		args("ZINCRBY", k("z"), "1.1", f.member()),
		args("ZREM", k("z"), f.member()),
		args("ZPOPMIN", k("z")),
		args("ZPOPMAX", k("z"), 2),
		args("ZREMRANGEBYRANK", k("z"), 1, 2),
		args("ZREMRANGEBYSCORE", k("z"), 1, 5),
		args("ZRANGESTORE", k("z"), k("z"), 0, 5),
		args("ZUNIONSTORE", k("z"), 2, k("z"), k("z")),
		args("ZINTERSTORE", k("z"), 2, k("z"), k("e"), "WEIGHTS", 2, 3),
		args("ZDIFFSTORE", k("z"), 2, k("z"), k("z")),
		args("ZMPOP", 1, k("z"), "MIN"),
		args("BZPOPMIN", k("z"), "0.03"),
		args("GEOADD", k("g"), 13.3, 38.1, f.member(), 15.0, 37.5, f.member()),
		args("GEOSEARCHSTORE", k("z"), k("g"), "FROMLONLAT", 15, 37, "BYRADIUS", 200, "km"),
		args("GEORADIUS", k("g"), 15, 37, 200, "km", "STORE", k("z")),
	}
	return all[f.n(len(all))]
}

func (f *fuzzer) ofStreams(k func(string) string) []any {
	group, consumer := f.oneOf("ga", "gb"), f.oneOf("c1", "c2")
	id := fmt.Sprintf("%d-%d", 1+f.n(400), f.n(3))
	all := [][]any{
		args("XADD", k("x"), "*", f.member(), f.value()),
		args("XADD", k("x"), "MAXLEN", 20, "*", f.member(), f.value()),
		args("XADD", k("x"), id, f.member(), f.value()),
		args("XDEL", k("x"), id),
		args("XTRIM", k("x"), "MAXLEN", 10),
		args("XGROUP", "CREATE", k("x"), group, "0", "MKSTREAM"),
		args("XGROUP", "SETID", k("x"), group, "0"),
		args("XGROUP", "CREATECONSUMER", k("x"), group, consumer),
		args("XGROUP", "DELCONSUMER", k("x"), group, consumer),
		args("XGROUP", "DESTROY", k("x"), group),
		args("XREADGROUP", "GROUP", group, consumer, "COUNT", 2, "STREAMS", k("x"), ">"),
		args("XREADGROUP", "GROUP", group, consumer, "COUNT", 2, "BLOCK", 20, "STREAMS", k("x"), ">"),
		args("XREADGROUP", "GROUP", group, consumer, "COUNT", 2, "NOACK", "STREAMS", k("x"), ">"),
		args("XACK", k("x"), group, id),
		args("XCLAIM", k("x"), group, consumer, 0, id),
		args("XAUTOCLAIM", k("x"), group, consumer, 0, "0", "COUNT", 2),
		args("XSETID", k("x"), "900000000000000-0"),
	}
	return all[f.n(len(all))]
}

func (f *fuzzer) ofAny(k func(string) string) []any {
	of := func() string { return k(f.oneOf("s", "l", "e", "h", "z", "x", "p", "g")) }
	all := [][]any{
		args("DEL", of(), of()),
		args("UNLINK", of()),
		args("PEXPIRE", of(), f.ttl()),
		args("PEXPIREAT", of(), time.Now().UnixMilli()+int64(f.ttl())),
		args("EXPIRE", of(), 1+f.n(100)),
		args("PERSIST", of()),
		args("RENAME", of(), of()),
		args("RENAMENX", of(), of()),
		args("COPY", of(), of(), "REPLACE"),
		args("COPY", of(), of(), "DB", f.n(2), "REPLACE"),
		args("MOVE", of(), f.n(2)),
		args("TOUCH", of()),
		args("EVAL", "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('DEL', KEYS[3])",
			3, of(), of(), of(), f.value()),
		args("EVAL", "local t = redis.pcall('TYPE', KEYS[1]) if t.ok == 'string' then return redis.call('APPEND', KEYS[1], 'y') end return 0",
			1, of()),
	}
	return all[f.n(len(all))]
}

// write sends random commands through the door until the slots have moved.
func (f *fuzzer) write(ctx context.Context, d *door, from string, stop *atomic.Bool, sent *atomic.Int64) error {
	for !stop.Load() {
		tag := fmt.Sprint("t", f.n(f.tags))
		db := f.n(2)
		err := d.do("{"+tag+"}", db, from, func(c *redis.Client) error {
			if f.n(15) == 0 {
				_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					for range 1 + f.n(3) {
						p.Do(ctx, f.command(tag)...)
					}
					return nil
				})
				return err
			}
			return c.Do(ctx, f.command(tag)...).Err()
		})
		sent.Add(1)
		var answer redis.Error
		switch {
		case errors.Is(err, errMoved):
			continue // that tag has moved; others may not have
		case err == nil, errors.Is(err, redis.Nil), errors.As(err, &answer):
		default:
			return err
		}
	}
	return nil
}

var seenTime = regexp.MustCompile(`seen-time \d+`)

// picture is what a client can tell of one key.
func (w *world) picture(c *redis.Client, key string) (text string, expire int64) {
	w.t.Helper()
	cmds, err := c.Pipelined(w.ctx, func(p redis.Pipeliner) error {
		p.Do(w.ctx, "EXISTS", key)
		p.Do(w.ctx, "PEXPIRETIME", key)
		p.Do(w.ctx, "TYPE", key)
		p.Do(w.ctx, "DEBUG", "DIGEST-VALUE", key)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	get := func(i int) any { v, _ := cmds[i].(*redis.Cmd).Result(); return v }
	if get(0) == int64(0) {
		return "absent", 0
	}
	text = fmt.Sprint(get(1), " ", get(2), " ", get(3))
	if get(2) == "stream" {
		info, err := c.Do(w.ctx, "XINFO", "STREAM", key, "FULL", "COUNT", "0").Slice()
		if err == nil {
			for i := 0; i+1 < len(info); i += 2 {
				if name := info[i].(string); !strings.HasPrefix(name, "radix-tree") {
					text += fmt.Sprint(" ", name, "=", info[i+1])
				}
			}
		}
		// A read that finds nothing changes it and is not logged.
		text = seenTime.ReplaceAllString(text, "")
	}
	expire, _ = get(1).(int64)
	return text, expire
}

// compareSlots makes sure that target has exactly the keys of set that source
// has, alike in every respect. Keys may expire meanwhile, on both.
func (w *world) compareSlots(source, target string, set topo.SlotSet, dbs ...int) (compared int) {
	w.t.Helper()
	for _, db := range dbs {
		src, dst := w.admin(source, db), w.admin(target, db)
		names := append(w.keysIn(source, db, set), w.keysIn(target, db, set)...)
		sort.Strings(names)
		names = slices.Compact(names)
		for _, key := range names {
			var a, b string
			deadline := time.Now().Add(10 * time.Second)
			for {
				var expire int64
				a, expire = w.picture(src, key)
				var other int64
				b, other = w.picture(dst, key)
				if a == b || max(expire, other) <= 0 || time.Now().After(deadline) {
					break
				}
			}
			compared++
			if a != b {
				w.t.Errorf("db %d key %q differs:\n source %s\n target %s", db, key, a, b)
			}
		}
	}
	return compared
}

func TestRandomCommandsDuringMove(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	for run := range *runsFlag {
		seed := seed + uint64(run)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { randomMove(t, seed) })
	}
}

func randomMove(t *testing.T, seed uint64) {
	t.Logf("seed %d (repeat with -seed %d -runs 1)", seed, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, 3, rng.IntN(2))
	l := w.newLeader(nil)
	d := w.newDoor("p1")
	w.fill(w.master("g1"), 10000)

	const tags = 60
	var stop atomic.Bool
	var sent atomic.Int64
	errs := make(chan error, 8)
	const writers = 10 // some of them are blocked at any time
	for i := range writers {
		f := &fuzzer{rng: rand.New(rand.NewPCG(seed, uint64(i+1))), tags: tags}
		go func() { errs <- f.write(w.ctx, d, "g1", &stop, &sent) }()
	}
	w.eventually("some writes", func() bool { return sent.Load() > 3000 })
	w.control("op-1", topo.Control{Limits: topo.Limits{BytesPerSecond: int64(60_000 + rng.IntN(120_000))}}) // so that the copy takes a while
	a, b := slots(0, topo.Slot(4000+rng.IntN(4000))), slots(9000, topo.Slot(10000+rng.IntN(5000)))
	w.submit("op-1", topo.Move{Slots: a, From: "g1", To: "g2"}, topo.Move{Slots: b, From: "g1", To: "g3"})
	begun := sent.Load()
	out := l.start("op-1")
	if rng.IntN(3) == 0 {
		before := sent.Load()
		w.eventually("writes during the copy", func() bool { return sent.Load() > before+500 })
		if err := w.admin(w.master("g1"), 1).FlushDB(w.ctx).Err(); err != nil {
			t.Fatal(err)
		}
		t.Log("flushed database 1")
	}
	w.within(90*time.Second, "slots switched", func() bool {
		top := w.topology()
		return top.Owner(0) == "g2" && top.Owner(9000) == "g3"
	})
	stop.Store(true)
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	n := w.compareSlots(w.master("g1"), w.master("g2"), a, 0, 1) + w.compareSlots(w.master("g1"), w.master("g3"), b, 0, 1)
	for g, set := range map[string]topo.SlotSet{"g2": a, "g3": b} {
		for _, db := range []int{0, 1} {
			if foreign := w.keysIn(w.master(g), db, without(topo.CRC16.All(), set)); len(foreign) != 0 {
				t.Errorf("group %s has keys of slots it was not given: %q", g, foreign)
			}
		}
	}
	op := w.operation("op-1")
	moved := sent.Load() - begun
	t.Logf("%d commands during the move, %d keys compared, hold %.1f ms, attempts %d", moved, n, op.Moves[0].HoldMS, op.Moves[0].Attempts)
	l.stop()
	_ = out
}
