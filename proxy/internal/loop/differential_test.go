package loop_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/command"
	"shardis/proxy/internal/session"
	"shardis/proxy/resp"
)

// The differential test sends the same random commands to one plain Redis and,
// in pieces of random size, to the proxy over three groups, and compares what
// comes back byte for byte, in both protocols.
//
//	documents of the commands ──► generator ──► pipeline ──┬──────────────► Redis ──► replies ─┐
//	(commands.json)               valid, and spoilt        └─ cut anywhere ► proxy ─► replies ─┴─► compare
//
// All keys have one hash tag, so that every command that Redis executes the
// proxy must execute, too; a spoilt command whose keys are of several slots must
// be answered with CROSSSLOT, unless its class says otherwise, and Redis is not
// asked. Where replies may differ, testdata/differences.txt says how they are
// compared and why; docs/COMPATIBILITY.md is made of it. Replies that matched
// are not enough: after each round the values themselves are compared, by
// digest, so that a refused command that changed something is noticed.
//
// To repeat a failure: -seed. To look for more of them: -commands 500000.

var (
	seed     = flag.Uint64("seed", 0, "of the random commands; 0 picks one")
	commands = flag.Int("commands", 6000, "commands of the differential test in each protocol")
	record   = flag.Bool("record", false, "write the figures of this run to docs/COMPATIBILITY.md")
)

// stream is a connection on which replies are told apart.
type stream struct {
	c      net.Conn
	buf    []byte
	used   int
	framer resp.ReplyFramer
}

func dialStream(addr string) (*stream, error) {
	c, err := net.Dial("tcp", addr)
	return &stream{c: c}, err
}

func openStream(t *testing.T, addr string) *stream {
	t.Helper()
	s, err := dialStream(addr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// next reads one reply. It is valid until the next call.
func (s *stream) next() ([]byte, error) {
	s.buf = s.buf[s.used:]
	s.used = 0
	_ = s.c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		n, err := s.framer.Next(s.buf)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			s.used = n
			return s.buf[:n], nil
		}
		s.buf = slices.Grow(s.buf, 64<<10)
		n, err = s.c.Read(s.buf[len(s.buf):cap(s.buf)])
		if err != nil {
			return nil, fmt.Errorf("%w after %q", err, s.buf)
		}
		s.buf = s.buf[:len(s.buf)+n]
	}
}

// contest is one run: a Redis and a proxy that must not differ.
type contest struct {
	t      *testing.T
	r      *rand.Rand
	seed   uint64
	world  *world
	gen    *generator
	rules  *differences
	oracle *localredis.Process

	redis, proxy *stream
	nodes        []*redis.Client // of the groups
	proto        int

	played   []shot // of this round
	sent     int
	failures int
	served   map[string]int // by command: replies of Redis that are no errors
	tried    map[string]int // by command
	failed   map[string]int // by command: differences, of which two are printed
}

func newContest(t *testing.T) *contest {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	debug := localredis.Config{Extra: []string{"enable-debug-command yes"}}
	c := &contest{
		t: t, r: rand.New(rand.NewPCG(s, 1)), seed: s, rules: readDifferences(t),
		world:  startWorldWith(t, session.Config{}, debug),
		served: map[string]int{}, tried: map[string]int{}, failed: map[string]int{},
	}
	debug.Dir = t.TempDir()
	c.oracle = localredis.StartTest(t, debug)
	c.gen = newGenerator(t, c.r)
	c.takePayloads()
	for i := range c.world.nodes {
		c.nodes = append(c.nodes, c.world.node(i))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with -seed %d", s)
		}
	})
	return c
}

// takePayloads has Redis make what RESTORE and FUNCTION RESTORE take.
func (c *contest) takePayloads() {
	direct := client(c.t, c.oracle.Addr, &redis.Options{})
	defer direct.Close()
	ctx := c.t.Context()
	for _, args := range [][]any{
		{"SET", "x", "text"}, {"SET", "x", 7}, {"RPUSH", "x", "a", "b"}, {"SADD", "x", 1, 2}, {"ZADD", "x", 1, "a"}, {"HSET", "x", "f", "v"},
		{"XADD", "x", "1-1", "f", "v"}, {"FUNCTION", "LOAD", functions[0]},
	} {
		if err := errors.Join(direct.Del(ctx, "x").Err(), direct.Do(ctx, args...).Err()); err != nil {
			c.t.Fatal(err)
		}
		if payload, err := direct.Dump(ctx, "x").Result(); err == nil {
			c.gen.payloads = append(c.gen.payloads, payload)
		}
	}
	c.gen.library = direct.FunctionDump(ctx).Val()
}

