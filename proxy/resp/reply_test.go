package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// replies cuts data at cut, feeds both parts and returns the replies found.
func replies(data []byte, cut int) (found []string, rest int, err error) {
	var f ReplyFramer
	start := 0
	for _, end := range []int{cut, len(data)} {
		for {
			n, err := f.Next(bytes.Clone(data[start:end]))
			if err != nil {
				return found, 0, err
			}
			if n == 0 {
				break
			}
			found = append(found, string(data[start:start+n]))
			start += n
		}
	}
	return found, len(data) - start, nil
}

func TestReplyFramerFindsEnds(t *testing.T) {
	tests := [][]string{
		{"+OK\r\n", "-ERR no\r\n", ":12\r\n", ":-1\r\n", "$2\r\nxx\r\n", "$-1\r\n", "$0\r\n\r\n", "*-1\r\n", "*0\r\n"},
		{"*2\r\n$1\r\na\r\n*2\r\n:1\r\n*1\r\n$-1\r\n", "+PONG\r\n"},
		{"_\r\n", "#t\r\n", ",3.14\r\n", ",inf\r\n", "(3492890328409238509324850943850943825024385\r\n"},
		{"=15\r\ntxt:Some string\r\n", "!21\r\nSYNTAX invalid syntax\r\n"},
		{"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n", "~2\r\n+a\r\n+b\r\n", ">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n"},
		{"|1\r\n+ttl\r\n:3600\r\n*1\r\n|1\r\n+x\r\n+y\r\n:9\r\n", ":1\r\n"},
		{"$12\r\na\r\n+OK\r\n*3\r\n\r\n"},
		{"+" + strings.Repeat("x", 40) + "\r\n", "+\r\n"},
	}
	for _, want := range tests {
		data := []byte(strings.Join(want, ""))
		for cut := range len(data) + 1 {
			got, rest, err := replies(data, cut)
			if diff := cmp.Diff(want, got); diff != "" || rest != 0 || err != nil {
				t.Fatalf("%q cut at %d: rest %d, err %v: %s", data, cut, rest, err, diff)
			}
		}
	}
}

func TestReplyFramerRefuses(t *testing.T) {
	for _, in := range []string{
		"x\r\n", "$x\r\n", "$-2\r\n", "%-1\r\n", "$1\r\nab\r\n", "+OK\rx", "$1\rx", "*99999999999999\r\n",
		"*1\r\n?\r\n", "$?\r\n", "~-1\r\n",
	} {
		if got, rest, err := replies([]byte(in), 0); err == nil {
			t.Errorf("%q: no error, replies %q, rest %d", in, got, rest)
		}
	}
}

func TestReplyFramerNeverScansAgain(t *testing.T) {
	data := AppendArray(nil, 20_000)
	for i := range 20_000 {
		data = AppendInt(data, int64(i))
	}
	var f ReplyFramer
	for end := 1; end < len(data); end += 5 {
		if n, err := f.Next(data[:end]); n != 0 || err != nil {
			t.Fatalf("at %d: n %d, err %v", end, n, err)
		}
		if end-f.pos > 10 {
			t.Fatalf("position %d at end %d", f.pos, end)
		}
	}
	if n, err := f.Next(data); n != len(data) || err != nil {
		t.Fatalf("n %d of %d, err %v", n, len(data), err)
	}
}

func FuzzReplyFramer(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n%1\r\n:1\r\n_\r\n+OK\r\n"), uint16(4))
	f.Add([]byte("|1\r\n+a\r\n:1\r\n-ERR x\r\n"), uint16(7))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		whole, rest, err := replies(data, len(data))
		cut := int(at) % (len(data) + 1)
		parts, rest2, err2 := replies(data, cut)
		if diff := cmp.Diff(whole, parts); diff != "" || rest != rest2 || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("cut at %d: rest %d and %d, err %v and %v: %s", cut, rest2, rest, err2, err, diff)
		}
		for _, r := range whole {
			if n := Skip([]byte(r)); n != len(r) {
				t.Fatalf("Skip(%q) = %d", r, n)
			}
		}
	})
}

func BenchmarkReplyFramer(b *testing.B) {
	data := []byte(strings.Repeat("$2\r\nxx\r\n", 20))
	b.ReportAllocs()
	var f ReplyFramer
	for b.Loop() {
		for rest := data; len(rest) > 0; {
			n, err := f.Next(rest)
			if n == 0 || err != nil {
				b.Fatal(n, err)
			}
			rest = rest[n:]
		}
	}
}
