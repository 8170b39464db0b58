package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// sink records what became of requests.
type sink struct {
	events []string
	pool   *Pool // where given back requests go again, nil: nowhere
}

func (s *sink) Reply(part int, reply []byte) {
	s.events = append(s.events, fmt.Sprintf("%d: %s", part, strings.TrimSpace(string(reply))))
}

func (s *sink) Resend(part int, command []byte, again Again) {
	s.events = append(s.events, fmt.Sprintf("%d: again", part))
	if s.pool != nil {
		s.pool.Lane(2, 0).To(0).AddAgain(command, s, part, again)
	}
}

func (s *sink) Fail(part int, cause Cause) {
	s.events = append(s.events, fmt.Sprintf("%d: cause %d", part, cause))
}

func (s *sink) take() string {
	text := strings.Join(s.events, ", ")
	s.events = nil
	return text
}

// noDialer only remembers that it was asked.
type noDialer struct{ dials, hangups int }

func (d *noDialer) Dial(*Pipeline)   { d.dials++ }
func (d *noDialer) Hangup(*Pipeline) { d.hangups++ }

type rig struct {
	t      *testing.T
	pool   *Pool
	dialer noDialer
	p      *Pipeline
	s      sink
	shared []byte
}

func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, shared: make([]byte, 4096)}
	r.pool = NewPool(cfg, &resp.Buffers{}, stats.NewLoop(1, 1), &r.dialer)
	r.pool.SetNow(int64(time.Hour))
	r.pool.Apply([]string{"n:1"}, nil)
	r.p = r.pool.Lane(2, 0).To(0)
	return r
}

func (r *rig) add(name string, part int, readOnly bool) {
	r.p.Add(resp.AppendCommandStrings(nil, name), &r.s, part, readOnly)
}

