package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/localredis"
)

const demoClusterName = "demo"

// demoCluster is the running demo: its child processes in the order they were
// started.
type demoCluster struct {
	layout *demoLayout
	dir    string
	fresh  bool // the folder was made by this start
	out    io.Writer
	spawn  spawner

	mu       sync.Mutex // guards what follows; restart orders come from outside
	children []*child
	nodes    map[string]*localredis.Process // by process name
	expected map[string]bool                // processes being ended by a restart order
	stopping bool
	closers  []func()
}

func newDemoCluster(layout *demoLayout, dir string, fresh bool, out io.Writer) (*demoCluster, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(abs, "logs"), 0o700); err != nil {
		return nil, err
	}
	return &demoCluster{layout: layout, dir: abs, fresh: fresh, out: out, spawn: newSpawner(),
		nodes: map[string]*localredis.Process{}, expected: map[string]bool{}}, nil
}

// say tells people what happens; programs read only standard output.
func (d *demoCluster) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, "demo: "+format+"\n", args...)
}

func (d *demoCluster) loopback(offset int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.layout.Flags.Port+offset))
}

func (d *demoCluster) etcdAddr() string { return d.loopback(portEtcd) }

func (d *demoCluster) proxyAddrs() []string {
	var addrs []string
	for i := range d.layout.Flags.Proxies {
		addrs = append(addrs, d.loopback(i))
	}
	return addrs
}

// start brings everything up and returns once the cluster serves.
func (d *demoCluster) start(ctx context.Context) error {
	if _, err := localredis.Find(); err != nil {
		return err
	}
	if err := d.serveControl(ctx, d.layout.Flags.Port); err != nil {
		return err
	}
	if err := d.checkPorts(); err != nil {
		return err
	}
	if err := d.startNodes(ctx); err != nil {
		return err
	}
	if err := d.startControlPlane(ctx); err != nil {
		return err
	}
	api := &rest{"http://" + d.layout.Flags.Dashboard + "/api/v1", d.layout.Token, &http.Client{Timeout: 30 * time.Second}}
	// The dashboard serves before it has stored the token it was given.
	login := func(ctx context.Context) error { return api.call(ctx, http.MethodGet, "/auth/me", nil, nil) }
	if err := d.poll(ctx, d.child("dashboard"), login); err != nil {
		return err
	}
	if err := d.addGroups(ctx, api); err != nil {
		return err
	}
	for i := range d.layout.Flags.Proxies {
		if err := d.startChild(d.proxyChild(i)); err != nil {
			return err
		}
	}
	for i, addr := range d.proxyAddrs() {
		if err := d.waitReady(ctx, fmt.Sprintf("proxy-%d", i+1)); err != nil {
			return fmt.Errorf("proxy at %s: %w", addr, err)
		}
	}
	return nil
}

// checkPorts finds a port in use before anything is started, so that the
// message names it and not some child's log.
func (d *demoCluster) checkPorts() error {
	want := map[string]string{d.layout.Flags.Dashboard: "--dashboard"}
	for _, addr := range d.proxyAddrs() {
		want[addr] = "--port"
	}
	for i := range d.layout.Flags.Proxies {
		want[d.loopback(portAdmin+i)] = "--port"
	}
	for _, offset := range []int{portEtcd, portEtcdPeer, portCoordinator} {
		want[d.loopback(offset)] = "--port"
	}
	for _, g := range d.layout.Groups {
		for _, port := range g.Ports {
			want[net.JoinHostPort("127.0.0.1", strconv.Itoa(port))] = "--port"
		}
	}
	for addr, flag := range want {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("%s can not be used: %w\n  stop what uses it, or choose another with %s", addr, err, flag)
		}
		_ = listener.Close()
	}
	return nil
}

