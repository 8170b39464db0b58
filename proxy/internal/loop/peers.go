package loop

import (
	"sync/atomic"

	"shardis/proxy/internal/session"
)

// peers lets a session ask all loops (CLIENT LIST, INFO). The question travels
// through the loops' queues, and so does the answer: nobody waits.
type peers struct{ loop *loop }

var _ session.Peers = peers{}

func (p peers) Loops() int { return len(p.loop.engine.loops) }

func (p peers) Each(f func(i int, e *session.Env), done func()) {
	asking := p.loop
	f(asking.index, asking.env)
	var left atomic.Int32
	left.Store(int32(len(asking.engine.loops)))
	finish := func() {
		if left.Add(-1) == 0 {
			asking.post(done)
		}
	}
	for _, l := range asking.engine.loops {
		if l != asking {
			l.post(func() {
				f(l.index, l.env)
				finish()
			})
		}
	}
	finish()
}