// connect starts a round with empty servers and new connections.
func (c *contest) connect() {
	c.disconnect()
	for _, n := range append(c.nodes, client(c.t, c.oracle.Addr, &redis.Options{})) {
		for _, args := range [][]any{{"FLUSHALL"}, {"FUNCTION", "FLUSH"}, {"SCRIPT", "FLUSH"}} {
			if err := n.Do(c.t.Context(), args...).Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		if n.Options().Addr == c.oracle.Addr {
			n.Close() // CLIENT KILL and LIST shall find one connection
		}
	}
	c.played = c.played[:0]
	c.redis, c.proxy = openStream(c.t, c.oracle.Addr), openStream(c.t, c.world.addr)
	hello, _ := c.aim([]string{"HELLO", fmt.Sprint(c.proto)})
	c.play([]shot{hello, {args: []string{"RESET"}}, hello})
}

func (c *contest) disconnect() {
	for _, s := range []*stream{c.redis, c.proxy} {
		if s != nil {
			s.c.Close()
		}
	}
	c.redis, c.proxy = nil, nil
}

// shot is one command of a pipeline and how its replies are compared.
type shot struct {
	args []string
	rule *difference // nil: byte for byte
	// want, if set, is what the proxy must answer; Redis is not asked.
	want string
}

func (s *shot) bytes() []byte { return encode(s.args...) }

// aim decides how a command is to be answered. ok is false when it is not sent.
func (c *contest) aim(args []string) (s shot, ok bool) {
	s.args = args
	words := make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	cmd := command.Lookup(words)
	if s.rule = c.rules.find(args); s.rule != nil && s.rule.kind == skipped {
		return s, false
	}
	if cmd == nil || !cmd.CheckArity(len(args)) {
		return s, true // never executed
	}
	if cmd.Class == command.ClassRefused {
		s.want, s.rule = string(command.AppendErrRefused(nil, cmd)), nil
		return s, true
	}
	if s.rule != nil && s.rule.kind == proxyOnly {
		s.want = s.rule.argument
		return s, true
	}
	if keys, err := cmd.Keys(words, nil); err == nil && cmd.Class != command.ClassSplit {
		for _, k := range keys {
			if topo.CRC16.SlotOf(words[k]) != topo.CRC16.SlotOf(words[keys[0]]) {
				s.want = crossSlot
				s.rule = nil
			}
		}
	}
	return s, true
}

const crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"

// play sends a pipeline to both and compares the replies. It returns false when
// the round can not go on.
func (c *contest) play(pipeline []shot) bool {
	c.played = append(c.played, pipeline...)
	var toRedis, toProxy []byte
	for i := range pipeline {
		if pipeline[i].want == "" {
			toRedis = append(toRedis, pipeline[i].bytes()...)
		}
		toProxy = append(toProxy, c.dress(pipeline[i].args)...)
	}
	written := make(chan error, 1)
	toOracle, toCluster := c.redis.c, c.proxy.c
	go func() {
		_, err := toOracle.Write(toRedis)
		written <- err
	}()
	cuts := c.cuts(len(toProxy))
	go func() {
		var err error
		for from := 0; err == nil && from < len(toProxy); from += cuts[0] {
			if from > 0 {
				cuts = cuts[1:]
			}
			_, err = toCluster.Write(toProxy[from : from+cuts[0]])
		}
		written <- err
	}()
	good := true
	for i := 0; good && i < len(pipeline); i++ {
		good = c.compare(&pipeline[i])
	}
	if !good {
		// What follows a difference may well differ.
		c.disconnect()
	}
	for range 2 {
		if err := <-written; err != nil && good {
			c.t.Fatal(err)
		}
	}
	if c.failures >= 40 {
		c.t.Fatal("and so on")
	}
	return good
}

// compare takes the next reply of both.
func (c *contest) compare(s *shot) bool {
	c.sent++
	var want []byte
	var err error
	if s.want == "" {
		if want, err = c.redis.next(); err != nil {
			c.t.Fatalf("seed %d: Redis on %q: %v", c.seed, s.args, err)
		}
	}
	got, err := c.proxy.next()
	if err != nil {
		c.t.Errorf("RESP%d %s: the proxy gave no reply: %v\nRedis: %q", c.proto, quoted(s.args), err, want)
		c.failures++
		return false
	}
	name := c.gen.name(s.args)
	c.tried[name]++
	switch {
	case s.want != "":
		if s.rule != nil {
			err = s.rule.check(nil, got)
		} else if string(got) != s.want {
			err = fmt.Errorf("it must be %q", s.want)
		}
	case s.rule != nil:
		err = s.rule.check(want, got)
	case !bytes.Equal(got, want):
		err = fmt.Errorf("they differ")
	}
	if s.want != "" && s.rule == nil || len(want) > 0 && want[0] != '-' || s.rule != nil && len(want) == 0 && got[0] != '-' {
		c.served[name]++
	}
	if err != nil {
		if c.failed[name]++; c.failed[name] <= 2 {
			c.t.Errorf("RESP%d %s: %v\nproxy: %s\nRedis: %s", c.proto, quoted(s.args), err, shorten(got), shorten(want))
			c.failures++
		}
		return false
	}
	return true
}

func quoted(args []string) string {
	var b strings.Builder
	for _, a := range args {
		fmt.Fprintf(&b, "%q ", a)
	}
	return b.String()
}

func shorten(reply []byte) string {
	if len(reply) > 1000 {
		return fmt.Sprintf("%q… (%d bytes)", reply[:1000], len(reply))
	}
	return fmt.Sprintf("%q", reply)
}

// dress writes a command as an array or, now and then, as a line.
func (c *contest) dress(args []string) []byte {
	if c.r.IntN(8) > 0 {
		return encode(args...)
	}
	var line []byte
	for i, a := range args {
		if i > 0 {
			line = append(line, ' ')
		}
		plain := a != ""
		for j := range len(a) {
			if a[j] <= ' ' || a[j] > '~' || a[j] == '"' || a[j] == '\'' || a[j] == '\\' {
				plain = false
			}
		}
		switch {
		case len(a) > 1000 || a == "" && i == 0 || i == 0 && a[0] == '*':
			return encode(args...)
		case plain:
			line = append(line, a...)
		default:
			line = append(line, '"')
			for j := range len(a) {
				line = fmt.Appendf(line, `\x%02x`, a[j])
			}
			line = append(line, '"')
		}
	}
	return append(line, "\r\n"...)
}

// cuts divides n bytes into pieces.
func (c *contest) cuts(n int) []int {
	var cuts []int
	typical := []int{1, 7, 100, 1 << 20}[c.r.IntN(4)]
	for n > 0 {
		piece := min(n, 1+c.r.IntN(typical))
		if typical == 1 && len(cuts) > 300 {
			piece = n
		}
		cuts = append(cuts, piece)
		n -= piece
	}
	return cuts
}

// round plays pipelines until limit commands were sent or something failed.
func (c *contest) round(limit int, next func() [][]string) {
	c.connect()
	defer c.disconnect()
	for limit += c.sent; c.sent < limit; {
		var pipeline []shot
		for range 1 + c.r.IntN(20) {
			for _, args := range next() {
				s, ok := c.aim(args)
				if !ok {
					continue
				}
				pipeline = append(pipeline, s)
				if s.rule != nil && s.rule.forget && s.want == "" {
					pipeline = append(pipeline, shot{args: append([]string{"DEL"}, c.gen.keysOf(args)...)})
				}
			}
		}
		if !c.play(pipeline) {
			c.compareValues() // perhaps something went wrong before
			return
		}
	}
	c.play([]shot{{args: []string{"RESET"}}})
	c.compareValues()
}

// compareValues compares all values, by digest.
func (c *contest) compareValues() {
	ctx := c.t.Context()
	digests := func(n *redis.Client, into map[string]string) {
		for db := range 16 {
			conn := n.Conn()
			if err := conn.Select(ctx, db).Err(); err != nil {
				c.t.Fatal(err)
			}
			keys, err := conn.Keys(ctx, "*").Result()
			if err != nil {
				c.t.Fatal(err)
			}
			for _, k := range keys {
				digest, err := conn.Do(ctx, "DEBUG", "DIGEST-VALUE", k).Result()
				if err != nil {
					c.t.Fatal(err)
				}
				into[fmt.Sprintf("%d %q", db, k)] += fmt.Sprint(digest)
			}
			if err := conn.Select(ctx, 0).Err(); err != nil {
				c.t.Fatal(err)
			}
			conn.Close()
		}
	}
	want, got := map[string]string{}, map[string]string{}
	direct := client(c.t, c.oracle.Addr, &redis.Options{})
	digests(direct, want)
	direct.Close()
	for _, n := range c.nodes {
		digests(n, got)
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			c.t.Errorf("RESP%d: value of %s differs after%s", c.proto, k, c.history(k))
			c.failures++
		}
		delete(got, k)
	}
	for k := range got {
		c.t.Errorf("RESP%d: %s is there behind the proxy only, after%s", c.proto, k, c.history(k))
		c.failures++
	}
}