// login has the connection opened and logged in.
func (r *rig) login() {
	r.t.Helper()
	r.p.Connected()
	for r.p.state == greeting {
		out := string(r.p.Out())
		r.p.Wrote(len(out))
		if out == "" {
			r.t.Fatal("the login stands still")
		}
		if err := r.receive(strings.Repeat(":42\r\n", strings.Count(out, "*"))); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) receive(text string) error {
	return r.p.Received(r.shared, copy(r.p.Space(r.shared), text))
}

func (r *rig) expect(want string) {
	r.t.Helper()
	if got := r.s.take(); got != want {
		r.t.Errorf("got %q, want %q", got, want)
	}
}

// What a lost connection means for each request, by how far it came.
func TestLostConnection(t *testing.T) {
	r := newRig(t, Config{})
	for i, name := range []string{"answered", "read", "write", "torn", "unsent"} {
		r.add(name, i, name == "read")
	}
	r.login()
	whole := len("*1\r\n$8\r\nanswered\r\n") + len("*1\r\n$4\r\nread\r\n") + len("*1\r\n$5\r\nwrite\r\n")
	r.p.Wrote(whole + 7)
	if err := r.receive("+OK\r\n"); err != nil {
		t.Fatal(err)
	}
	r.expect("0: +OK")
	r.p.Lost(errors.New("reset"))
	r.expect("1: again, 2: cause 0, 3: again, 4: again")
	if !r.pool.owes("n:1") {
		t.Error("no debt for the connection")
	}
}

// A read is given a second chance, not a third.
func TestReadIsRetriedOnce(t *testing.T) {
	r := newRig(t, Config{})
	r.s.pool = r.pool
	r.add("read", 1, true)
	for _, want := range []string{"1: again", "1: cause 0"} {
		r.login()
		r.p.Wrote(len(r.p.Out()))
		r.p.Lost(errors.New("reset"))
		r.expect(want)
	}
	if r.dialer.dials != 3 {
		t.Errorf("%d dials: one at first, one for the retry, one for the debt", r.dialer.dials)
	}
}

// A request that expired before the connection was ready is not written.
func TestExpiredRequestIsNotWritten(t *testing.T) {
	r := newRig(t, Config{Wait: time.Second})
	r.add("old", 1, true)
	r.pool.SetNow(r.pool.now + int64(900*time.Millisecond))
	r.add("new", 2, true)
	r.pool.SetNow(r.pool.now + int64(200*time.Millisecond))
	r.p.Connected()
	r.pool.Tick()
	r.expect(fmt.Sprintf("1: cause %d", Down))
	r.p.enter(connecting)
	r.login()
	if out := string(r.p.Out()); !strings.Contains(out, "new") || strings.Contains(out, "old") {
		t.Errorf("written: %q", out)
	}
}

func TestUnexpectedReplies(t *testing.T) {
	for name, text := range map[string]string{
		"nothing inflight":    "+OK\r\n",
		"not yet written":     "+OK\r\n",
		"push":                ">1\r\n+x\r\n",
		"garbage":             "hello\r\n",
		"bulk without an end": "$2\r\nabcd",
	} {
		r := newRig(t, Config{})
		if name != "nothing inflight" {
			r.add("get", 1, false)
		}
		r.login()
		if name != "not yet written" {
			r.p.Wrote(len(r.p.Out()))
		}
		if err := r.receive(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
		r.expect("")
	}
}

// Drained waits for what was sent before the hold, and for nothing else.
func TestDrained(t *testing.T) {
	r := newRig(t, Config{})
	r.login()
	r.add("before", 1, false)
	r.p.Wrote(len(r.p.Out()))
	r.pool.Apply([]string{"n:1"}, []string{"n:1"})
	r.p = r.pool.Lane(2, 0).To(0)
	r.add("after", 2, false)
	r.p.Wrote(len(r.p.Out()))
	if r.pool.Drained() {
		t.Error("drained with a request inflight")
	}
	if err := r.receive("+OK\r\n"); err != nil || !r.pool.Drained() {
		t.Errorf("not drained by its reply: %v", err)
	}
}

// A request that waits for its reply for too long fails; the connection is
// given up and its debt paid by the next login.
func TestCommandTimeout(t *testing.T) {
	r := newRig(t, Config{CommandTimeout: time.Second})
	r.login()
	r.add("slow", 1, true)
	r.add("next", 2, false)
	r.p.Wrote(len(r.p.Out()))
	r.pool.SetNow(r.pool.now + int64(1100*time.Millisecond))
	r.pool.Tick()
	r.expect(fmt.Sprintf("1: cause %d, 2: cause %d", TimedOut, Lost))
	if r.dialer.hangups != 1 || !r.pool.owes("n:1") {
		t.Errorf("%d hangups, debt %v", r.dialer.hangups, r.pool.owes("n:1"))
	}
	r.p.Connected()
	if out := string(r.p.Out()); !strings.Contains(out, "KILL\r\n$2\r\nID\r\n$2\r\n42\r\n") {
		t.Errorf("login: %q", out)
	}
	r.p.enter(connecting)
	r.p.hello = greeter{}
	r.login()
	if r.pool.owes("n:1") {
		t.Error("still a debt")
	}
}

// The login sends nothing behind an AUTH, and waits after a refusal.
func TestLogin(t *testing.T) {
	r := newRig(t, Config{User: "u", Password: "pw"})
	r.add("get", 1, true)
	r.p.Connected()
	if out := string(r.p.Out()); out != "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$2\r\npw\r\n" {
		t.Fatalf("first step: %q", out)
	}
	r.p.Wrote(len(r.p.Out()))
	err := r.receive("-WRONGPASS no\r\n")
	if err == nil {
		t.Fatal("accepted a refusal")
	}
	r.p.Lost(err)
	if r.p.state != waiting || r.p.ring.len() != 1 {
		t.Errorf("state %s with %d requests", r.p.state, r.p.ring.len())
	}
	r.expect("")
}

// The buffer neither grows with the number of commands that passed nor loses
// bytes when it is moved.
func TestBufferStaysSmall(t *testing.T) {
	r := newRig(t, Config{})
	r.login()
	replies := 0
	for i := range 10_000 {
		r.add(fmt.Sprintf("command %d", i), i%100, false)
		if i%3 != 0 {
			continue
		}
		out := string(r.p.Out())
		if !strings.Contains(out, fmt.Sprintf("command %d", i)) {
			t.Fatalf("command %d is not written: %q", i, out)
		}
		r.p.Wrote(len(out))
		for range 3 {
			if replies++; replies < i-20 {
				if err := r.receive("+OK\r\n"); err != nil {
					t.Fatal(err)
				}
			} else {
				replies--
			}
		}
	}
	if cap(r.p.buf) > 16<<10 {
		t.Errorf("the buffer grew to %d", cap(r.p.buf))
	}
}
