package loop

import (
	"time"

	"shardis/proxy/internal/replicas"
	"shardis/proxy/report"
)

// useReplicas hands what the first loop found out about replicas to all loops.
func (e *Engine) useReplicas(s *replicas.Snapshot) {
	for _, l := range e.loops {
		if l.checker != nil {
			l.env.UseReplicas(s) // this loop
			continue
		}
		l.post(func() { l.env.UseReplicas(s) })
	}
}

// describe adds what the table and the checks say of a node.
func (l *loop) describe(b *report.Backend) {
	t := l.env.Table
	if t == nil {
		return
	}
	for _, g := range t.Groups {
		if g.Master == b.Node {
			b.Group, b.Role = g.ID, "master"
			return
		}
		for _, r := range g.Replicas {
			if r.Addr == b.Node {
				b.Group, b.Role = g.ID, "replica"
				state, lag := l.env.Replica(g.ID, b.Node)
				b.Reads, b.LagSeconds = state.String(), time.Duration(lag).Seconds()
				return
			}
		}
	}
}
