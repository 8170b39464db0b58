package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/redcon"
)

// frameAll feeds data to a fresh framer in two parts, cut at cut, and returns
// the commands and the error that ended them.
func frameAll(data []byte, cut int, limits Limits) (commands [][]string, rest int, err error) {
	var f Framer
	f.SetLimits(limits)
	start := 0
	for _, end := range []int{cut, len(data)} {
		for {
			// A copy of its own for each call: the framer must not keep views.
			view := bytes.Clone(data[start:end])
			args, n, err := f.Next(view)
			if err != nil {
				return commands, 0, err
			}
			if n == 0 {
				break
			}
			if len(args) > 0 {
				var words []string
				for _, a := range args {
					words = append(words, string(a))
				}
				commands = append(commands, words)
			}
			start += n
		}
	}
	return commands, len(data) - start, nil
}

func TestFramerCommands(t *testing.T) {
	tests := []struct {
		name, in string
		want     [][]string
		rest     int
	}{
		{name: "one array", in: "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", want: [][]string{{"GET", "a"}}},
		{name: "empty argument", in: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", want: [][]string{{"ECHO", ""}}},
		{name: "binary argument", in: "*1\r\n$6\r\n\r\n*1\x00\n\r\n", want: [][]string{{"\r\n*1\x00\n"}}},
		{name: "inline", in: "  get \t a\r\nPING\n", want: [][]string{{"get", "a"}, {"PING"}}},
		{name: "empty lines are skipped", in: "\r\n\n*0\r\n*-1\r\nPING\r\n", want: [][]string{{"PING"}}},
		{name: "mixed", in: "PING\r\n*1\r\n$4\r\nPING\r\nPING\r\n", want: [][]string{{"PING"}, {"PING"}, {"PING"}}},
		{name: "double quotes", in: `set a "x \x41\n\"\q"` + "\r\n", want: [][]string{{"set", "a", "x A\n\"q"}}},
		{name: "single quotes", in: `set 'a b' 'it\'s \n' ""` + "\r\n", want: [][]string{{"set", "a b", `it's \n`, ""}}},
		{name: "quote in a word", in: `a"b c"` + "\n", want: [][]string{{"ab c"}}},
		{name: "unfinished array", in: "*1\r\n$4\r\nPING\r\n*2\r\n$1\r\na\r\n", want: [][]string{{"PING"}}, rest: 11},
		{name: "two digits", in: "*1\r\n$12\r\nabcdefghijkl\r\n", want: [][]string{{"abcdefghijkl"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for cut := range len(tt.in) + 1 {
				got, rest, err := frameAll([]byte(tt.in), cut, Limits{})
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || rest != tt.rest {
					t.Fatalf("cut at %d: rest %d, want %d: %s", cut, rest, tt.rest, diff)
				}
			}
		})
	}
}

func TestFramerErrors(t *testing.T) {
	long := strings.Repeat("1", 70_000)
	tests := []struct {
		name, in string
		limits   Limits
		want     string
	}{
		{name: "no dollar", in: "*1\r\n:3\r\nGET\r\n", want: "Protocol error: expected '$', got ':'"},
		{name: "no dollar, line end", in: "*1\r\n\r\nGET\r\n", want: "Protocol error: expected '$', got ' '"},
		{name: "count no number", in: "*x\r\n", want: "Protocol error: invalid multibulk length"},
		{name: "count too large", in: "*1048577\r\n", want: "Protocol error: invalid multibulk length"},
		{name: "count overflows", in: "*99999999999999999999\r\n", want: "Protocol error: invalid multibulk length"},
		{name: "bulk negative", in: "*1\r\n$-1\r\n", want: "Protocol error: invalid bulk length"},
		{name: "bulk no number", in: "*1\r\n$1x\r\n", want: "Protocol error: invalid bulk length"},
		{name: "bulk leading zero", in: "*1\r\n$03\r\nGET\r\n", want: "Protocol error: invalid bulk length"},
		{name: "bulk too large", in: "*1\r\n$536870913\r\n", want: "Protocol error: invalid bulk length"},
		{name: "bulk without end", in: "*1\r\n$3\r\nGETxx", want: "Protocol error: expected CRLF after bulk"},
		{name: "lone carriage return", in: "*1\rx$3\r\nGET\r\n", want: "Protocol error: invalid multibulk length"},
		{name: "long count", in: "*" + long, want: "Protocol error: too big mbulk count string"},
		{name: "long bulk length", in: "*1\r\n$" + long, want: "Protocol error: too big bulk count string"},
		{name: "long inline", in: long, want: "Protocol error: too big inline request"},
		{name: "quotes", in: "get \"a\r\n", want: "Protocol error: unbalanced quotes in request"},
		{name: "quote then letter", in: "get \"a\"b\r\n", want: "Protocol error: unbalanced quotes in request"},
		{name: "unauthenticated count", in: "*11\r\n", limits: Limits{Unauthenticated: true}, want: "Protocol error: unauthenticated multibulk length"},
		{name: "unauthenticated bulk", in: "*1\r\n$16385\r\n", limits: Limits{Unauthenticated: true}, want: "Protocol error: unauthenticated bulk length"},
		{name: "whole command", in: "*2\r\n$6\r\nabcdef\r\n$6\r\n", limits: Limits{MaxCommand: 24}, want: "Protocol error: too big request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cuts := min(len(tt.in), 40)
			for cut := range cuts + 1 {
				_, _, err := frameAll([]byte(tt.in), cut, tt.limits)
				if err == nil || err.Error() != tt.want {
					t.Fatalf("cut at %d: error %v, want %s", cut, err, tt.want)
				}
			}
		})
	}
}

// A long command in small pieces must cost time linear in its length: the
// framer may look at each byte once only. Its position is the witness.
func TestFramerNeverScansAgain(t *testing.T) {
	data := AppendArray(nil, 20_001)
	data = AppendBulkString(data, "MSET")
	for i := range 20_000 {
		data = AppendBulkString(data, fmt.Sprintf("key:%d", i))
	}
	var f Framer
	last := 0
	for end := 1; end < len(data); end += 7 {
		if _, n, err := f.Next(data[:end]); n != 0 || err != nil {
			t.Fatalf("at %d of %d: n %d, err %v", end, len(data), n, err)
		}
		if f.pos < last || end-f.pos > 32 {
			t.Fatalf("position %d after %d at end %d", f.pos, last, end)
		}
		last = f.pos
	}
	args, n, err := f.Next(data)
	if len(args) != 20_001 || n != len(data) || err != nil {
		t.Fatalf("got %d arguments, n %d, err %v", len(args), n, err)
	}
}

func TestFramerDoesNotAllocate(t *testing.T) {
	data := AppendCommandStrings(nil, "SET", "key:000000001234", "xx")
	var f Framer
	if _, n, err := f.Next(data); n != len(data) || err != nil {
		t.Fatalf("n %d, err %v", n, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = f.Next(data) }); n != 0 {
		t.Errorf("%v allocations for a command", n)
	}
}

func FuzzFramer(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n"), uint16(3))
	f.Add([]byte("set \"a\\x41\" 'b'\r\n*1\r\n$0\r\n\r\n"), uint16(9))
	f.Add([]byte("*1\r\n$-1\r\n"), uint16(5))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		limits := Limits{MaxBulk: 64, MaxArgs: 16, MaxInline: 48, MaxCommand: 512}
		whole, rest, err := frameAll(data, len(data), limits)
		cut := int(at) % (len(data) + 1)
		parts, rest2, err2 := frameAll(data, cut, limits)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("cut at %d: error %v, whole %v", cut, err2, err)
		}
		if diff := cmp.Diff(whole, parts); diff != "" || rest != rest2 {
			t.Fatalf("cut at %d: rest %d and %d: %s", cut, rest2, rest, diff)
		}
		// What was framed, written and framed again is the same.
		var again []byte
		for _, words := range whole {
			again = AppendCommandStrings(again, words...)
		}
		same, rest, err := frameAll(again, 0, Limits{})
		if diff := cmp.Diff(whole, same); diff != "" || rest != 0 || err != nil {
			t.Fatalf("second round: rest %d, err %v: %s", rest, err, diff)
		}
	})
}

