package loop_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/session"
)

// Scripts of one client whose replies must be the bytes of a redis-server.
func TestTransactionsAsRedis(t *testing.T) {
	w := startWorld(t, session.Config{})
	oracle := localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
	big := strings.Repeat("x", 100_000)
	for name, script := range map[string]string{
		"plain":     "multi|set a 1|incr a|get a|hset {a}h f v|hgetall {a}h|exec|get a",
		"empty":     "multi|exec|exec|discard|multi|discard|exec",
		"nested":    "multi|multi|set a 1|exec|get a",
		"unknown":   "multi|set a 5|nosuch x|set a 6|exec|get a",
		"arity":     "multi|set a|exec|multi|get|set a 1|exec|exec",
		"failing":   "set a x|multi|incr a|lpush a 1|set a 2|exec|get a",
		"discard":   "set a 1|multi|set a 2|discard|get a|exec",
		"reset":     "multi|set a 2|reset|exec",
		"forbidden": "multi|monitor x y|set a 1|exec",
		"local":     "multi|ping|echo hi|ping hi|exec",
		"blocking":  "del l|multi|blpop l 0|rpush l 1|blpop l 0|brpoplpush l l 0|blmove l l left right 0|exec",
		"streams":   "del x|xadd x 1-1 a b|multi|xread block 0 streams x $|xlen x|xread block 0 streams x 0|exec",
		"split":     "mset {a}1 1 {a}2 2|multi|mget {a}1 {a}2|del {a}1|exists {a}1 {a}2|mset {a}1 1|exec",
		"scripts":   "multi|eval 'return(redis.call(\"incr\",KEYS[1]))' 1 n|evalsha 0 0|exec|del n",
		"wait":      "multi|set a 1|wait 0 0|exec",
		"reply off": "multi|set a 7|exec|client reply skip|multi|set a 8|exec|get a",
		"types":     "del {a}z {a}e|zadd {a}z 1.5 m|sadd {a}e x|multi|zscore {a}z m|zrange {a}z 0 -1 withscores|smembers {a}e|hgetall {a}no|get {a}no|lrange {a}no 0 1|exec",
		"large":     "multi|set a " + big + "|append a " + big + "|getrange a 0 5|strlen a|get a|exec",
		"quit":      "multi|set a 9|quit",
	} {
		for _, proto := range []string{"2", "3"} {
			t.Run(name+"/"+proto, func(t *testing.T) {
				var got [2]string
				for i, addr := range []string{oracle.Addr, w.addr} {
					c := dial(t, addr)
					c.do("HELLO", proto)
					c.do("FLUSHALL")
					var all strings.Builder
					for line := range strings.SplitSeq(script, "|") {
						words := strings.Fields(strings.ReplaceAll(line, "'", ""))
						c.send(encode(words...))
						if line != "client reply skip" && !(name == "reply off" && line == "multi" && strings.Contains(all.String(), "|multi|")) {
							all.Write(c.reply())
						}
						all.WriteString("|" + words[0] + "|")
					}
					got[i] = all.String()
				}
				if got[0] != got[1] {
					t.Errorf("redis:   %.600q\nshardis: %.600q", got[0], got[1])
				}
			})
		}
	}
}

// What is different on purpose.
func TestTransactionRefusals(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := dial(t, w.addr)
	for _, words := range [][]string{
		{"GET", "b"}, {"DBSIZE"}, {"SELECT", "1"}, {"FLUSHALL"}, {"CLIENT", "ID"}, {"INFO"}, {"SCRIPT", "FLUSH"},
		{"SORT", "{a}l", "BY", "w_*"}, {"PUBLISH", "c", "m"}, {"SCAN", "0"}, {"SHUTDOWN"}, {"KEYS", "*"}, {"MGET", "a", "b"},
	} {
		c.do("MULTI")
		c.do("SET", "a", "1")
		if got := string(c.do(words...)); got[0] != '-' {
			t.Errorf("%v in a transaction: %q", words, got)
		}
		if got := string(c.do("EXEC")); got != "-EXECABORT Transaction discarded because of previous errors.\r\n" {
			t.Errorf("EXEC after %v: %q", words, got)
		}
		if got := string(c.do("GET", "a")); got != "$-1\r\n" {
			t.Errorf("after %v: a is %q", words, got)
		}
	}
	c.do("MULTI")
	for range 70 {
		c.do("SET", "a", strings.Repeat("x", 1<<20))
	}
	if got := string(c.do("EXEC")); !strings.HasPrefix(got, "-EXECABORT") {
		t.Errorf("a transaction of 70 MiB: %.80q", got)
	}
}

// Transactions are whole, in order, and happen once while their slots change
// hands and other clients use the same pipelines.
func TestTransactionsDuringHandOvers(t *testing.T) {
	w := startWorld(t, session.Config{})
	ctx := t.Context()
	stop := make(chan struct{})
	const clients, tags = 8, 40
	var done [tags][clients]int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := client(t, w.addr, &redis.Options{PoolSize: 1, MaxRetries: -1})
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				tag := n % tags
				a, b, l := fmt.Sprintf("{t%d}a", tag), fmt.Sprintf("{t%d}b", tag), fmt.Sprintf("{t%d}l", tag)
				var first, second *redis.IntCmd
				_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					first = p.Incr(ctx, a)
					p.RPush(ctx, l, fmt.Sprint(i, ":", n))
					second = p.Incr(ctx, b)
					return nil
				})
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				done[tag][i]++
				if first.Val() != second.Val() {
					t.Errorf("client %d: counters %d and %d in one transaction", i, first.Val(), second.Val())
				}
				if err := c.Get(ctx, a).Err(); err != nil && !errors.Is(err, redis.Nil) {
					t.Error(err)
				}
			}
		})
	}
	for round := range 24 {
		first := topo.Slot(round % 6 * 2700)
		w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 2699}), fmt.Sprint("g", 1+(round*3+round/6)%4))
	}
	close(stop)
	all.Wait()
	c := client(t, w.addr, &redis.Options{})
	var total int64
	for tag := range tags {
		var want int64
		for _, n := range done[tag] {
			want += n
		}
		total += want
		a, _ := c.Get(ctx, fmt.Sprintf("{t%d}a", tag)).Int64()
		b, _ := c.Get(ctx, fmt.Sprintf("{t%d}b", tag)).Int64()
		entries := c.LRange(ctx, fmt.Sprintf("{t%d}l", tag), 0, -1).Val()
		seen := map[string]bool{}
		for _, e := range entries {
			seen[e] = true
		}
		if a != want || b != want || int64(len(entries)) != want || int64(len(seen)) != want {
			t.Errorf("tag %d: counters %d and %d, %d entries, %d different, of %d", tag, a, b, len(entries), len(seen), want)
		}
	}
	t.Logf("%d transactions", total)
}
