package session

import (
	"testing"

	"shardis/coordinator/topo"
	"shardis/proxy/resp"
)

// trip sends one command through a session and its pipelines and back, as a
// loop does in two turns, with the given replies by group.
func (w *world) trip(s *Session, data []byte, replies map[int][]byte) {
	s.Received(w.shared, copy(s.Space(w.shared), data))
	w.pipelines = w.env.Pool.TakeDirty(w.pipelines)
	for _, p := range w.pipelines {
		p.Wrote(len(p.Out()))
	}
	for g, reply := range replies {
		p := w.env.Pool.Lane(2, 0).To(g)
		if err := p.Received(w.shared, copy(p.Space(w.shared), reply)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.sessions = w.env.TakeDirty(w.sessions)
	for _, s := range w.sessions {
		s.Wrote(len(s.Out()))
	}
	if s.Inflight() != 0 {
		w.t.Fatal("no reply")
	}
}

type trip struct {
	name    string
	command []byte
	replies map[int][]byte
	allocs  float64 // at most
}

func trips() []trip {
	plain := func(words ...string) []byte { return resp.AppendCommandStrings(nil, words...) }
	many := func(name string) []byte {
		// 4 keys on g1, 3 on g2, 3 on g3.
		return plain(name, "b", "c", "d", "n", "z", "y", "f", "bar", "foo", "k2")
	}
	return []trip{
		{"GET", plain("GET", "b"), map[int][]byte{0: []byte("$2\r\nxx\r\n")}, 0},
		{"SET", plain("SET", "b", "xx"), map[int][]byte{0: []byte("+OK\r\n")}, 0},
		{"PING", plain("PING"), nil, 0},
		{"MGET 10 keys 3 groups", many("MGET"), map[int][]byte{
			0: []byte("*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"),
			1: []byte("*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"),
			2: []byte("*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"),
		}, 0},
		{"EXISTS 10 keys 3 groups", many("EXISTS"), map[int][]byte{
			0: []byte(":4\r\n"), 1: []byte(":3\r\n"), 2: []byte(":3\r\n"),
		}, 0},
	}
}

// connect opens the pipelines that the trips use.
func connect(t testing.TB) (*world, *Session) {
	w := newWorld(t, Config{})
	w.apply(func(*topo.Topology) {})
	w.clientSends("1", resp.AppendCommandStrings(nil, "MGET", "b", "c", "d"))
	for _, g := range []string{"g1", "g2", "g3"} {
		w.nodeSends(w.nodes[g].pipes[0], "*1\r\n$-1\r\n")
	}
	w.settle()
	return w, w.client("1").session
}

func TestPlainCommandsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w, s := connect(t)
	for _, tt := range trips() {
		for range 10 {
			w.trip(s, tt.command, tt.replies)
		}
		if n := testing.AllocsPerRun(500, func() { w.trip(s, tt.command, tt.replies) }); n > tt.allocs {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, n, tt.allocs)
		}
	}
}

func BenchmarkSession(b *testing.B) {
	w, s := connect(b)
	for _, tt := range trips() {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.trip(s, tt.command, tt.replies)
			}
		})
	}
}
