package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"

	"shardis/coordinator/localredis"
	"shardis/proxy/internal/session"
)

// What clients and tools send must be answered as one Redis answers, or by an
// error that says why.

// expectHello is the reply to HELLO in that protocol, as a pattern.
func expectHello(proto int) string {
	header := "%7"
	if proto == 2 {
		header = `\*14`
	}
	return header + `\r\n\$6\r\nserver\r\n\$5\r\nredis\r\n\$7\r\nversion\r\n\$\d+\r\n7\.[\d.]+\r\n\$5\r\nproto\r\n:` + fmt.Sprint(proto) +
		`\r\n\$2\r\nid\r\n:\d+\r\n\$4\r\nmode\r\n\$10\r\nstandalone\r\n\$4\r\nrole\r\n\$6\r\nmaster\r\n\$7\r\nmodules\r\n\*0\r\n`
}

const (
	replyOK         = `\+OK\r\n`
	replyRefused    = `-ERR command 'client maint_notifications' is not allowed through the proxy\r\n`
	replyNoTracking = `-ERR command 'client tracking' is not allowed through the proxy\r\n`
	replyNoCluster  = `-ERR This instance has cluster support disabled\r\n`
	replyInfo       = `[$=]\d+\r\n(?s:.*)\r\n`
)

// exchange is one command of a handshake and the pattern of its reply.
type exchange struct{ command, reply string }

