package localredis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// childEnv makes the test binary start a redis-server and hang, for
// TestProcessEndsWithItsParent.
const childEnv = "LOCALREDIS_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		p, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(p.PID) + "\n")
		select {}
	}
	goleak.VerifyTestMain(m)
}

func client(t *testing.T, addr, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Password: password, Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestStartServesAndKeepsNothing(t *testing.T) {
	const password = `p"a ss\wörd` + "\x01"
	p := StartTest(t, Config{Password: password})
	c := client(t, p.Addr, password)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	open := client(t, p.Addr, "")
	if err := open.Get(t.Context(), "k").Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Fatalf("without a password: got %v, want NOAUTH", err)
	}
	p.Stop()
	again, err := Start(t.Context(), p.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Kill()
	if again.Addr != p.Addr {
		t.Fatalf("started again at %s, want %s", again.Addr, p.Addr)
	}
	if n := client(t, again.Addr, password).DBSize(t.Context()).Val(); n != 0 {
		t.Fatalf("%d keys survived", n)
	}
}

func TestStartReplica(t *testing.T) {
	master := StartTest(t, Config{Password: "m"})
	replica := StartTest(t, Config{Password: "r", MasterAuth: "m", ReplicaOf: master.Addr})
	m, r := client(t, master.Addr, "m"), client(t, replica.Addr, "r")
	if err := m.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for r.Get(t.Context(), "k").Val() != "v" {
		if time.Now().After(deadline) {
			t.Fatalf("the replica never got the key: %s", replica.Output())
		}
		m.Do(t.Context(), "WAIT", 1, 50)
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Start(t.Context(), Config{Dir: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("port in use: got %v", err)
	}
	_, err = Start(t.Context(), Config{Dir: t.TempDir(), Extra: []string{"no-such-setting 1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("bad setting: got %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err = Find(); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("not installed: got %v", err)
	}
}

func TestKillFreezeAndOutput(t *testing.T) {
	var log syncBuffer
	p := StartTest(t, Config{Log: &log})
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ping(ctx, p.Addr, ""); err == nil {
		t.Error("a frozen server answered")
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := ping(t.Context(), p.Addr, ""); err != nil {
		t.Error(err)
	}
	p.Kill()
	p.Stop()
	if err := p.Wait(); err == nil {
		t.Error("a killed process ended without an error")
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to an ended process: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "Ready to accept connections") || !strings.Contains(p.Output(), "Ready") {
		t.Errorf("output is missing: %q", text)
	}
}

// syncBuffer is a buffer written by one goroutine and read by another.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(data)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestProcessEndsWithItsParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatalf("child printed %q", line[:n])
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil && !zombie(pid); <-tick.C {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("redis-server %d outlived its parent", pid)
		}
	}
}

// zombie says whether a dead process merely waits for somebody to collect it.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
