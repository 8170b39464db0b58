package loop_test

import (
	"slices"
	"strings"
)

// Values of arguments, by the names that the documents give them. Most are
// right; of numbers and identifiers some are not.

var values = []string{
	"a", "b", "c", "v1", "1", "2", "-7", "3.5", "", "{t}m", "a b", "\x00\xff\r\n", "hello", strings.Repeat("x", 70), strings.Repeat("0123456789", 50),
}

var scripts = []string{
	"return 1",
	"return KEYS[1]",
	"return {KEYS, ARGV}",
	"return redis.call('get', KEYS[1])",
	"return redis.call('set', KEYS[1], ARGV[1])",
	"return redis.call('hgetall', KEYS[1])",
	"redis.setresp(3) return redis.call('hgetall', KEYS[1])",
	"return redis.pcall('lpush', KEYS[1], 'x')",
	"return {1, 'two', {3, {4}}, false, true, 3.99}",
	"return {double=3.5}",
	"return {map={a=1}}",
	"return {set={a=true}}",
	"return {big_number='12345678901234567890'}",
	"return {verbatim_string={format='txt', string='some text'}}",
	"return redis.error_reply('MY error')",
	"return redis.status_reply('FINE')",
	"return redis.sha1hex('x')",
	"return nil",
	"return {err='no code'}",
	"error('boom')",
	"return redis.call('nosuch')",
	"#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])",
	"#!lua\nreturn ARGV[1]",
	"return (",
	"",
}

// The first is scripts[0]'s; the others are of no script.
var digests = []string{"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", strings.Repeat("f", 40), "x", ""}

var functions = []string{
	"#!lua name=lib1\nredis.register_function('fun1', function(keys, args) return {keys, args} end)",
	"#!lua name=lib2\nredis.register_function{function_name='fun2', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}",
	"#!lua name=lib1\nredis.register_function('fun3', function(keys) return redis.call('set', keys[1], 'f') end)",
	"#!lua name=lib3\nredis.register_function('fun1', function() return 1 end)",
	"#!lua\nreturn 1",
	"return 1",
	"#!js name=x\n1",
	"#!lua name=lib4\nsyntax error(",
}

var numbers = []string{"0", "1", "1", "2", "3", "10", "-1", "-2", "100", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "x", "1.5", ""}

// byName has the values of arguments that mean the same in all commands.
var byName = map[string][]string{
	"count":        {"0", "1", "2", "3", "10", "-1", "-3", "x"},
	"offset":       {"0", "1", "7", "100", "-1", "9223372036854775807", "x", "#1"},
	"timeout":      {"0.01", "0.02", "0.01", "-1", "x", "1e400"},
	"seconds":      {"100000", "100000", "0", "-1", "x", "9223372036854775807"},
	"milliseconds": {"1000000", "100000000", "100000000", "0", "-1", "x", "9223372036854775807"},
	"ttl":          {"0", "0", "100000000", "-1", "x"},
	"ms":           {"0", "1000", "x"},

	"unix-time-seconds":      {"33177117420", "33177117420", "1", "-1", "x"},
	"unix-time-milliseconds": {"33177117420000", "33177117420000", "1", "-1", "x"},

	"longitude": {"13.361389", "15.087269", "0", "-180", "181", "x"},
	"latitude":  {"38.115556", "37.502669", "0", "-85", "90", "x"},
	"radius":    {"100", "200", "0", "-1", "x"},
	"width":     {"100", "400", "-1", "x"},
	"height":    {"100", "400", "-1", "x"},

	"id":                   {"1-1", "2-1", "9-9", "10-1", "0", "5", "0-0", "$", ">", "5-*", "18446744073709551615-18446744073709551615", "x", "1-x"},
	"last-id":              {"9-9", "1-1", "0-0", "x"},
	"max_deleted_entry_id": {"1-1", "0-0", "x"},
	"threshold":            {"0", "1", "2", "1-1", "5-0", "x"},
	"min-idle-time":        {"0", "0", "3600000", "-1", "x"},
	"group":                {"g1", "g1", "g2", "nosuch"},
	"groupname":            {"g1", "g2", ""},
	"consumer":             {"c1", "c2", ""},
	"consumername":         {"c1", "c2"},

	"field":   {"f1", "f2", "f3", "a", "", "new", strings.Repeat("f", 70)},
	"cursor":  {"0", "0", "0", "5", "x", "-1", "99999999999999999999"},
	"type":    {"string", "list", "zset", "nosuch"},
	"pattern": {"*", "a*", "*t*", "[ab]", "?", `\*`, "{t}h*", "nothing"},

	"encoding":  {"u8", "i16", "u1", "i64", "u64", "x"},
	"bit":       {"0", "1", "2", "x"},
	"operation": {"AND", "or", "XOR", "NOT", "x"},

	"script":                {},
	"sha1":                  digests,
	"function":              {"fun1", "fun2", "fun3", "nosuch"},
	"function-code":         functions,
	"library-name":          {"lib1", "lib2", "nosuch"},
	"library-name-pattern":  {"*", "lib1", "x*"},
	"command":               {"get", "set", "client|setname", "nosuch"},
	"command-name":          {"get", "xadd", "client|setname", "object", "nosuch", "GET"},
	"category":              {"read", "string", "SORTEDSET", "nosuch"},
	"categoryname":          {"read", "dangerous", "scripting", "nosuch"},
	"module-name":           {"x"},
	"parameter":             {"save", "databases", "max*", "nosuch", "*"},
	"section":               {"server", "clients", "all", "everything", "nosuch", "KEYSPACE"},
	"username":              {"default", "nobody"},
	"password":              {"pw", ""},
	"clientname":            {"abc", "x y", ""},
	"connection-name":       {"abc", "x y", "", "z\n"},
	"protover":              {"2", "3", "4", "x"},
	"client-id":             {"999999", "0", "-1", "x"},
	"ip:port":               {"1.2.3.4:5", "x"},
	"yes/no":                {"yes", "x"},
	"channel":               {"{t}ch", "ch"},
	"shardchannel":          {"{t}ch"},
	"index":                 {"0", "0", "0", "1", "15", "16", "-1", "x"},
	"db":                    {"0", "1", "15", "16", "x"},
	"destination-db":        {"0", "1", "15", "16", "x"},
	"frequency":             {"0", "255", "256", "x"},
	"slot":                  {"0", "16383", "16384", "x"},
	"numreplicas":           {"0", "1", "-1", "x"},
	"version":               {"5", "6", "x"},
	"event":                 {"command", "x"},
	"bits":                  {"5", "128", "0", "x"},
	"increment":             {"1", "-1", "10", "9223372036854775807", "1.5", "x", "1e2"},
	"decrement":             {"1", "-1", "10", "-9223372036854775808", "x"},
	"score":                 {"1", "2", "-3.5", "inf", "-inf", "1e3", "nan", "x", "0.1"},
	"weight":                {"1", "2", "-1.5", "inf", "nan", "x"},
	"node-id":               {"x"},
	"host":                  {"127.0.0.1"},
	"subcommand":            {"x"},
	"entries_read":          {"0", "1", "-1", "x"},
	"entries_added":         {"9", "100", "-1", "x"},
	"len":                   {"0", "1", "3", "-1", "x"},
	"rank":                  {"1", "-1", "0", "2", "x"},
	"num-matches":           {"0", "1", "-1", "x"},
	"limit":                 {"0", "1", "-1", "x"},
	"retrycount":            {"0", "5", "x"},
	"replicationid":         {"?"},
	"serialized-value":      {},
	"idle":                  {"0", "x"},
	"message":               {"hello", "", "\x00\r\n"},
	"member":                nil,
	"ip":                    {"127.0.0.1"},
	"path":                  {"/nosuch"},
	"count-failure-reports": {"x"},
}