func TestHandshakes(t *testing.T) {
	open := startWorld(t, session.Config{})
	locked := startWorld(t, session.Config{Password: "pw"})
	for _, test := range []struct {
		name      string
		world     *world
		exchanges []exchange
	}{
		{"redis-py", open, []exchange{
			{"HELLO 3", expectHello(3)},
			{"CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip", replyRefused},
			{"CLIENT SETINFO LIB-NAME redis-py", replyOK},
			{"CLIENT SETINFO LIB-VER 8.0.0", replyOK},
		}},
		{"redis-py with a login", locked, []exchange{
			{"HELLO 3 AUTH default pw", expectHello(3)},
			{"CLIENT SETNAME worker", replyOK},
			{"SELECT 3", replyOK},
			{"CLIENT GETNAME", `\$6\r\nworker\r\n`},
		}},
		{"node-redis", open, []exchange{
			{"HELLO 3 SETNAME x", expectHello(3)},
			{"CLIENT SETINFO LIB-VER 6.3.1", replyOK},
			{"CLIENT SETINFO LIB-NAME node-redis", replyOK},
			{"CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip", replyRefused},
			{"SELECT 2", replyOK},
		}},
		{"ioredis", open, []exchange{
			{"hello 3", expectHello(3)},
			{"client SETINFO LIB-VER 6.0.0", replyOK},
			{"client SETINFO LIB-NAME ioredis", replyOK},
			{"info", `=\d+\r\ntxt:(?s:.*)loading:0\r\n(?s:.*)\r\n`},
		}},
		{"ioredis with a password where none is set", open, []exchange{
			{"auth pw", `-ERR AUTH <password> called without any password configured for the default user\. Are you sure your configuration is correct\?\r\n`},
			{"select 0", replyOK},
		}},
		{"go-redis", locked, []exchange{
			{"hello 3 auth default pw setname app", expectHello(3)},
			{"client maint_notifications on moving-endpoint-type internal-ip", replyRefused},
			{"client setinfo LIB-NAME go-redis(,go1.26)", replyOK},
			{"client setinfo LIB-VER 9.23.0", replyOK},
			{"select 1", replyOK},
		}},
		{"rueidis with its cache", open, []exchange{
			{"HELLO 3", expectHello(3)},
			{"CLIENT TRACKING ON OPTIN", replyNoTracking},
			{"CLIENT SETINFO LIB-NAME rueidis", replyOK},
		}},
		{"Lettuce", open, []exchange{
			{"HELLO 3", expectHello(3)},
			{"SELECT 1", replyOK},
			{"CLIENT SETNAME l", replyOK},
			{"PING", `\+PONG\r\n`},
		}},
		{"Jedis", locked, []exchange{
			{"PING", `-NOAUTH Authentication required\.\r\n`},
			{"HELLO 3", `-NOAUTH HELLO must be called with the client already authenticated(?s:.*)`},
			{"AUTH nope", `-WRONGPASS invalid username-password pair or user is disabled\.\r\n`},
			{"AUTH other pw", `-WRONGPASS invalid username-password pair or user is disabled\.\r\n`},
			{"AUTH pw", replyOK},
			{"HELLO 2", expectHello(2)},
			{"CLIENT SETNAME j", replyOK},
		}},
		{"StackExchange.Redis", open, []exchange{
			{"CLIENT SETNAME s", replyOK},
			{"CONFIG GET timeout", `\*2\r\n\$7\r\ntimeout\r\n\$1\r\n0\r\n`},
			{"CONFIG GET replica-read-only", `\*2\r\n\$17\r\nreplica-read-only\r\n\$3\r\nyes\r\n`},
			{"CONFIG GET databases", `\*2\r\n\$9\r\ndatabases\r\n\$2\r\n16\r\n`},
			{"SENTINEL MASTERS", `-ERR unknown command 'SENTINEL', with args beginning with: 'MASTERS' \r\n`},
			{"INFO replication", `\$\d+\r\n# Replication\r\nrole:master\r\n(?s:.*)`},
			{"INFO server", `\$\d+\r\n# Server\r\nredis_version:7\.(?s:.*)`},
			{"CLUSTER NODES", replyNoCluster},
			{"ECHO tracer", `\$6\r\ntracer\r\n`},
		}},
		{"redis-rs", locked, []exchange{
			{"AUTH", `-ERR wrong number of arguments for 'auth' command\r\n`},
			{"AUTH pw", replyOK},
			{"CLIENT SETINFO LIB-NAME redis-rs", replyOK},
			{"SELECT 99", `-ERR DB index is out of range\r\n`},
		}},
		{"phpredis", locked, []exchange{{"AUTH pw", replyOK}, {"SELECT 0", replyOK}, {"PING", `\+PONG\r\n`}}},
		{"an unknown protocol", open, []exchange{
			{"HELLO 4", `-NOPROTO unsupported protocol version\r\n`},
			{"HELLO x", `-ERR Protocol version is not an integer or out of range\r\n`},
			{"HELLO", expectHello(2)},
		}},
		{"RedisInsight", open, []exchange{
			{"INFO", replyInfo},
			{"CONFIG GET databases", `\*2\r\n(?s:.*)`},
			{"DBSIZE", `:\d+\r\n`},
			{"MODULE LIST", `\*0\r\n`},
			{"CLIENT LIST", `\$\d+\r\nid=(?s:.*)`},
			{"SCAN 0", `\*2\r\n\$\d+\r\n\d+\r\n\*\d+\r\n(?s:.*)`},
			{"SLOWLOG GET", `\*0\r\n`},
			{"MONITOR", `-ERR command 'monitor' is not allowed through the proxy\r\n`},
		}},
		{"redis_exporter", open, []exchange{
			{"CONFIG GET *", `\*\d+\r\n(?s:.*)`},
			{"INFO ALL", `\$\d+\r\n(?s:.*)cluster_enabled:0\r\n(?s:.*)`},
			{"LATENCY LATEST", `\*0\r\n`},
			{"SLOWLOG LEN", `:0\r\n`},
		}},
		{"redis-cli newer", open, []exchange{{"READONLY", replyNoCluster}, {"CLIENT CAPA redirect", replyOK}, {"CLUSTER KEYSLOT foo", `:12182\r\n`}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Arrays, then inline, all in one packet.
			for _, inline := range []bool{false, true} {
				var packet []byte
				for _, x := range test.exchanges {
					if inline {
						packet = append(packet, x.command+"\r\n"...)
					} else {
						packet = append(packet, encode(strings.Fields(x.command)...)...)
					}
				}
				c := dial(t, test.world.addr)
				c.send(packet)
				for _, x := range test.exchanges {
					if got := c.reply(); !regexp.MustCompile(`^` + x.reply + `$`).Match(got) {
						t.Errorf("%s:\n%q\nwant\n%s", x.command, got, x.reply)
					}
				}
			}
		})
	}
}

