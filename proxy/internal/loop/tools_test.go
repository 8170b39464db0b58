package loop_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/proxy/internal/session"
)

// tool runs a program of Redis against the proxy and returns what it printed.
func (w *world) tool(input string, args ...string) string {
	w.t.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		w.t.Skipf("%s is not installed", args[0])
	}
	cmd := exec.CommandContext(w.t.Context(), path, append([]string{"-h", w.host, "-p", w.port}, args[1:]...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (w *world) expect(out string, patterns ...string) {
	w.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			w.t.Errorf("no %s in:\n%s", p, out)
		}
	}
}

func TestRedisCLI(t *testing.T) {
	w := startWorld(t, session.Config{})
	c := client(t, w.addr, &redis.Options{})
	ctx := t.Context()
	const n = 2000
	fill(t, c, n)
	c.RPush(ctx, "list", 1, 2, 3)
	c.HSet(ctx, "hash", "a", 1, "b", 2)
	c.SAdd(ctx, "set", 1)
	c.ZAdd(ctx, "zset", redis.Z{Score: 1, Member: "m"})
	c.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"f", "v"}})

	// Piped commands make it ask for COMMAND DOCS first.
	w.expect(w.tool("set x 1\nget x\nmget x key:1 key:2\nnosuch a\n", "redis-cli"),
		`(?m)^OK\n1\n1\n1\n2\nERR unknown command 'nosuch', with args beginning with: 'a' `)
	w.expect(w.tool("hgetall hash\nconfig get save\nget nothing\n", "redis-cli", "-3", "--no-raw"), `1# "a" => "1"`, `1# "save" => ""`, `\(nil\)`)
	w.expect(w.tool("", "redis-cli", "-n", "3", "set", "y", "1"), `OK`)
	w.expect(w.tool("", "redis-cli", "-c", "get", "x"), `^1\n`)
	w.expect(w.tool("", "redis-cli", "info", "stats"), `instantaneous_ops_per_sec:\d+`)
	if lines := strings.Count(w.tool("", "redis-cli", "--scan"), "\n"); lines != n+6 {
		t.Errorf("--scan printed %d keys, %d are there", lines, n+6)
	}
	if lines := strings.Count(w.tool("", "redis-cli", "--scan", "--pattern", "key:1*"), "\n"); lines != 1111 {
		t.Errorf("--scan --pattern printed %d keys", lines)
	}
	w.expect(w.tool("", "redis-cli", "--bigkeys"), `Sampled 2006 keys in the keyspace`, `Biggest\s+list found '"?list"?' has 3 items`, `1 streams with 1 entries`)
	w.expect(w.tool("", "redis-cli", "--memkeys"), `Sampled 2006 keys in the keyspace`, `Biggest\s+hash found`)
	w.expect(w.tool("", "redis-cli", "--latency", "-i", "0.3"), `^\d+ [\d.]+ [\d.]+ \d+`)

	var mass bytes.Buffer
	for i := range 5000 {
		if i%2 == 0 {
			fmt.Fprintf(&mass, "SET mass:%d %d\r\n", i, i)
		} else {
			mass.Write(encode("SET", fmt.Sprint("mass:", i), fmt.Sprint(i)))
		}
	}
	w.expect(w.tool(mass.String(), "redis-cli", "--pipe"), `errors: 0, replies: 5000`)
	if v, err := c.DBSize(ctx).Result(); err != nil || v != n+6+5000 {
		t.Errorf("DBSIZE %d, %v", v, err)
	}
}

// TestRedisCLIStat reads some lines of redis-cli --stat, which runs until killed.
func TestRedisCLIStat(t *testing.T) {
	w := startWorld(t, session.Config{})
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed")
	}
	fill(t, client(t, w.addr, &redis.Options{}), 321)
	cmd := exec.CommandContext(t.Context(), path, "-h", w.host, "-p", w.port, "--stat", "-i", "0.01")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	watchdog := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[0] != "321" {
			continue
		}
		// keys, memory, clients, blocked, requests (+n), connections
		if requests, err := strconv.Atoi(f[4]); err != nil || requests < 321 || !strings.HasSuffix(f[1], "M") {
			t.Errorf("printed %q", lines.Text())
		}
		return
	}
	t.Error("no line with the number of keys")
}

func TestRedisBenchmark(t *testing.T) {
	w := startWorld(t, session.Config{})
	for _, args := range [][]string{
		{"redis-benchmark", "-q", "-n", "3000"},
		{"redis-benchmark", "-q", "-n", "3000", "-P", "16", "-r", "100000", "-t", "set,get,mset,lpush,zadd"},
		{"redis-benchmark", "-q", "-n", "1000", "-3"},
	} {
		out := w.tool("", args...)
		w.expect(out, `SET: [\d.]+ requests per second`, `MSET \(10 keys\): [\d.]+ requests per second`)
		if regexp.MustCompile(`(?i)error|warn`).MatchString(out) {
			t.Errorf("%v:\n%s", args, out)
		}
	}
}

// TestRedisPy runs the system's redis-py, where it is installed.
func TestRedisPy(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil || exec.Command(python, "-c", "import redis").Run() != nil {
		t.Skip("redis-py (Debian: python3-redis) is not installed")
	}
	open := startWorld(t, session.Config{})
	locked := startWorld(t, session.Config{Password: "pw"})
	t.Log(run(t, "testdata/clients", python, "check.py", open.port, locked.port, "pw"))
}

// TestHAProxy has HAProxy's check for Redis decide whether the proxy is up, and
// sends commands through it.
func TestHAProxy(t *testing.T) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/haproxy"); err != nil {
			t.Skip("haproxy is not installed")
		}
	}
	w := startWorld(t, session.Config{})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := front.Addr().String()
	front.Close()
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(config, []byte(`global
  stats socket `+config+`.sock mode 600 level admin
defaults
  mode tcp
  timeout connect 2s
  timeout client 20s
  timeout server 20s
listen redis
  bind `+addr+`
  option redis-check
  server proxy `+w.addr+` check inter 50 rise 1 fall 1 init-addr none
`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-db", "-f", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "HAProxy's check passes", func() bool {
		s, err := net.Dial("unix", config+".sock")
		if err != nil {
			return false
		}
		defer s.Close()
		_, _ = s.Write([]byte("show stat\n"))
		text, _ := io.ReadAll(s)
		return regexp.MustCompile(`(?m)^redis,proxy,.*,UP,.*,L7OK,`).Match(text)
	})
	exercise(t, client(t, addr, &redis.Options{}))
}
