package command

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests ask a real redis-server the same questions as the table.

// server is one raw connection: what was sent and what came back, byte for byte.
type server struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func startServer(t *testing.T) *server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return &server{t, c, bufio.NewReaderSize(c, 1<<20)}
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func appendRequest(dst []byte, args [][]byte) []byte {
	dst = appendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = appendBulk(dst, string(a))
	}
	return dst
}

func (s *server) ask(args ...[]byte) []byte {
	s.t.Helper()
	_ = s.c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := s.c.Write(appendRequest(nil, args)); err != nil {
		s.t.Fatal(err)
	}
	return s.read(nil)
}

func (s *server) askLine(line string) []byte { return s.ask(split(line)...) }

func (s *server) read(dst []byte) []byte {
	s.t.Helper()
	line, err := s.r.ReadSlice('\n')
	if err != nil {
		s.t.Fatalf("read reply: %v", err)
	}
	kind := line[0]
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	dst = append(dst, line...)
	switch kind {
	case '$', '=':
		if n >= 0 {
			b := make([]byte, n+2)
			if _, err := io.ReadFull(s.r, b); err != nil {
				s.t.Fatal(err)
			}
			dst = append(dst, b...)
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~':
		for range n {
			dst = s.read(dst)
		}
	}
	return dst
}

func TestInfoAndDocsAreTheServersOwn(t *testing.T) {
	s := startServer(t)
	for proto := 2; proto <= 3; proto++ {
		s.askLine(fmt.Sprint("hello ", proto))
		for i := 1; i < len(commands); i++ {
			c := &commands[i]
			if c.subs > 0 || !c.Listed() {
				continue // a container's sub-commands come in the order of a hash table
			}
			name := [][]byte{[]byte(c.Name)}
			if got, want := AppendInfo(nil, name, proto), s.askLine("command info "+c.Name); !bytes.Equal(got, want) {
				t.Fatalf("proto %d: COMMAND INFO %s:\n%q\nwant\n%q", proto, c.Name, got, want)
			}
			if got, want := AppendDocs(nil, name, proto), s.askLine("command docs "+c.Name); !bytes.Equal(got, want) {
				t.Fatalf("proto %d: COMMAND DOCS %s:\n%q\nwant\n%q", proto, c.Name, got, want)
			}
		}
		// Containers: the same lines in another order, where policy hides nothing.
		for _, name := range []string{"object", "xgroup", "xinfo", "slowlog", "latency", "command", "cluster", "pubsub", "memory"} {
			got, want := AppendInfo(nil, split(name), proto), s.askLine("command info "+name)
			if !sameLines(got, want) {
				t.Errorf("proto %d: COMMAND INFO %s:\n%q\nwant\n%q", proto, name, got, want)
			}
			got, want = AppendDocs(nil, split(name), proto), s.askLine("command docs "+name)
			if !sameLines(got, want) {
				t.Errorf("proto %d: COMMAND DOCS %s:\n%q\nwant\n%q", proto, name, got, want)
			}
		}
		for _, names := range []string{"nosuch", "nosuch get", "get get", "client|nosuch"} {
			if got, want := AppendInfo(nil, split(names), proto), s.askLine("command info "+names); !bytes.Equal(got, want) {
				t.Errorf("proto %d: COMMAND INFO %s: %q, want %q", proto, names, got, want)
			}
			if names == "get get" {
				continue
			}
			if got, want := AppendDocs(nil, split(names), proto), s.askLine("command docs "+names); !bytes.Equal(got, want) {
				t.Errorf("proto %d: COMMAND DOCS %s: %q, want %q", proto, names, got, want)
			}
		}
	}
}

func sameLines(a, b []byte) bool {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	slices.SortFunc(x, bytes.Compare)
	slices.SortFunc(y, bytes.Compare)
	return slices.EqualFunc(x, y, bytes.Equal)
}

func TestErrorTextsAreTheServersOwn(t *testing.T) {
	s := startServer(t)
	long := strings.Repeat("x", 200)
	for _, args := range [][]string{
		{"nosuch"},
		{"NoSuch", "a", "b"},
		{"nosuch", "a\r\nb", "c\x00d"},
		{"no\x00such", "a"},
		{"a\nb"},
		{long, long, long},
		{"nosuch", strings.Repeat("y", 124), "b", "c"},
		{"nosuch", strings.Repeat("y", 125), "b", "c"},
		{"nosuch", strings.Repeat("y", 121), "bbbbbbb", "c"},
		{"nosuch", strings.Repeat("y", 50), strings.Repeat("z", 50), long, "d"},
		{"nosuch", "", "", ""},
		{""},
		{"client", "nosuch"},
		{"CLIENT", "NoSuch", "a"},
		{"client", long},
		{"client", "a\x00b"},
		{"Config", "x\r\ny"},
		{"client|info"},
		{"object", ""},
		{"get"}, {"get", "a", "b"}, {"client"}, {"client", "setname"}, {"CLIENT", "Kill"}, {"set", "a"}, {"object", "freq"}, {"auth"},
	} {
		b := make([][]byte, len(args))
		for i := range args {
			b[i] = []byte(args[i])
		}
		var got []byte
		if c := Lookup(b); c == nil {
			got = AppendErrUnknown(nil, b)
		} else if !c.CheckArity(len(b)) {
			got = AppendErrArity(nil, c)
		} else {
			t.Fatalf("%q is no error", args)
		}
		if want := s.ask(b...); !bytes.Equal(got, want) {
			t.Errorf("%q:\n%q\nwant\n%q", args, got, want)
		}
	}
}

// words are what generated argument lists are made of: keys, counts right and
// wrong, and every option that leads a key.
var words = []string{
	"k1", "k2", "{t}3", "0", "1", "1", "2", "2", "3", "-1", "+1", "01", " 1", "99999999999", "x", "*", "$", ">",
	"store", "STORE", "storedist", "keys", "KEYS", "streams", "STREAMS", "by", "get", "limit", "weights", "aggregate",
	"count", "block", "group", "auth", "auth2", "copy", "replace", "left", "right", "min", "max", "m", "km", "",
}

func randomArgs(r *rand.Rand, c *Command) [][]byte {
	args := split(strings.ReplaceAll(c.Name, "|", " "))
	n := max(c.Arity, -c.Arity)
	if c.Arity < 0 {
		n += r.IntN(8)
	}
	for len(args) < n {
		args = append(args, []byte(words[r.IntN(len(words))]))
	}
	// Half of them well-formed where the count or keyword is.
	if r.IntN(2) == 0 {
		for i := range c.specs {
			switch s := &c.specs[i]; {
			case s.find == findKeyNum && s.pos < len(args):
				args[s.pos] = []byte(strconv.Itoa(r.IntN(4)))
			case s.begin == beginKeyword && s.pos > 0 && s.pos < len(args):
				args[s.pos+r.IntN(len(args)-s.pos)] = []byte(s.keyword)
			}
		}
	}
	return args
}

// refuses reports whether the server answers args with an error. In a transaction,
// where nothing blocks.
func (s *server) refuses(args [][]byte) bool {
	s.askLine("multi")
	if reply := s.ask(args...); reply[0] == '-' {
		s.askLine("discard")
		return true
	}
	return bytes.HasPrefix(s.askLine("exec"), []byte("*1\r\n-"))
}

// deviates lists where Keys knows better than GETKEYS: PFMERGE without a source
// has a key, and of several STORE options GETKEYS may name other ones than are used.
func deviates(c *Command, args [][]byte) bool {
	if c.Name == "pfmerge" {
		return len(args) == 2
	}
	stores := 0
	for _, a := range args {
		if equalFold(a, "store") || equalFold(a, "storedist") {
			stores++
		}
	}
	return (strings.HasPrefix(c.Name, "georadius") || strings.HasPrefix(c.Name, "sort")) && stores > 1
}

func TestKeysAgreeWithGetKeys(t *testing.T) {
	s := startServer(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	cases, withKeys, differ := 0, 0, 0
	for i := 1; i < len(commands); i++ {
		c := &commands[i]
		if !c.Listed() && c.Name != "migrate" || c.subs > 0 {
			continue
		}
		rounds := 20
		if c.Flags&FlagMovableKeys != 0 {
			rounds = 1500
		}
		for range rounds {
			args := randomArgs(r, c)
			if len(args) < 2 && c.Arity < 0 {
				args = append(args, []byte("k1"))
			}
			want := s.ask(append(split("command getkeys"), args...)...)
			var got []byte
			if len(args)+2 < 4 {
				continue // GETKEYS wants a command of two words at least
			}
			saved := c.Class
			c.Class = ClassSingleSlot // ask about refused ones too
			got = AppendGetKeys(nil, args)
			c.Class = saved
			cases++
			if want[0] == '*' {
				withKeys++
			}
			// GETKEYS guesses about requests that the command itself refuses (it
			// takes " 1" for a count): those do not matter.
			if !bytes.Equal(got, want) && !s.refuses(args) && !deviates(c, args) {
				if differ++; differ < 20 {
					t.Errorf("seed %d: %q:\n%q\nwant\n%q", seed, args, got, want)
				}
			}
		}
	}
	t.Logf("%d argument lists, %d with keys, %d differ", cases, withKeys, differ)
}

// What Keys gives up on may be sent anywhere, so the server must refuse it all.
func TestSyntaxErrorsAreRefusedByTheServer(t *testing.T) {
	s := startServer(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	n := 0
	for i := 1; i < len(commands); i++ {
		c := &commands[i]
		if c.subs > 0 || !c.HasKeys() || c.Class != ClassSingleSlot && c.Class != ClassSplit && c.Class != ClassScript && c.Class != ClassBlocking {
			continue
		}
		for range 1000 {
			args := randomArgs(r, c)
			if _, err := c.Keys(args, nil); err == nil {
				continue
			}
			n++
			if !s.refuses(args) {
				t.Fatalf("seed %d: %q is executed", seed, args)
			}
		}
	}
	t.Logf("%d argument lists", n)
}
