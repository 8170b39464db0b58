// Package localredis starts real redis-server processes on the loopback
// interface, watches them and ends them: for the demo and for tests.
//
// Each process has its own folder with a redis.conf (mode 0600, so that no
// password shows in the process list) and keeps nothing on disk unless
// Config.Extra asks for it. It runs in a process group of its own, so that an
// interrupt typed at the parent's terminal reaches the parent alone, and on
// Linux the kernel kills it when the parent dies in whatever way.
//
// Ports are picked below the range from which the kernel serves outgoing
// connections: a node can then be stopped and started again at the same
// address without some client's socket sitting on it.
package localredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	program     = "redis-server"
	portFirst   = 17000
	portLast    = 31999
	startWithin = 20 * time.Second
	stopWithin  = 5 * time.Second // then it is killed
	probeEvery  = 5 * time.Millisecond
	portTries   = 8 // somebody else may take a free port before redis-server does
)

// Find gives the path of redis-server, or an error that says how to get it.
// The environment variable SHARDIS_REDIS_SERVER goes first.
func Find() (string, error) {
	if path := os.Getenv("SHARDIS_REDIS_SERVER"); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("SHARDIS_REDIS_SERVER names no program: %w", err)
		}
		return found, nil
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", errors.New("redis-server is not installed: install it with `apt-get install redis-server` (Debian, Ubuntu), " +
			"`dnf install redis` (Fedora) or `brew install redis` (macOS), or set SHARDIS_REDIS_SERVER to its path")
	}
	return path, nil
}

// Config of one redis-server.
type Config struct {
	Dir        string    // its folder; made when missing
	Port       int       // 0 = a free one
	Password   string    // of the default user; "" = none
	ReplicaOf  string    // host:port of its master; "" = it is one
	MasterAuth string    // password it gives to its master
	Extra      []string  // more lines of redis.conf, for example "maxmemory 100mb"
	Log        io.Writer // gets what redis-server prints; nil = discard
}

// Process is a running redis-server.
type Process struct {
	Addr string // host:port
	PID  int

	cfg    Config
	output *tail
	exited chan struct{}
	err    error // how it ended; readable once exited is closed
}

// Start runs a redis-server and waits until it answers PING. ctx bounds the
// start only. A stopped process starts again at its address, with what is in
// its folder, by Start(ctx, p.Config()).
func Start(ctx context.Context, cfg Config) (*Process, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		return nil, errors.New("start redis-server: no folder given")
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	choose := cfg.Port == 0
	for try := 1; ; try++ {
		if choose {
			if cfg.Port, err = freePort(); err != nil {
				return nil, fmt.Errorf("start redis-server: %w", err)
			}
		}
		p, err := start(ctx, path, cfg)
		if err == nil {
			return p, nil
		}
		if !choose || try == portTries || !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("start redis-server at port %d: %w", cfg.Port, err)
		}
	}
}

var errPortTaken = errors.New("the port is in use")

func start(ctx context.Context, path string, cfg Config) (*Process, error) {
	conf := filepath.Join(cfg.Dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(cfg.text()), 0o600); err != nil {
		return nil, err
	}
	p := &Process{
		Addr:   net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.Port)),
		cfg:    cfg,
		output: &tail{also: cfg.Log},
		exited: make(chan struct{}),
	}
	cmd := exec.Command(path, conf)
	cmd.Dir = cfg.Dir
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if err := p.run(cmd); err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		p.Kill()
		text := p.output.String()
		if strings.Contains(text, "Address already in use") {
			return nil, fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return nil, fmt.Errorf("%w; it printed: %s", err, text)
	}
	return p, nil
}

// ready waits until the process answers, or ended.
func (p *Process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var last error
	for {
		if last = ping(ctx, p.Addr, p.cfg.Password); last == nil {
			// Somebody else's server at this port would answer, too.
			select {
			case <-p.exited:
			default:
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended at once: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (%w)", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Config is what Start needs to start this process again at its address.
func (p *Process) Config() Config { return p.cfg }

// Exited is closed when the process has ended, for whatever reason.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until the process ended and says how.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

// Output is the end of what the process printed.
func (p *Process) Output() string { return p.output.String() }

// Stop asks the process to shut down and waits until it has; one that does not
// within 5 s is killed. Stopping an ended process does nothing.
func (p *Process) Stop() {
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT) // It may be frozen.
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		p.Kill()
	}
}

// Kill ends the process at once, as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Freeze stops the process from running without ending it; its sockets stay.
func (p *Process) Freeze() error { return p.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.exited: // Its pid may be another's by now.
		return os.ErrProcessDone
	default:
		return syscall.Kill(p.PID, sig)
	}
}

// text is the redis.conf.
func (c Config) text() string {
	var b strings.Builder
	line := func(name string, values ...string) {
		b.WriteString(name)
		for _, v := range values {
			b.WriteString(" " + quote(v))
		}
		b.WriteByte('\n')
	}
	line("bind", "127.0.0.1")
	line("port", strconv.Itoa(c.Port))
	line("dir", c.Dir)
	line("daemonize", "no")
	line("logfile", "")
	line("save", "")
	line("appendonly", "no")
	line("shutdown-timeout", "2")
	line("repl-diskless-sync-delay", "0")
	if c.Password != "" {
		line("requirepass", c.Password)
	}
	if c.MasterAuth != "" {
		line("masterauth", c.MasterAuth)
	}
	if c.ReplicaOf != "" {
		host, port, _ := net.SplitHostPort(c.ReplicaOf)
		line("replicaof", host, port)
	}
	for _, extra := range c.Extra {
		b.WriteString(extra + "\n")
	}
	return b.String()
}

// quote writes a value the way redis.conf reads it, whatever bytes it has.
func quote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\x%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// freePort picks a port nobody listens on.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := portFirst + rand.IntN(portLast-portFirst+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port in %d-%d: %w", portFirst, portLast, last)
}

// tail keeps the end of what is written to it.
type tail struct {
	also io.Writer

	mu   sync.Mutex
	kept []byte
}

const tailSize = 4 << 10

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, data...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.mu.Unlock()
	if t.also != nil {
		return t.also.Write(data)
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