// BenchmarkFramer compares with redcon's reader on the same pipelines, whole
// and cut into pieces of 16 KiB as a socket delivers a long command.
func BenchmarkFramer(b *testing.B) {
	pipeline := func(depth int) []byte {
		var data []byte
		for i := range depth {
			data = AppendCommandStrings(data, "SET", fmt.Sprintf("key:%012d", i), "xx")
		}
		return data
	}
	for _, depth := range []int{1, 20} {
		data := pipeline(depth)
		b.Run(fmt.Sprintf("ours/depth=%d", depth), func(b *testing.B) {
			var f Framer
			b.ReportAllocs()
			for b.Loop() {
				for rest := data; len(rest) > 0; {
					_, n, err := f.Next(rest)
					if n == 0 || err != nil {
						b.Fatal(n, err)
					}
					rest = rest[n:]
				}
			}
		})
		b.Run(fmt.Sprintf("redcon/depth=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				commands, err := redcon.Parse(data)
				_ = commands
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("redconnext/depth=%d", depth), func(b *testing.B) {
			var args [][]byte
			b.ReportAllocs()
			for b.Loop() {
				for rest := data; len(rest) > 0; {
					complete, a, _, left, err := redcon.ReadNextCommand(rest, args[:0])
					if !complete || err != nil {
						b.Fatal(complete, err)
					}
					args, rest = a, left
				}
			}
		})
	}
	args := []string{"MSET"}
	for i := range 100_000 {
		args = append(args, fmt.Sprintf("key:%012d", i))
	}
	long := AppendCommandStrings(nil, args...)
	const piece = 16 << 10
	b.Run("ours/mset=100000", func(b *testing.B) {
		for b.Loop() {
			var f Framer
			for end := piece; ; end += piece {
				if _, n, _ := f.Next(long[:min(end, len(long))]); n != 0 {
					break
				}
			}
		}
	})
	b.Run("redconnext/mset=100000", func(b *testing.B) {
		for b.Loop() {
			var args [][]byte
			for end := piece; ; end += piece {
				complete, a, _, _, _ := redcon.ReadNextCommand(long[:min(end, len(long))], args[:0])
				if complete {
					break
				}
				args = a
			}
		}
	})
}
