package session

import (
	"strconv"
	"strings"
	"testing"

	"shardis/coordinator/topo"
	"shardis/proxy/resp"
)

// One reply may be longer than the hard limit: the client asked for it, so it
// gets it, whatever comes with it. What else it leaves unread is bounded.
func TestLargeReply(t *testing.T) {
	const soft, hard = 1 << 10, 16 << 10
	large := string(resp.AppendBulkString(nil, strings.Repeat("x", 4*hard)))
	small := string(resp.AppendBulkString(nil, strings.Repeat("y", hard/2)))
	part := func(size int) string {
		return "*1\r\n" + string(resp.AppendBulkString(nil, strings.Repeat("z", size)))
	}
	// Keys b and n are of g1, c of g2, d of g3.
	for _, test := range []struct {
		name   string
		sends  string
		steps  [][2]string // group and its reply
		closed bool
	}{
		{"alone", "GET b\r\n", [][2]string{{"g1", large}}, false},
		{"before others", "GET b\r\nGET b\r\nPING\r\n", [][2]string{{"g1", large + small}}, false},
		{"behind others", "GET b\r\nGET b\r\n", [][2]string{{"g1", small + large}}, false},
		{"behind one that is missing", "GET c\r\nGET b\r\n", [][2]string{{"g1", large}, {"g2", small}}, false},
		{"merged", "MGET b c d\r\n", [][2]string{{"g1", part(hard)}, {"g2", part(hard)}, {"g3", part(hard)}}, false},
		{"two", "GET b\r\nGET b\r\n", [][2]string{{"g1", large + large}}, true},
		{"many", "GET b\r\nGET b\r\nGET b\r\nGET b\r\nGET b\r\n", [][2]string{{"g1", strings.Repeat(small, 5)}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Config{OutputSoft: soft, OutputHard: hard})
			w.apply(func(*topo.Topology) {})
			w.clientSends("1", []byte(test.sends))
			for _, s := range test.steps {
				if err := w.step("reply " + s[0] + " " + strconv.Quote(s[1])); err != nil {
					t.Fatal(err)
				}
			}
			c := w.client("1")
			if c.closed != test.closed {
				t.Fatalf("closed %v, want %v", c.closed, test.closed)
			}
			if !c.closed && !c.session.WantRead() {
				t.Error("it is not read again")
			}
		})
	}
}

// A command that looks at the session itself must not disturb the input that
// came with it.
func TestListingClientsInsideAPacket(t *testing.T) {
	for _, command := range []string{"CLIENT INFO\r\n", "CLIENT LIST\r\n", "PING\r\n"} {
		w := newWorld(t, Config{})
		w.apply(func(*topo.Topology) {})
		w.clientSends("1", []byte("SET b 1\r\nGET b\r\n*2\r\n$3\r\nGE"))
		w.clientSends("1", []byte("T\r\n$1\r\nb\r\n"+command+"*2\r\n$3\r\nGET\r\n$2\r\nb"))
		w.clientSends("1", []byte("b\r\nGET b\r\n"))
		if err := w.step("node g1 SET b 1 | GET b | GET b | GET b"); err != nil {
			t.Errorf("%q: %v", command, err)
		}
		if err := w.step("node g2 GET bb"); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}