// TestSameAsRedis compares replies with those of a real server, byte for byte,
// in both protocols.
func TestSameAsRedis(t *testing.T) {
	w := startWorld(t, session.Config{})
	single := localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
	script := strings.Split(strings.TrimSpace(sameAsRedis), "\n")
	for proto := 2; proto <= 3; proto++ {
		proxy, server := dial(t, w.addr), dial(t, single.Addr)
		proxy.do("HELLO", fmt.Sprint(proto))
		server.do("HELLO", fmt.Sprint(proto))
		for _, line := range script {
			args := words(line)
			if len(args) == 0 {
				continue
			}
			if got, want := proxy.do(args...), server.do(args...); !bytes.Equal(got, want) {
				t.Errorf("RESP%d %s:\n%q\nwant\n%q", proto, line, got, want)
			}
		}
	}
}

// words splits a line at blanks; "_" stands for an empty argument.
func words(line string) []string {
	args := strings.Fields(line)
	for i, a := range args {
		if a == "_" {
			args[i] = ""
		}
	}
	return args
}

const sameAsRedis = `
FLUSHALL
PING
PING hello
PING a b
ECHO x
ECHO
nosuch a b
client nosuch
get
SET a 1
GET a
GET nothing
INCR a
INCRBYFLOAT a 1.5
SET a x EX 10 KEEPTTL
MSET a 1 b 2 c 3 d 4 e 5
MSET a 1 b
MSET
MGET a b nothing d e a
MGET
SETNX a 2
EXISTS a b nothing a
TOUCH a b
HSET h f v g w
HGET h f
SMEMBERS h
ZADD z 1 a 2.5 b
ZSCORE z b
ZADD z x a
ZRANGE z 0 -1 WITHSCORES
RPUSH l a b c
LRANGE l 0 -1
LPOP l 2
TYPE l
TYPE nothing
OBJECT ENCODING a
OBJECT ENCODING nothing
OBJECT NOSUCH a
DBSIZE
DEL a b nothing
UNLINK c d e
DBSIZE
KEYS z*
KEYS nothing*
RANDOMKEY x
SCAN x
SCAN 0 foo
SCAN 0 COUNT 0
SCAN 0 COUNT x
SCAN 0 MATCH
EVAL return{1,2,'a'} 0
EVAL return(KEYS[1]) 1 k
EVAL return 1
EVAL return x
EVAL return -1
EVALSHA ffffffffffffffffffffffffffffffffffffffff 0
EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 k
SCRIPT LOAD return(1)
EVALSHA 7b7b29c7b0d4e9d2ecec4b3b2e3cd5c0ac4d0e9a 0
SCRIPT EXISTS 7f923f79fe76194c868d7e1d0820de36700eb649 ffffffffffffffffffffffffffffffffffffffff
SCRIPT EXISTS
SCRIPT FLUSH
SCRIPT FLUSH foo
SCRIPT KILL
FUNCTION LIST
FUNCTION DELETE nosuch
FUNCTION FLUSH
FUNCTION KILL
FCALL nosuch 0
SELECT 1
SET a 1
DBSIZE
SELECT 0
GET a
SELECT 16
SELECT x
MOVE z 1
SELECT 1
ZCARD z
FLUSHDB
SELECT 0
FLUSHALL foo
FLUSHALL ASYNC
SORT l
SORT l LIMIT 0
CLIENT SETNAME x y
CLIENT SETNAME abc
CLIENT GETNAME
CLIENT SETNAME _
CLIENT GETNAME
CLIENT NO-EVICT on
CLIENT NO-EVICT x
CLIENT LIST TYPE x
CLIENT LIST TYPE master
CLIENT LIST foo
CLIENT LIST ID x
CLIENT LIST ID 999999
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID 999999
CLIENT KILL ID 0
CLIENT KILL ID x
CLIENT KILL TYPE x
CLIENT KILL TYPE pubsub
CLIENT KILL USER nobody
CLIENT KILL SKIPME x ID 4
CLIENT KILL foo bar
CLIENT KILL foo
CLIENT KILL ID 1 TYPE
CLIENT UNBLOCK 999999
CLIENT UNBLOCK x
CLIENT UNBLOCK 1 foo
CLIENT GETREDIR
CLIENT TRACKINGINFO
CONFIG GET save
CONFIG GET appendonly
CONFIG GET databases
CONFIG GET timeout
CONFIG GET replica-read-only
CONFIG GET slave-read-only
CONFIG GET nosuch
CONFIG GET
CLUSTER INFO
CLUSTER NODES
CLUSTER SLOTS
CLUSTER foo
CLUSTER MYID
ASKING
READONLY
READWRITE
MODULE LIST
ACL WHOAMI
ACL USERS
ACL LIST
ACL CAT
ACL CAT foo
SLOWLOG GET x
SLOWLOG GET -1
SLOWLOG GET -2
SLOWLOG LEN
SLOWLOG RESET
LATENCY LATEST
LATENCY HISTORY x
LATENCY RESET
COMMAND INFO get set nosuch eval
COMMAND INFO client|setname
COMMAND DOCS get
COMMAND GETKEYS MSET a 1 b 2
COMMAND GETKEYS EVAL s 2 a b c
COMMAND GETKEYS PING
COMMAND GETKEYS nosuch a
COMMAND GETKEYS GET
COMMAND GETKEYSANDFLAGS SET a b
COMMAND LIST FILTERBY MODULE x
COMMAND LIST FILTERBY foo x
COMMAND LIST foo
COMMAND COUNT a
MEMORY USAGE nothing
MEMORY NOSUCH
AUTH
AUTH a b c
HELLO 9
HELLO x
HELLO 3 AUTH
HELLO 3 foo
RESET
PING
`

