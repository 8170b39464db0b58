package loop_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// argument is one argument of a command as COMMAND DOCS describes it.
type argument struct {
	Name, Type, Token string
	Flags             []string
	Arguments         []argument
}

func (a *argument) has(flag string) bool { return slices.Contains(a.Flags, flag) }

// documented is one command of commands.json.
type documented struct {
	Name  string
	Arity int
	Docs  struct {
		Group     string
		Since     string
		Arguments []argument
	}
	Subcommands []documented
}

// documentedCommands reads what Redis says of its commands: those without
// sub-commands, and the sub-commands.
func documentedCommands(t *testing.T) []*documented {
	t.Helper()
	data, err := os.ReadFile("../../command/commands.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []documented
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	var list []*documented
	for i := range all {
		list = append(list, &all[i])
		for j := range all[i].Subcommands {
			sub := &all[i].Subcommands[j]
			sub.Docs.Group = all[i].Docs.Group
			list = append(list, sub)
		}
	}
	return list
}

// generator makes commands from their documented arguments. It takes one command
// after the other, so that in a run of n commands each has about its share.
type generator struct {
	r        *rand.Rand
	list     []*documented
	byName   map[string]*documented
	queue    []*documented
	payloads []string // of DUMP
	library  string   // of FUNCTION DUMP

	// Of the command at hand.
	cmd     *documented
	numkeys int // announced; -1: none
}

func newGenerator(t *testing.T, r *rand.Rand) *generator {
	g := &generator{r: r, list: documentedCommands(t), byName: map[string]*documented{}}
	for _, d := range g.list {
		g.byName[d.Name] = d
	}
	return g
}

// name is the full name of the command that args call, "" for none.
func (g *generator) name(args []string) string {
	name := strings.ToLower(args[0])
	if len(args) > 1 {
		if sub := name + "|" + strings.ToLower(args[1]); g.byName[sub] != nil {
			return sub
		}
	}
	if g.byName[name] == nil {
		return "(unknown)"
	}
	return name
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// next makes the next command, or several that put values of all types in place.
func (g *generator) next() [][]string {
	if g.r.IntN(40) == 0 {
		return g.plant()
	}
	for {
		if len(g.queue) == 0 {
			g.queue = slices.Clone(g.list)
			g.r.Shuffle(len(g.queue), func(i, j int) { g.queue[i], g.queue[j] = g.queue[j], g.queue[i] })
		}
		d := g.queue[0]
		g.queue = g.queue[1:]
		args := g.command(d)
		switch n := g.r.IntN(100); {
		case n < 25:
			args = g.spoil(args)
		case n < 27:
			args = g.spoil(g.spoil(g.spoil(args)))
		case n == 27:
			args[0] = pick(g.r, "nosuch", "", "GETT", "\x00", "a b", strings.Repeat("long", 40))
		}
		if g.r.IntN(3) == 0 {
			args[0] = pick(g.r, strings.ToUpper(args[0]), strings.ToUpper(args[0][:len(args[0])/2])+args[0][len(args[0])/2:])
		}
		if harmless(args) {
			return [][]string{args}
		}
	}
}

// command makes a well-formed command.
func (g *generator) command(d *documented) []string {
	g.cmd, g.numkeys = d, -1
	args := strings.Split(d.Name, "|")
	if strings.HasPrefix(d.Name, "command|getkeys") {
		return append(args, g.command(g.list[g.r.IntN(len(g.list))])...)
	}
	return g.arguments(args, d.Docs.Arguments)
}

func (g *generator) arguments(args []string, list []argument) []string {
	for i := range list {
		args = g.argument(args, &list[i])
	}
	return args
}

func (g *generator) argument(args []string, a *argument) []string {
	if a.has("optional") && g.r.IntN(5) < 3 {
		return args
	}
	times := 1
	switch {
	case !a.has("multiple"):
	case a.Name == "key" && g.numkeys >= 0, a.Name == "weight":
		times = max(g.numkeys, 0)
	case a.Name == "id" && g.cmd.Docs.Group == "stream" && strings.HasPrefix(g.cmd.Name, "xread"):
		times = g.numkeys
	default:
		times = 1 + g.r.IntN(3)
		if a.Name == "key" && strings.HasPrefix(g.cmd.Name, "xread") {
			g.numkeys = times
		}
	}
	if times == 0 {
		return args
	}
	for n := range times {
		if a.Token != "" && a.Type != "pure-token" && (n == 0 || a.has("multiple_token")) {
			args = append(args, a.Token)
		}
		switch a.Type {
		case "pure-token":
			args = append(args, a.Token)
		case "oneof":
			args = g.argument(args, &a.Arguments[g.r.IntN(len(a.Arguments))])
		case "block":
			args = g.arguments(args, a.Arguments)
		case "key":
			args = append(args, g.key(a.Name))
		default:
			args = append(args, g.value(a))
		}
	}
	return args
}

// spoil makes a mistake.
func (g *generator) spoil(args []string) []string {
	args = slices.Clone(args)
	i := 1
	if len(args) > 1 {
		i = 1 + g.r.IntN(len(args)-1)
	}
	switch g.r.IntN(6) {
	case 0:
		if i < len(args) {
			args = slices.Delete(args, i, i+1)
		}
	case 1:
		args = slices.Insert(args, i, pick(g.r, junk...))
	case 2:
		args = append(args, pick(g.r, junk...))
	case 3:
		if i < len(args) {
			j := 1 + g.r.IntN(len(args)-1)
			args[i], args[j] = args[j], args[i]
		}
	case 4:
		args = args[:i]
	default:
		if i < len(args) {
			args[i] = pick(g.r, junk...)
		}
	}
	return args
}

// junk is what takes the place of arguments. Nothing here makes a value of
// hundreds of megabytes, or ends up waiting for ever.
var junk = []string{
	"", "x", "-1", "0", "1", "2", "1.5", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "nan", "inf", "+1", "01", " 1", "0x10",
	"{t}junk", "{t}str1", "{t}list1", "a\r\nb", "\x00\xff", "*", "$", ">", "(1", "NX", "XX", "GET", "COUNT", "LIMIT", "WITHSCORES", "STORE", "BLOCK", "STREAMS", "WEIGHTS",
	strings.Repeat("{t}long", 40),
}

// harmless says no to what would wait for long, need much memory, or end the
// connections that the test lives on.
func harmless(args []string) bool {
	name := strings.ToLower(args[0])
	short := func(seconds string) bool {
		v, err := strconv.ParseFloat(strings.TrimSpace(seconds), 64)
		return err != nil || v != v || v < 0 || v > 0 && v <= 0.05
	}
	switch name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax", "brpoplpush", "blmove":
		return short(args[len(args)-1])
	case "blmpop", "bzmpop":
		return len(args) < 2 || short(args[1])
	case "xread", "xreadgroup":
		for i := 1; i+1 < len(args); i++ {
			if strings.EqualFold(args[i], "block") && !slices.Contains([]string{"1", "5", "-1", "x"}, args[i+1]) {
				return false
			}
		}
	case "expire", "pexpire", "setex", "psetex", "restore":
		return len(args) < 3 || !soon(args[2])
	case "set", "getex":
		for i := 2; i+1 < len(args); i++ {
			if (strings.EqualFold(args[i], "ex") || strings.EqualFold(args[i], "px")) && soon(args[i+1]) {
				return false
			}
			// SET takes a time in the past and leaves the key to be found expired.
			if (strings.EqualFold(args[i], "exat") || strings.EqualFold(args[i], "pxat")) && !strings.HasPrefix(args[i+1], "33177117420") {
				return false
			}
		}
	case "sort", "sort_ro":
		return len(args) < 2 || strings.HasPrefix(args[1], "{t}") // see SortPatterns
	case "zrangebylex", "zrevrangebylex", "zlexcount", "zremrangebylex":
		// Of elements with different scores the answer is undefined.
		return len(args) < 2 || strings.HasPrefix(args[1], "{t}lex")
	case "zrange", "zrangestore":
		return !slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "bylex") }) ||
			strings.HasPrefix(args[min(len(args)-1, len(name)/5)], "{t}lex")
	case "wait":
		return len(args) != 3 || slices.Contains([]string{"1", "5", "-1", "x"}, args[2])
	case "client":
		for i, a := range args {
			if strings.EqualFold(a, "skipme") && i+1 < len(args) && strings.EqualFold(args[i+1], "no") || strings.EqualFold(a, "reply") {
				return false
			}
		}
	case "setrange", "setbit", "bitfield", "bitfield_ro", "srandmember", "hrandfield", "zrandmember", "getrange", "substr":
		for _, a := range args {
			if n, err := strconv.ParseInt(strings.TrimLeft(a, "#"), 10, 64); err == nil && (n > 100_000 && n < 1<<40 || n < -100_000) {
				return false
			}
		}
	}
	return true
}