// value makes the value of an argument.
func (g *generator) value(a *argument) string {
	group, name := g.cmd.Docs.Group, strings.ToLower(a.Name)
	switch {
	case name == "numkeys":
		g.numkeys = 1 + g.r.IntN(3)
		if group == "scripting" {
			g.numkeys = g.r.IntN(3)
		}
		return string(rune('0' + g.numkeys))
	case name == "script":
		return pick(g.r, scripts...)
	case name == "serialized-value" && group == "scripting":
		return pick(g.r, g.library, g.library, "x", "")
	case name == "serialized-value":
		return pick(g.r, append(slices.Clone(g.payloads), "x", "")...)
	case name == "timeout" && g.cmd.Name == "wait":
		return pick(g.r, "1", "5", "-1", "x")
	case name == "milliseconds" && group == "stream":
		return pick(g.r, "1", "5", "-1", "x")
	case name == "pattern" && strings.HasPrefix(g.cmd.Name, "sort"):
		return pick(g.r, "{t}hash*->f1", "{t}str*", "{t}w_*", "#", "nosort")
	case strings.HasPrefix(name, "member") && group == "geo":
		return pick(g.r, "Palermo", "Catania", "nosuch")
	case slices.Contains([]string{"start", "end", "stop", "min", "max"}, name):
		return pick(g.r, g.bounds(group)...)
	case name == "index" && group == "list", name == "count" && g.cmd.Name == "lrem":
		return pick(g.r, "0", "1", "-1", "-2", "100", "x")
	}
	if list := byName[name]; len(list) > 0 {
		return pick(g.r, list...)
	}
	switch a.Type {
	case "integer":
		return pick(g.r, numbers...)
	case "double":
		return pick(g.r, byName["score"]...)
	}
	return pick(g.r, values...)
}

// bounds are the ends of ranges.
func (g *generator) bounds(group string) []string {
	switch {
	case group == "stream":
		return []string{"-", "+", "1-1", "5", "(1-1", "x", "0"}
	case strings.Contains(g.cmd.Name, "lex"):
		return []string{"-", "+", "[a", "(b", "[d", "x"}
	case strings.Contains(g.cmd.Name, "score"), g.cmd.Name == "zcount":
		return []string{"-inf", "+inf", "1", "(1", "2", "3.5", "x"}
	case group == "sorted-set":
		return []string{"0", "0", "-1", "1", "2", "-inf", "+inf", "(1", "[a", "-", "+", "x"}
	}
	return []string{"0", "0", "-1", "1", "2", "-3", "100", "x", "9223372036854775807"}
}
