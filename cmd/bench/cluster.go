package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shardis/coordinator/localredis"
)

// cluster is a demo cluster under measurement.
type cluster struct {
	Proxies []string `json:"proxies"`
	API     string   `json:"api"`
	Token   string   `json:"token"`
	Nodes   []struct {
		Group, Role, Addr, Password string
		PID                         int
	} `json:"nodes"`
	Processes []struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
	} `json:"processes"`
	cmd *exec.Cmd
}

// startCluster runs `shardis demo` with one loop a proxy, so that one thread is
// compared with twemproxy's one.
func startCluster(ctx context.Context, o options, port int, args ...string) (*cluster, error) {
	all := append([]string{"demo", "-o", "json", "--port", strconv.Itoa(port), "--dashboard", fmt.Sprintf("127.0.0.1:%d", port+99), "--proxies", "1", "--appendonly=false"}, args...)
	c := &cluster{cmd: exec.CommandContext(ctx, o.shardis, all...)}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.Env = append(os.Environ(), "SHARDIS_LOOPS=1")
	var said strings.Builder
	c.cmd.Stderr = &said
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, c)
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start the demo: %w: %s", err, said.String())
	}
	return c, nil
}

func (c *cluster) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
}

func (c *cluster) pid(name string) int {
	for _, p := range c.Processes {
		if p.Name == name {
			return p.PID
		}
	}
	return 0
}

// nodePIDs is the processes of all masters.
func (c *cluster) nodePIDs() []int {
	var pids []int
	for _, n := range c.Nodes {
		if n.Role == "master" {
			pids = append(pids, n.PID)
		}
	}
	return pids
}

// twemproxy is a running nutcracker over some redis-servers.
type twemproxy struct {
	addr string
	cmd  *exec.Cmd
}

func startTwemproxy(dir string, port int, nodes []*localredis.Process) (*twemproxy, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var conf strings.Builder
	fmt.Fprintf(&conf, "bench:\n  listen: %s\n  hash: crc16\n  distribution: modula\n  redis: true\n  auto_eject_hosts: false\n  servers:\n", addr)
	for _, n := range nodes {
		fmt.Fprintf(&conf, "   - %s:1\n", n.Addr)
	}
	path := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(path, []byte(conf.String()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("nutcracker", "-c", path, "-s", strconv.Itoa(port+1), "-a", "127.0.0.1", "-o", filepath.Join(dir, "nutcracker.log"))
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &twemproxy{addr, cmd}
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return t, conn.Close()
		}
		if time.Now().After(deadline) {
			t.stop()
			return nil, fmt.Errorf("twemproxy does not listen at %s: %w", addr, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (t *twemproxy) stop() {
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait()
}

// startRedis runs n redis-servers without a password, which twemproxy's
// redis_auth would else cost it a round trip a connection.
func startRedis(ctx context.Context, dir, name string, n int) ([]*localredis.Process, error) {
	var all []*localredis.Process
	for i := range n {
		p, err := localredis.Start(ctx, localredis.Config{Dir: filepath.Join(dir, fmt.Sprintf("%s-%d", name, i))})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func pidsOf(nodes []*localredis.Process) []int {
	pids := make([]int, len(nodes))
	for i, n := range nodes {
		pids[i] = n.PID
	}
	return pids
}