// nodeConfig is the redis-server of a group's i-th node. Nodes keep an
// append-only file, so that one started again has its data.
// A node started again follows nobody and serves nothing until the coordinator
// tells it its role: as a master it would have its replicas throw away what it
// does not have.
func (d *demoCluster) nodeConfig(g demoGroup, i int, again bool) localredis.Config {
	log, err := os.OpenFile(filepath.Join(d.dir, "logs", g.Names[i]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	var out io.Writer
	if err == nil {
		out = log
		d.mu.Lock()
		d.closers = append(d.closers, func() { _ = log.Close() })
		d.mu.Unlock()
	}
	cfg := localredis.Config{
		Dir:        filepath.Join(d.dir, g.Names[i]),
		Port:       g.Ports[i],
		Password:   g.Password,
		MasterAuth: g.Password,
		Extra:      []string{"repl-ping-replica-period 1"},
		Log:        out,
	}
	if d.layout.Flags.Append {
		cfg.Extra = append(cfg.Extra, "appendonly yes")
	}
	if again && len(g.Ports) > 1 {
		cfg.ReplicaOf = net.JoinHostPort("127.0.0.1", "1")
		cfg.Extra = append(cfg.Extra, "replica-serve-stale-data no")
	}
	return cfg
}

func (d *demoCluster) startNodes(ctx context.Context) error {
	for _, g := range d.layout.Groups {
		for i := range g.Ports {
			if err := d.startNode(ctx, g, i, !d.fresh); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *demoCluster) startNode(ctx context.Context, g demoGroup, i int, again bool) error {
	var process *localredis.Process
	err := d.spawn.do(func() (err error) {
		process, err = localredis.Start(ctx, d.nodeConfig(g, i, again))
		return err
	})
	if err != nil {
		return err
	}
	name := g.Names[i]
	d.mu.Lock()
	d.nodes[name] = process
	d.mu.Unlock()
	go func() {
		err := process.Wait()
		outcome := "exit status 0"
		if err != nil {
			outcome = err.Error()
		}
		d.ended(name, process.PID, outcome)
	}()
	return nil
}

// ended reports a process that went away by itself.
func (d *demoCluster) ended(name string, pid int, outcome string) {
	d.mu.Lock()
	quiet := d.stopping || d.expected[name]
	d.mu.Unlock()
	if !quiet {
		d.say("%s (pid %d) ended: %s; start it again: shardis demo restart %s%s", name, pid, outcome, name, d.portFlag())
	}
}

func (d *demoCluster) portFlag() string {
	if d.layout.Flags.Port == 7000 {
		return ""
	}
	return fmt.Sprintf(" --port %d", d.layout.Flags.Port)
}

func (d *demoCluster) startControlPlane(ctx context.Context) error {
	etcd := d.newChild("etcd", "", "etcd", "--data-dir", filepath.Join(d.dir, "etcd"),
		"--listen", d.etcdAddr(), "--peer", d.loopback(portEtcdPeer))
	if err := d.startChild(etcd); err != nil {
		return err
	}
	if err := d.waitDial(ctx, etcd, d.etcdAddr()); err != nil {
		return err
	}
	if d.fresh {
		init := d.newChild("init", "", "init", "--cluster", demoClusterName, "--etcd", d.etcdAddr(), "--scheme", d.layout.Flags.Scheme)
		if err := init.start(d.spawn); err != nil {
			return err
		}
		<-init.exited
		if init.err != nil {
			return fmt.Errorf("shardis init: %s: %s", init.outcome(), init.lastLines())
		}
	}
	coordinator := d.newChild("coordinator-1", d.loopback(portCoordinator), "coordinator", "--cluster", demoClusterName,
		"--etcd", d.etcdAddr(), "--id", "coordinator-1", "--admin", d.loopback(portCoordinator),
		"--purge-delay", d.layout.Flags.Purge.String())
	tokenFile := filepath.Join(d.dir, "token")
	if err := os.WriteFile(tokenFile, []byte(d.layout.Token+"\n"), 0o600); err != nil {
		return err
	}
	dashboard := d.newChild("dashboard", d.layout.Flags.Dashboard, "dashboard", "--cluster", demoClusterName,
		"--etcd", d.etcdAddr(), "--listen", d.layout.Flags.Dashboard, "--bootstrap-token-file", tokenFile)
	for _, c := range []*child{coordinator, dashboard} {
		if err := d.startChild(c); err != nil {
			return err
		}
	}
	for _, name := range []string{"coordinator-1", "dashboard"} {
		if err := d.waitReady(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *demoCluster) proxyChild(i int) *child {
	name := fmt.Sprintf("proxy-%d", i+1)
	admin := d.loopback(portAdmin + i)
	return d.newChild(name, admin, "proxy", "--cluster", demoClusterName, "--etcd", d.etcdAddr(), "--id", name,
		"--listen", d.loopback(i), "--admin", admin, "--state-dir", filepath.Join(d.dir, name))
}

func (d *demoCluster) newChild(name, admin string, args ...string) *child {
	return &child{name: name, admin: admin, args: args, log: filepath.Join(d.dir, "logs", name+".log")}
}

func (d *demoCluster) startChild(c *child) error {
	if err := c.start(d.spawn); err != nil {
		return err
	}
	d.mu.Lock()
	if i := slices.IndexFunc(d.children, func(o *child) bool { return o.name == c.name }); i >= 0 {
		d.children[i] = c
	} else {
		d.children = append(d.children, c)
	}
	d.mu.Unlock()
	pid := c.pid()
	go func() {
		<-c.exited
		d.ended(c.name, pid, c.outcome())
	}()
	return nil
}

func (d *demoCluster) child(name string) *child {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

const demoReadyWithin = 60 * time.Second

// waitReady waits until the child's admin address says it is ready.
func (d *demoCluster) waitReady(ctx context.Context, name string) error {
	c := d.child(name)
	return d.poll(ctx, c, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+"/readyz", nil)
		if err != nil {
			return err
		}
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = reply.Body.Close() }()
		if reply.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(reply.Body, 1000))
			return fmt.Errorf("not ready: %s", strings.TrimSpace(string(body)))
		}
		return nil
	})
}

func (d *demoCluster) waitDial(ctx context.Context, c *child, addr string) error {
	return d.poll(ctx, c, func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// poll tries until try succeeds, the child ended, or time is up.
func (d *demoCluster) poll(ctx context.Context, c *child, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, demoReadyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("%s ended: %s\n%s", c.name, c.outcome(), c.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", c.name, err, c.lastLines())
		case <-tick.C:
		}
	}
}

// stop ends every process: proxies first, so that clients see an orderly end,
// etcd last.
func (d *demoCluster) stop() {
	d.mu.Lock()
	d.stopping = true
	children := slices.Clone(d.children)
	d.mu.Unlock()
	slices.Reverse(children)
	isProxy := func(c *child) bool { return strings.HasPrefix(c.name, "proxy-") }
	d.stopAll(children, isProxy)
	d.stopAll(children, func(c *child) bool { return !isProxy(c) && c.name != "etcd" })
	var wait sync.WaitGroup
	for _, process := range d.nodes {
		wait.Go(process.Stop)
	}
	wait.Wait()
	d.stopAll(children, func(c *child) bool { return c.name == "etcd" })
	for _, closer := range slices.Backward(d.closers) {
		closer()
	}
}

func (d *demoCluster) stopAll(children []*child, which func(*child) bool) {
	var wait sync.WaitGroup
	for _, c := range children {
		if which(c) {
			wait.Go(func() { c.stop(5 * time.Second) })
		}
	}
	wait.Wait()
}

// restart starts a process again, ending it first if it still runs.
func (d *demoCluster) restart(ctx context.Context, name string) (demoProcess, error) {
	d.mu.Lock()
	d.expected[name] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.expected, name)
		d.mu.Unlock()
	}()
	for _, g := range d.layout.Groups {
		if i := slices.Index(g.Names, name); i >= 0 {
			d.mu.Lock()
			process := d.nodes[name]
			d.mu.Unlock()
			if process != nil {
				process.Stop()
			}
			if err := d.startNode(ctx, g, i, true); err != nil {
				return demoProcess{}, err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			return demoProcess{Name: name, PID: d.nodes[name].PID}, nil
		}
	}
	old := d.child(name)
	if old == nil {
		return demoProcess{}, fmt.Errorf("the demo has no process %q: it has %s", name, strings.Join(d.names(), ", "))
	}
	old.stop(5 * time.Second)
	again := d.newChild(name, old.admin, old.args...)
	if err := d.startChild(again); err != nil {
		return demoProcess{}, err
	}
	return demoProcess{Name: name, PID: again.pid(), Admin: again.admin}, nil
}

func (d *demoCluster) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, c := range d.children {
		names = append(names, c.name)
	}
	for name := range d.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// report describes the running demo.
func (d *demoCluster) report() demoReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	dashboard := "http://" + d.layout.Flags.Dashboard
	r := demoReport{
		Proxies: d.proxyAddrs(), Dashboard: dashboard, API: dashboard + "/api/v1",
		Token: d.layout.Token, Etcd: d.etcdAddr(), Cluster: demoClusterName,
	}
	for _, g := range d.layout.Groups {
		for i, name := range g.Names {
			role := "master"
			if i > 0 {
				role = "replica"
			}
			process := d.nodes[name]
			r.Nodes = append(r.Nodes, demoNode{g.ID, role, process.Addr, process.PID, g.Password})
		}
	}
	for _, c := range d.children {
		r.Processes = append(r.Processes, demoProcess{c.name, c.pid(), c.admin})
	}
	return r
}
