package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
)

// run runs the binary and gives its exit code and what it said.
func run(t *testing.T, args ...string) (int, string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("shardis %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("shardis %s did not end: %s", strings.Join(args, " "), out)
	}
	if err == nil {
		return 0, string(out)
	}
	return exit.ExitCode(), string(out)
}

// TestE2EBadStarts: a start that can not work says what, why and what to do.
func TestE2EBadStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("end-to-end tests are left out with -short")
	}
	port := freePorts(t)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free := fmt.Sprint(port + 1)
	unknown := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(unknown, []byte("cluster: c\nlisten: [127.0.0.1:0]\nmax_cleints: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state") // made by who uses it, with the right mode
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"unknown key in the file", []string{"proxy", "--config", unknown}, []string{"max_cleints", "--print-config"}},
		{"unknown key on the command line", []string{"coordinator", "--cluster", "c", "--set", "purgedelay=1s"}, []string{"purgedelay"}},
		{"value of the wrong kind", []string{"coordinator", "--cluster", "c", "--set", "purge_delay=soon"}, []string{"purge_delay"}},
		{"no cluster", []string{"proxy", "--state-dir", dir}, []string{"cluster", "shardis init"}},
		{"open proxy beyond loopback", []string{"proxy", "--cluster", "c", "--listen", "0.0.0.0:6390", "--state-dir", dir}, []string{"password_file", "allow_open"}},
		{"etcd unreachable, proxy", []string{"proxy", "--cluster", "c", "--etcd", "127.0.0.1:" + free, "--listen", "127.0.0.1:0", "--state-dir", dir}, []string{"etcd", "127.0.0.1:" + free}},
		{"etcd unreachable, init", []string{"init", "--cluster", "c", "--etcd", "127.0.0.1:" + free}, []string{"etcd", "127.0.0.1:" + free, "running"}},
		{"etcd's port in use", []string{"etcd", "--data-dir", dir, "--listen", fmt.Sprintf("127.0.0.1:%d", port)}, []string{fmt.Sprint(port), "in use"}},
		{"demo's port in use", []string{"demo", "--port", fmt.Sprint(port)}, []string{fmt.Sprint(port), "--port"}},
		{"unknown scheme", []string{"demo", "--scheme", "md5"}, []string{"md5", "crc16/16384", "crc32/1024"}},
		{"no dashboard", []string{"status", "--server", "127.0.0.1:" + free}, []string{"no dashboard", "--server"}},
		{"unknown verb", []string{"explode"}, []string{"explode"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, said := run(t, c.args...)
			if code == 0 {
				t.Errorf("exit code 0, said %s", said)
			}
			for _, word := range c.want {
				if !strings.Contains(said, word) {
					t.Errorf("said %q, without %q", said, word)
				}
			}
			if strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") {
				t.Errorf("said %s", said)
			}
		})
	}
	t.Run("no redis-server", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		code, said := run(t, "demo", "--port", free)
		if code == 0 || !strings.Contains(said, "apt-get install redis-server") {
			t.Errorf("exit code %d, said %s", code, said)
		}
	})
}