// TestCrossSlot has the replies that one Redis would not give.
func TestCrossSlot(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := dial(t, w.addr)
	crossSlot := "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	for line, want := range map[string]string{
		"MSETNX a 1 b 2":             crossSlot,
		"SINTER a b":                 crossSlot,
		"RENAME a b":                 crossSlot,
		"EVAL x 2 a b":               crossSlot,
		"ZUNIONSTORE a 1 b":          crossSlot,
		"SORT a STORE b":             crossSlot,
		"SORT a BY w_*":              "-ERR BY and GET patterns of SORT must contain the hash tag of the sorted key\r\n",
		"SORT {a} BY {a}w_* GET #":   "*0\r\n",
		"SINTERSTORE {a}1 {a}2 {a}3": ":0\r\n",
		"SHUTDOWN":                   "-ERR command 'shutdown' is not allowed through the proxy\r\n",
		"CONFIG SET maxmemory 1":     "-ERR command 'config set' is not allowed through the proxy\r\n",
		"CLIENT PAUSE 1":             "-ERR command 'client pause' is not allowed through the proxy\r\n",
		"ACL SETUSER x":              "-ERR command 'acl setuser' is not allowed through the proxy; users of clients are kept in etcd\r\n",
		"SCRIPT DEBUG yes":           "-ERR command 'script debug' is not allowed through the proxy\r\n",
		"MIGRATE h 1 a 0 1":          "-ERR command 'migrate' is not allowed through the proxy\r\n",
		"COMMAND INFO shutdown":      "*1\r\n$-1\r\n",
		"ROLE":                       "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
	} {
		if got := string(c.do(words(line)...)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func fill(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	pipe := c.Pipeline()
	for i := range n {
		pipe.Set(t.Context(), fmt.Sprint("key:", i), i, 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCommandsOfAllGroups(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := client(t, w.addr, &redis.Options{})
	ctx := t.Context()
	const n = 3000
	fill(t, c, n)
	// Hidden copies: keys on groups that do not own their slots.
	for i := range w.nodes {
		if err := w.node(i).Set(ctx, "key:1", "hidden", 0).Err(); err != nil && i != 0 {
			t.Fatal(err)
		}
	}
	for i := range w.nodes {
		pipe := w.node(i).Pipeline()
		for k := range 50 {
			pipe.SetNX(ctx, fmt.Sprint("key:", k), "hidden", 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := c.Keys(ctx, "key:*").Result()
	if err != nil || len(keys) != n || len(unique(keys)) != n {
		t.Errorf("KEYS: %d, %v", len(keys), err)
	}
	for _, count := range []int64{10, 1000} {
		var all []string
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			var page []string
			if page, cursor, err = c.Scan(ctx, cursor, "key:*", count).Result(); err != nil {
				t.Fatal(err)
			}
			all = append(all, page...)
		}
		if len(unique(all)) != n {
			t.Errorf("SCAN COUNT %d: %d keys, %d different", count, len(all), len(unique(all)))
		}
	}
	if page, _, err := c.ScanType(ctx, 0, "", 10000, "list").Result(); err != nil || len(page) != 0 {
		t.Errorf("SCAN TYPE list: %v, %v", page, err)
	}
	for range 50 {
		if key, err := c.RandomKey(ctx).Result(); err != nil || !strings.HasPrefix(key, "key:") {
			t.Errorf("RANDOMKEY: %q, %v", key, err)
		}
	}
	sha, err := c.ScriptLoad(ctx, "return KEYS[1]").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"a", "b", "c", "d"} { // slots of all groups
		if v, err := c.EvalSha(ctx, sha, []string{k}).Result(); err != nil || v != k {
			t.Errorf("EVALSHA of %s: %v, %v", k, v, err)
		}
	}
	if v, err := c.ScriptExists(ctx, sha, strings.Repeat("0", 40)).Result(); err != nil || fmt.Sprint(v) != "[true false]" {
		t.Errorf("SCRIPT EXISTS: %v, %v", v, err)
	}
	if v, err := w.node(3).ScriptExists(ctx, sha).Result(); err != nil || !v[0] {
		t.Errorf("the spare group has no script: %v", err)
	}
	code := "#!lua name=lib\nredis.register_function('f', function(keys) return keys[1] end)"
	if v, err := c.FunctionLoad(ctx, code).Result(); err != nil || v != "lib" {
		t.Errorf("FUNCTION LOAD: %v, %v", v, err)
	}
	for _, k := range []string{"a", "b", "c"} {
		if v, err := c.FCall(ctx, "f", []string{k}).Result(); err != nil || v != k {
			t.Errorf("FCALL of %s: %v, %v", k, v, err)
		}
	}
	if err := c.FunctionLoad(ctx, code).Err(); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("FUNCTION LOAD again: %v", err)
	}
	if v, err := c.FunctionList(ctx, redis.FunctionListQuery{}).Result(); err != nil || len(v) != 1 {
		t.Errorf("FUNCTION LIST: %v, %v", v, err)
	}
	if err := c.FunctionDelete(ctx, "lib").Err(); err != nil {
		t.Error(err)
	}
	if err := c.FlushAll(ctx).Err(); err != nil {
		t.Error(err)
	}
	if v, err := c.DBSize(ctx).Result(); err != nil || v != 0 {
		t.Errorf("DBSIZE after FLUSHALL: %d, %v", v, err)
	}
	if err := c.RandomKey(ctx).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("RANDOMKEY of nothing: %v", err)
	}
}

func unique(keys []string) map[string]bool {
	m := map[string]bool{}
	for _, k := range keys {
		m[k] = true
	}
	return m
}

// infoField returns a field of INFO.
func infoField(text, name string) string {
	for line := range strings.SplitSeq(text, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
}

func TestInfo(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := client(t, w.addr, &redis.Options{PoolSize: 1})
	fill(t, c, 100)
	text, err := c.Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master", "cluster_enabled": "0", "loading": "0",
		"connected_clients": fmt.Sprint(strings.Count(c.ClientList(t.Context()).Val(), "\n")), "tcp_port": w.port, "db0": "keys=100,expires=0,avg_ttl=0", "group_g4": "master=" + w.nodes[3].Addr + ",slots=0",
	} {
		if got := infoField(text, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := infoField(text, "used_memory"); len(got) < 6 {
		t.Errorf("used_memory is %q", got)
	}
	// Within a second the masters are not asked again.
	before := infoField(w.node(0).Info(t.Context(), "stats").Val(), "total_commands_processed")
	for range 20 {
		c.Info(t.Context())
	}
	after := infoField(w.node(0).Info(t.Context(), "stats").Val(), "total_commands_processed")
	var b, a int
	fmt.Sscan(before, &b)
	fmt.Sscan(after, &a)
	if a-b > 12 {
		t.Errorf("%d commands reached a master for 20 INFO", a-b)
	}
	// A dead group takes nothing away but its share.
	w.nodes[2].Kill()
	began := time.Now()
	for time.Since(began) < 10*time.Second {
		text, err = c.Info(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if db := infoField(text, "db0"); db != "keys=100,expires=0,avg_ttl=0" && db != "" {
			return
		}
	}
	t.Errorf("still sums with the dead group: %s", infoField(text, "db0"))
}

func TestClientListAndKill(t *testing.T) {
	w := startWorld(t, session.Config{})
	var all []*raw
	for i := range 8 {
		c := dial(t, w.addr)
		c.do("CLIENT", "SETNAME", fmt.Sprint("c", i))
		all = append(all, c)
	}
	list := string(all[0].do("CLIENT", "LIST"))
	for i := range all {
		if !strings.Contains(list, fmt.Sprintf(" name=c%d ", i)) {
			t.Errorf("c%d is not in %s", i, list)
		}
	}
	id := strings.TrimSpace(string(all[5].do("CLIENT", "ID"))[1:])
	if got := string(all[0].do("CLIENT", "LIST", "ID", id)); !strings.Contains(got, "name=c5 ") || strings.Count(got, "\n") > 3 {
		t.Errorf("CLIENT LIST ID: %q", got)
	}
	if got := string(all[0].do("CLIENT", "KILL", "ID", id)); got != ":1\r\n" {
		t.Errorf("CLIENT KILL ID: %q", got)
	}
	_ = all[5].c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := all[5].r.ReadByte(); err == nil {
		t.Error("the killed client is served")
	}
	if got := string(all[0].do("CLIENT", "KILL", all[6].c.LocalAddr().String())); got != "+OK\r\n" {
		t.Errorf("CLIENT KILL addr: %q", got)
	}
	if got := string(all[0].do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")); got != ":6\r\n" {
		t.Errorf("CLIENT KILL of all: %q", got)
	}
	if _, err := all[0].r.ReadByte(); err == nil {
		t.Error("the client that killed itself is served")
	}
}

func TestGoRedis(t *testing.T) {
	w := startWorld(t, session.Config{Password: "pw"})
	for proto := 2; proto <= 3; proto++ {
		c := client(t, w.addr, &redis.Options{Protocol: proto, Password: "pw", DB: 2, ClientName: "app"})
		exercise(t, c)
	}
	auto := client(t, w.addr, &redis.Options{Password: "pw", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeAuto}})
	exercise(t, auto)
}

func exercise(t *testing.T, c *redis.Client) {
	t.Helper()
	ctx := t.Context()
	fill(t, c, 500)
	values, err := c.MGet(ctx, "key:1", "key:2", "nothing", "key:499").Result()
	if err != nil || fmt.Sprint(values) != "[1 2 <nil> 499]" {
		t.Errorf("MGET: %v, %v", values, err)
	}
	if n, err := c.Del(ctx, "key:1", "key:2", "key:3", "nothing").Result(); err != nil || n != 3 {
		t.Errorf("DEL: %d, %v", n, err)
	}
	if err := c.HSet(ctx, "hash", "a", 1, "b", 2).Err(); err != nil {
		t.Error(err)
	}
	if m, err := c.HGetAll(ctx, "hash").Result(); err != nil || len(m) != 2 {
		t.Errorf("HGETALL: %v, %v", m, err)
	}
	count := 0
	for it := c.Scan(ctx, 0, "key:*", 100).Iterator(); it.Next(ctx); {
		count++
	}
	if count != 497 {
		t.Errorf("SCAN found %d", count)
	}
	if v, err := redis.NewScript("return ARGV[1]").Run(ctx, c, []string{"k"}, "v").Result(); err != nil || v != "v" {
		t.Errorf("script: %v, %v", v, err)
	}
	if err := c.FlushDB(ctx).Err(); err != nil {
		t.Error(err)
	}
}

func TestRueidis(t *testing.T) {
	w := startWorld(t, session.Config{})
	_, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.addr}, ForceSingleClient: true})
	if err == nil {
		t.Error("connected with a cache that nobody would invalidate")
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	var commands rueidis.Commands
	for i := range 500 {
		commands = append(commands, c.B().Set().Key(fmt.Sprint("key:", i)).Value(fmt.Sprint(i)).Build())
	}
	for _, r := range c.DoMulti(ctx, commands...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
	values, err := c.Do(ctx, c.B().Mget().Key("key:7", "key:300", "nothing").Build()).ToArray()
	if err != nil || len(values) != 3 {
		t.Fatalf("MGET: %v, %v", values, err)
	}
	if v, _ := values[1].ToString(); v != "300" || !values[2].IsNil() {
		t.Errorf("MGET: %v", values)
	}
}

// TestNodeClients runs ioredis and node-redis, where node is installed.
func TestNodeClients(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: ioredis and node-redis are not tested")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed: ioredis and node-redis are not tested")
	}
	dir, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err != nil {
		run(t, dir, npm, "ci", "--no-audit", "--no-fund")
	}
	w := startWorld(t, session.Config{})
	locked := startWorld(t, session.Config{Password: "pw"})
	t.Log(run(t, dir, node, "check.mjs", w.port, locked.port, "pw"))
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
	}
	return string(out)
}
