package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
)

// The end-to-end tests run the binary as a person would: `shardis demo`, REST,
// the page, kill. They are skipped with -short.

// binary is built once for all of them, into builtIn.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "shardis-e2e-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "shardis")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return path, nil
})

var builtIn string

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// demo is a running demo cluster.
type demo struct {
	demoReport
	t      *testing.T
	cmd    *exec.Cmd
	port   int
	stderr *lockedBuffer
	api    *rest
	scheme topo.Scheme
	done   chan struct{}
}

// lockedBuffer collects output that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// freePorts finds a base port whose whole demo range is free now.
func freePorts(t *testing.T) int {
	t.Helper()
	for base := 12000 + os.Getpid()%97*40; base < 30000; base += 400 {
		free := true
		for offset := 0; offset < 130 && free; offset++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return base
		}
	}
	t.Fatal("no free range of ports")
	return 0
}

// startDemo starts a demo and waits until it is ready; it ends with the test.
func startDemo(t *testing.T, scheme topo.Scheme, args ...string) *demo {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end tests are left out with -short")
	}
	port := freePorts(t)
	return startDemoOn(t, scheme, port, append([]string{"--scheme", string(scheme), "--port", fmt.Sprint(port),
		"--dashboard", fmt.Sprintf("127.0.0.1:%d", port+99), "--data-dir", t.TempDir(), "--purge-delay", "2s"}, args...)...)
}

// startDemoOn starts a demo with exactly these flags.
func startDemoOn(t *testing.T, scheme topo.Scheme, port int, args ...string) *demo {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{t: t, port: port, stderr: &lockedBuffer{}, scheme: scheme, done: make(chan struct{})}
	d.cmd = exec.Command(path, append([]string{"demo", "-o", "json"}, args...)...)
	d.cmd.Stderr = d.stderr
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &d.demoReport)
		}
		ready <- err
	}()
	select {
	case err := <-ready:
		if err != nil {
			_ = d.cmd.Process.Kill()
			t.Fatalf("the demo did not start: %v\n%s", err, d.stderr)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("the demo is not ready\n%s", d.stderr)
	}
	d.api = &rest{d.API, d.Token, &http.Client{Timeout: 30 * time.Second}}
	return d
}

// stop ends the demo as Ctrl-C does, and shows its words and the processes'
// logs when the test failed.
func (d *demo) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		d.t.Error("the demo does not stop")
		_ = d.cmd.Process.Kill()
		<-ended
	}
	if d.t.Failed() {
		d.t.Logf("the demo said:\n%s", d.stderr)
		for _, log := range d.logFiles() {
			data, _ := os.ReadFile(log)
			if len(data) > 6000 {
				data = data[len(data)-6000:]
			}
			d.t.Logf("%s:\n%s", filepath.Base(log), data)
		}
	}
}

func (d *demo) logFiles() []string {
	i := slices.Index(d.cmd.Args, "--data-dir")
	files, _ := filepath.Glob(filepath.Join(d.cmd.Args[i+1], "logs", "*.log"))
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), "g") })
}

// call speaks REST and fails the test on an error.
func (d *demo) call(method, path string, body, out any) {
	d.t.Helper()
	if err := d.api.call(d.t.Context(), method, path, body, out); err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// operate starts the operation that a POST or DELETE answers with.
func (d *demo) operate(method, path string, body any) operationView {
	d.t.Helper()
	var o operationView
	d.call(method, path, body, &o)
	return o
}

// plan makes a plan and starts it.
func (d *demo) runPlan(body map[string]any) operationView {
	d.t.Helper()
	var p planView
	d.call("POST", "/plans", body, &p)
	return d.operate("POST", "/operations", map[string]any{"plan": p.ID})
}

// finish waits for an operation to end and requires success.
func (d *demo) finish(o operationView, within time.Duration) operationView {
	d.t.Helper()
	deadline := time.Now().Add(within)
	for !o.finished() {
		if time.Now().After(deadline) {
			data, _ := json.MarshalIndent(o, "", " ")
			d.t.Fatalf("operation is not finished: %s", data)
		}
		wait(100 * time.Millisecond)
		var next operationView
		if err := d.api.call(d.t.Context(), "GET", "/operations/"+url.PathEscape(o.ID), nil, &next); err != nil {
			d.t.Logf("read operation: %v", err)
			continue
		}
		o = next
	}
	if o.State != "succeeded" {
		data, _ := json.MarshalIndent(o, "", " ")
		d.t.Fatalf("operation %s: %s", o.State, data)
	}
	return o
}

// wait lets time pass between two looks at a condition.
func wait(d time.Duration) { <-time.After(d) }

// eventually waits until ok holds.
func (d *demo) eventually(what string, within time.Duration, ok func() error) {
	d.t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: %v", what, err)
		}
		wait(50 * time.Millisecond)
	}
}