// soon reports whether a key that lives so long might expire on one side first.
func soon(ttl string) bool {
	n, err := strconv.Atoi(ttl)
	return err == nil && n > 0 && n < 10_000
}

// kinds are the prefixes of the names of keys, by the group of commands that
// works on them.
var kinds = map[string][]string{
	"string": {"str", "int"}, "bitmap": {"bits", "str"}, "list": {"list"}, "set": {"set", "ints"}, "sorted-set": {"zset"},
	"hash": {"hash"}, "stream": {"stream"}, "geo": {"geo"}, "hyperloglog": {"hll"},
}

var allKinds = []string{"str", "int", "bits", "list", "set", "ints", "zset", "hash", "stream", "geo", "hll", "none"}

func (g *generator) key(argument string) string {
	of, known := kinds[g.cmd.Docs.Group]
	if !known || g.r.IntN(10) == 0 {
		of = allKinds
	}
	if strings.Contains(argument, "dest") || argument == "newkey" {
		of = append(slices.Clone(of), "dest")
	}
	if strings.Contains(g.cmd.Name, "lex") && g.r.IntN(10) > 0 {
		of = []string{"lex"}
	}
	return fmt.Sprintf("{t}%s%d", pick(g.r, of...), 1+g.r.IntN(2))
}

// keysOf gives the keys among arguments, and more: it does no harm.
func (g *generator) keysOf(args []string) []string {
	return append([]string{"{t}none0"}, args[1:]...)
}