// TestE2ERefusals: a request that can not work gets a problem document with
// the field and the reason, and nothing changes.
func TestE2ERefusals(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--groups", "2", "--spares", "0", "--replicas", "0", "--proxies", "1")
	node := func(extra ...string) *localredis.Process {
		return localredis.StartTest(t, localredis.Config{Password: "secret", Extra: extra})
	}
	empty, full := node(), node()
	if err := d.node(demoNode{Addr: full.Addr, Password: "secret"}, 3).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	used := d.Nodes[0].Addr
	group := func(id, password string, addrs ...string) map[string]any {
		nodes := make([]map[string]string, len(addrs))
		for i, addr := range addrs {
			nodes[i] = map[string]string{"addr": addr}
		}
		return map[string]any{"id": id, "nodes": nodes, "password": password}
	}
	var before struct {
		Epoch uint64 `json:"epoch"`
	}
	d.call("GET", "/cluster", nil, &before)
	for _, c := range []struct {
		name, method, path string
		body               any
		status             int
		want               []string
	}{
		{"wrong password", "POST", "/groups", group("g9", "wrong", empty.Addr), 422, []string{"/password", empty.Addr, "login"}},
		{"node not empty", "POST", "/groups", group("g9", "secret", full.Addr), 422, []string{"/nodes/0", "empty"}},
		{"node in another group", "POST", "/groups", group("g9", d.Nodes[0].Password, used), 422, []string{"/nodes/0", "g1"}},
		{"node unreachable", "POST", "/groups", group("g9", "secret", "127.0.0.1:1"), 422, []string{"/nodes/0", "127.0.0.1:1"}},
		{"no nodes", "POST", "/groups", group("g9", "secret"), 422, []string{"nodes"}},
		{"same node twice", "POST", "/groups", group("g9", "secret", empty.Addr, empty.Addr), 422, []string{empty.Addr}},
		{"group exists", "POST", "/groups", group("g1", "secret", empty.Addr), 409, []string{"g1"}},
		{"bad id", "POST", "/groups", group("G 9!", "secret", empty.Addr), 422, []string{"/id"}},
		{"bad address", "POST", "/groups", group("g9", "secret", "nowhere"), 422, []string{"/nodes/0"}},
		{"unknown field", "POST", "/groups", map[string]any{"id": "g9", "nodez": 1}, 422, []string{"nodez"}},
		{"not JSON", "POST", "/plans", "slots", 422, nil},
		{"removing a group that owns slots", "DELETE", "/groups/g1", nil, 409, []string{"8192 slots", "Drain"}},
		{"removing an unknown group", "DELETE", "/groups/g7", nil, 404, []string{"g7"}},
		{"removing the master", "DELETE", "/groups/g1/nodes/" + used, nil, 422, []string{"master"}},
		{"unknown goal", "POST", "/plans", map[string]any{"goal": "better"}, 422, []string{"/goal"}},
		{"slots outside", "POST", "/plans", map[string]any{"goal": "move", "slots": "0-16384", "toGroup": "g2"}, 422, []string{"/slots", "16383"}},
		{"unknown target", "POST", "/plans", map[string]any{"goal": "move", "slots": "0-10", "toGroup": "g8"}, 422, []string{"/toGroup", "g8"}},
		{"unknown plan", "POST", "/operations", map[string]any{"plan": "plan-none"}, 404, []string{"plan-none"}},
		{"unknown operation", "POST", "/operations/op-none/actions/pause", nil, 404, []string{"op-none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := d.api.call(t.Context(), c.method, c.path, c.body, nil)
			var p *problem
			if !errors.As(err, &p) {
				t.Fatalf("got %v, want a problem document", err)
			}
			if p.Status != c.status && (c.status != 422 || p.Status != 400) {
				t.Errorf("status %d, want %d: %v", p.Status, c.status, p)
			}
			for _, word := range c.want {
				if !strings.Contains(p.Error(), word) {
					t.Errorf("the problem does not say %q: %v", word, p)
				}
			}
		})
	}
	var after struct {
		Epoch uint64 `json:"epoch"`
	}
	d.call("GET", "/cluster", nil, &after)
	if after != before {
		t.Errorf("the topology changed from epoch %d to %d", before.Epoch, after.Epoch)
	}
	var groups groupList
	d.call("GET", "/groups", nil, &groups)
	if len(groups.Items) != 2 {
		t.Errorf("there are %d groups, want 2", len(groups.Items))
	}
	anonymous := &rest{d.API, "", d.api.client}
	err := anonymous.call(t.Context(), "GET", "/groups", nil, nil)
	var p *problem
	if !errors.As(err, &p) || p.Status != 401 {
		t.Errorf("without a token: %v, want 401", err)
	}
}