func (d *demo) process(name string) demoProcess {
	d.t.Helper()
	for _, p := range d.Processes {
		if p.Name == name {
			return p
		}
	}
	d.t.Fatalf("no process %s", name)
	return demoProcess{}
}

// signal sends a signal to a process by name.
func (d *demo) signal(name string, sig syscall.Signal) {
	d.t.Helper()
	if err := syscall.Kill(d.process(name).PID, sig); err != nil {
		d.t.Fatalf("%s %s: %v", sig, name, err)
	}
}

// restart starts a process again as a person would, and learns its new pid.
func (d *demo) restart(name string) {
	d.t.Helper()
	path, _ := binary()
	out, err := exec.Command(path, "demo", "restart", name, "--port", fmt.Sprint(d.port)).CombinedOutput()
	if err != nil {
		d.t.Fatalf("demo restart %s: %v: %s", name, err, out)
	}
	var pid int
	if _, err := fmt.Sscanf(string(out), name+" runs, pid %d", &pid); err != nil {
		d.t.Fatalf("demo restart said %q", out)
	}
	for i := range d.Processes {
		if d.Processes[i].Name == name {
			d.Processes[i].PID = pid
		}
	}
}

// client connects to the i-th proxy.
func (d *demo) client(i int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: d.demoReport.Proxies[i%len(d.demoReport.Proxies)], MaxRetries: -1, PoolSize: 4, ReadTimeout: 30 * time.Second})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// node connects to a node itself, past the proxies.
func (d *demo) node(n demoNode, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: n.Addr, Password: n.Password, DB: db})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// owners is the owner of each slot by REST.
func (d *demo) owners() []string {
	d.t.Helper()
	var list struct {
		Items []slotRunView `json:"items"`
	}
	d.call("GET", "/slots", nil, &list)
	owners := make([]string, d.scheme.Slots())
	for _, run := range list.Items {
		set, err := topo.ParseSlots(run.Slots, d.scheme.Slots())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, slot := range set.Slots() {
			owners[slot] = run.Group
		}
	}
	return owners
}

func slotCounts(owners []string) map[string]int {
	counts := map[string]int{}
	for _, owner := range owners {
		counts[owner]++
	}
	return counts
}

// keysOnNodes counts the keys of database 0 on each master and requires that
// each is in a slot its group owns.
func (d *demo) keysOnNodes() (total int, byGroup map[string]int, misplaced []string) {
	d.t.Helper()
	owners := d.owners()
	byGroup = map[string]int{}
	for _, n := range d.Nodes {
		if n.Role != "master" {
			continue
		}
		client := d.node(n, 0)
		iter := client.Scan(d.t.Context(), 0, "", 5000).Iterator()
		seen := map[string]bool{}
		for iter.Next(d.t.Context()) {
			key := iter.Val()
			if seen[key] {
				continue
			}
			seen[key] = true
			if owner := owners[d.scheme.SlotOf([]byte(key))]; owner != n.Group {
				misplaced = append(misplaced, fmt.Sprintf("%s is on %s, its slot %d belongs to %s", key, n.Group, d.scheme.SlotOf([]byte(key)), owner))
			}
		}
		if err := iter.Err(); err != nil {
			d.t.Fatalf("scan %s: %v", n.Addr, err)
		}
		byGroup[n.Group] = len(seen)
		total += len(seen)
	}
	return total, byGroup, misplaced
}

// tablesAgree requires that each proxy's own table is the given one.
func (d *demo) tablesAgree(owners []string) error {
	for _, p := range d.Processes {
		if !strings.HasPrefix(p.Name, "proxy-") {
			continue
		}
		var table struct {
			Slots []struct {
				Slots string `json:"slots"`
				Group string `json:"group"`
				Held  bool   `json:"held"`
			} `json:"slots"`
		}
		if err := getJSON(d.t.Context(), "http://"+p.Admin+"/api/v1/table", &table); err != nil {
			return err
		}
		own := make([]string, d.scheme.Slots())
		for _, run := range table.Slots {
			set, err := topo.ParseSlots(run.Slots, d.scheme.Slots())
			if err != nil {
				return err
			}
			for _, slot := range set.Slots() {
				own[slot] = run.Group
			}
			if run.Held {
				return fmt.Errorf("%s still holds slots %s", p.Name, run.Slots)
			}
		}
		if !slices.Equal(own, owners) {
			return fmt.Errorf("%s routes by another table: %v, want %v", p.Name, slotCounts(own), slotCounts(owners))
		}
	}
	return nil
}

func getJSON(ctx context.Context, address string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, reply.Status)
	}
	return json.NewDecoder(reply.Body).Decode(out)
}