// plant puts fresh values of one or all types in place.
func (g *generator) plant() [][]string {
	n := fmt.Sprint(1 + g.r.IntN(2))
	key := func(kind string) string { return "{t}" + kind + n }
	all := [][]string{
		{"SET", key("str"), pick(g.r, values...)},
		{"SET", key("int"), fmt.Sprint(g.r.IntN(1000) - 500)},
		{"SETBIT", key("bits"), fmt.Sprint(g.r.IntN(100)), "1"},
		{"RPUSH", key("list"), "a", "b", "c", "1", "2", "a"},
		{"SADD", key("set"), "a", "b", "c", "{t}m", "1"},
		{"SADD", key("ints"), "1", "2", "3", "100"},
		{"ZADD", key("zset"), "1", "a", "2", "b", "2", "c", "3.5", "d", "-inf", "e"},
		{"ZADD", key("lex"), "0", "a", "0", "b", "0", "c", "0", "d"},
		{"HSET", key("hash"), "f1", "v1", "f2", "2", "f3", "3.5", "a", ""},
		{"XADD", key("stream"), fmt.Sprintf("%d-1", 1+g.r.IntN(9)), "f1", "v1", "f2", "v2"},
		{"XGROUP", "CREATE", key("stream"), "g1", "0", "MKSTREAM"},
		{"GEOADD", key("geo"), "13.361389", "38.115556", "Palermo", "15.087269", "37.502669", "Catania"},
		{"PFADD", key("hll"), "a", "b", "c"},
		{"FUNCTION", "LOAD", "REPLACE", functions[0]},
		{"FUNCTION", "LOAD", "REPLACE", functions[1]},
		{"SCRIPT", "LOAD", scripts[0]},
	}
	if g.r.IntN(3) == 0 {
		cmds := [][]string{}
		for _, kind := range allKinds {
			cmds = append(cmds, []string{"DEL", key(kind)})
		}
		return append(cmds, all...)
	}
	return [][]string{pick(g.r, all...)}
}

// nextSpread makes commands whose keys are of many slots.
func (g *generator) nextSpread() [][]string {
	key := func() string { return fmt.Sprintf("k%d", g.r.IntN(60)) }
	keys := func(args ...string) []string {
		for range 1 + g.r.IntN(8) {
			args = append(args, key())
		}
		return args
	}
	switch g.r.IntN(14) {
	case 0, 1, 2:
		args := []string{"mset"}
		for _, k := range keys() {
			args = append(args, k, pick(g.r, values...))
		}
		if g.r.IntN(10) == 0 {
			args = args[:len(args)-1]
		}
		return [][]string{args}
	case 3, 4:
		return [][]string{keys("MGET")}
	case 5:
		return [][]string{keys("DEL")}
	case 6:
		return [][]string{keys("unlink")}
	case 7:
		return [][]string{keys("EXISTS")}
	case 8:
		return [][]string{keys("TOUCH")}
	case 9:
		return [][]string{{"DBSIZE"}, {"KEYS", pick(g.r, "*", "k1*", "k[2-4]?", "nothing*")}}
	case 10:
		return [][]string{{pick(g.r, "LPUSH", "SADD"), key(), "v"}}
	case 11:
		if g.r.IntN(20) == 0 {
			return [][]string{{pick(g.r, "FLUSHDB", "FLUSHALL"), pick(g.r, "SYNC", "ASYNC", "x")}}
		}
		return [][]string{{"SELECT", pick(g.r, "0", "0", "0", "7")}}
	case 12:
		return [][]string{{pick(g.r, "SINTER", "RENAME", "SDIFF", "MSETNX"), key(), key()}, {"RANDOMKEY"}}
	default:
		return [][]string{{"GET", key()}}
	}
}