// history has the last commands that named a key, given as number of the
// database and name in quotes.
func (c *contest) history(key string) string {
	_, key, _ = strings.Cut(key, " ")
	var lines []string
	for i := len(c.played) - 1; i >= 0 && len(lines) < 12; i-- {
		if line := quoted(c.played[i].args); strings.Contains(line, key) {
			lines = append(lines, "\n  "+shorten([]byte(line)))
		}
	}
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

func TestDifferential(t *testing.T) {
	c := newContest(t)
	const perRound = 1500
	for c.proto = 2; c.proto <= 3; c.proto++ {
		for end := c.sent + *commands; c.sent < end; {
			c.round(min(perRound, *commands), c.gen.next)
		}
	}
	t.Logf("%d commands compared; %d commands tried, %d of them with success; seed %d", c.sent, len(c.tried), len(c.served), c.seed)
	if *commands >= 50_000 && !t.Failed() {
		for name := range c.tried {
			if d := c.gen.byName[name]; c.served[name] == 0 && !c.rules.failsAlways(name) && len(d.Subcommands) == 0 {
				t.Errorf("%s: the generator never made one that succeeds (%d tried)", name, c.tried[name])
			}
		}
		c.rules.checkUsed(t)
	}
	if *record && !t.Failed() {
		writeCompatibility(t, figures{commands: len(c.tried), cases: c.sent})
	}
}

// Commands whose keys are of many slots, against one Redis with the same keys.
func TestDifferentialManySlots(t *testing.T) {
	c := newContest(t)
	for c.proto = 2; c.proto <= 3; c.proto++ {
		for end := c.sent + *commands/3; c.sent < end; {
			c.round(1000, c.gen.nextSpread)
			c.scanAll()
		}
	}
}

// scanAll compares what complete iterations of SCAN find.
func (c *contest) scanAll() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for _, args := range [][]any{{}, {"COUNT", 3}, {"MATCH", "k1*"}, {"TYPE", "string", "COUNT", 100}, {"TYPE", "nosuch"}} {
		var sets [2][]string
		for i, addr := range []string{c.oracle.Addr, c.world.addr} {
			direct := redis.NewClient(&redis.Options{Addr: addr})
			found := map[string]bool{}
			for cursor, first := "0", true; first || cursor != "0"; first = false {
				reply, err := direct.Do(ctx, append([]any{"SCAN", cursor}, args...)...).Slice()
				if err != nil {
					c.t.Fatal(err)
				}
				cursor = reply[0].(string)
				for _, k := range reply[1].([]any) {
					found[k.(string)] = true
				}
			}
			direct.Close()
			sets[i] = slices.Sorted(maps.Keys(found))
		}
		if !slices.Equal(sets[0], sets[1]) {
			c.t.Errorf("SCAN %v: %d keys, Redis has %d", args, len(sets[1]), len(sets[0]))
		}
	}
}
