package session

import (
	"time"

	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/resp"
)

// Checker asks masters and replicas, once a second, what package replicas
// judges by. One loop has one, and shares what it finds with all. It works on
// the loop's own pipelines, so it sees what clients' reads would see, and needs
// neither etcd nor a coordinator.
//
// A master is asked first and its replicas once it answered: a replica that
// keeps up has then all that the master had, also under a steady stream of
// writes. A master that does not answer within the second is not waited for. A
// node still asked when the next round begins is not asked again: a replica then
// counts as unreachable.
type Checker struct {
	env     *Env
	publish func(*replicas.Snapshot)
	last    int64
	groups  map[string]*checkedGroup
	changed bool // verdicts differ from what was published
}

type checkedGroup struct {
	id       string
	master   string
	log      *replicas.Log
	asking   *masterProbe
	replicas map[string]*checkedReplica
}

type checkedReplica struct {
	verdict replicas.Verdict
	asking  *replicaProbe
}

// checkEvery is how often nodes are asked.
const checkEvery = time.Second

// NewChecker makes a checker that works on a loop's pipelines. publish is called
// within Flush when a verdict changed.
func NewChecker(e *Env, publish func(*replicas.Snapshot)) *Checker {
	return &Checker{env: e, publish: publish, groups: map[string]*checkedGroup{}}
}

// Tick starts a round when it is time. It is to be called at least once a second.
func (c *Checker) Tick() {
	e := c.env
	const early = int64(50 * time.Millisecond) // rather than a whole tick late
	if e.Table == nil || c.last != 0 && e.Now-c.last < int64(checkEvery)-early {
		return
	}
	c.last = e.Now
	c.follow()
	for i := range e.Table.Groups {
		g := c.groups[e.Table.Groups[i].ID]
		if len(g.replicas) == 0 || e.Table.Groups[i].GivenUp {
			continue
		}
		if g.asking != nil {
			c.askReplicas(g) // without waiting any longer
			continue
		}
		g.asking = &masterProbe{checker: c, group: g, at: e.Now}
		e.Pool.Lane(2, 0).To(i).Add(resp.AppendCommandStrings(nil, "INFO", "replication"), g.asking, 0, true)
	}
}

// follow makes groups those of the table in force.
func (c *Checker) follow() {
	t := c.env.Table
	was := c.groups
	c.groups = make(map[string]*checkedGroup, len(t.Groups))
	for i := range t.Groups {
		group := &t.Groups[i]
		g := was[group.ID]
		if g == nil || g.master != group.Master {
			// Another master has another log; what is asked of the old one is void.
			g = &checkedGroup{id: group.ID, master: group.Master, log: replicas.NewLog(2*c.env.Config.MaxLag + time.Minute)}
		}
		before := g.replicas
		g.replicas = make(map[string]*checkedReplica, len(group.Replicas))
		for _, r := range group.Replicas {
			known := before[r.Addr]
			if known == nil {
				known = &checkedReplica{verdict: replicas.Verdict{Group: g.id, Node: r.Addr}}
				c.changed = true
			}
			g.replicas[r.Addr] = known
		}
		c.changed = c.changed || len(before) != len(g.replicas)
		c.groups[g.id] = g
	}
	c.changed = c.changed || len(was) != len(c.groups)
}

// Flush publishes the verdicts if they changed. It is to be called at the end
// of each of the loop's turns.
func (c *Checker) Flush() {
	if !c.changed {
		return
	}
	c.changed = false
	s := &replicas.Snapshot{Verdicts: map[string]replicas.Verdict{}}
	for _, g := range c.groups {
		for _, r := range g.replicas {
			s.Verdicts[r.verdict.Node] = r.verdict
		}
	}
	c.publish(s)
}

// askReplicas asks all replicas of a group; one that is still being asked is
// unreachable.
func (c *Checker) askReplicas(g *checkedGroup) {
	t := c.env.Table
	i := t.GroupByID(g.id)
	if i < 0 || c.groups[g.id] != g {
		return
	}
	lane := c.env.Pool.Lane(2, 0)
	for j, node := range t.Groups[i].Replicas {
		r := g.replicas[node.Addr]
		switch {
		case r == nil: // the table is newer than this round
		case r.asking != nil:
			c.found(r, replicas.Unreachable, 0)
		default:
			r.asking = &replicaProbe{checker: c, group: g, replica: r}
			p := lane.ToReplica(i, j)
			p.Add(resp.AppendCommandStrings(nil, "INFO", "replication"), r.asking, 0, true)
			p.Add(resp.AppendCommandStrings(nil, "INFO", "persistence"), r.asking, 1, true)
		}
	}
}

func (c *Checker) found(r *checkedReplica, state replicas.State, covered int64) {
	if r.verdict.State != state || r.verdict.Covered != covered {
		r.verdict.State, r.verdict.Covered = state, covered
		c.changed = true
	}
}

// masterProbe takes a master's answer.
type masterProbe struct {
	checker *Checker
	group   *checkedGroup
	at      int64
}

// Reply implements backend.Receiver.
func (p *masterProbe) Reply(_ int, reply []byte) {
	if text, ok := bulk(reply); ok {
		p.group.log.Note(replicas.ParseInfo(text), p.at)
	}
	p.done()
}

func (p *masterProbe) Resend(int, []byte, backend.Again) { p.done() }

// Fail implements backend.Receiver.
func (p *masterProbe) Fail(int, backend.Cause) { p.done() }

func (p *masterProbe) done() {
	p.group.asking = nil
	if p.checker.env.Now-p.at < int64(checkEvery) {
		p.checker.askReplicas(p.group)
	}
}

// replicaProbe takes the two parts of a replica's answer.
type replicaProbe struct {
	checker *Checker
	group   *checkedGroup
	replica *checkedReplica
	text    []byte
	parts   int
	failed  bool
}

// Reply implements backend.Receiver.
func (p *replicaProbe) Reply(_ int, reply []byte) {
	text, ok := bulk(reply)
	p.text = append(p.text, text...)
	p.part(ok)
}

func (p *replicaProbe) Resend(int, []byte, backend.Again) { p.part(false) }

// Fail implements backend.Receiver.
func (p *replicaProbe) Fail(int, backend.Cause) { p.part(false) }

func (p *replicaProbe) part(ok bool) {
	p.failed = p.failed || !ok
	if p.parts++; p.parts < 2 || p.replica.asking != p {
		return
	}
	p.replica.asking = nil
	if p.failed {
		p.checker.found(p.replica, replicas.Unreachable, 0)
	} else {
		state, covered := p.group.log.Judge(replicas.ParseInfo(p.text))
		p.checker.found(p.replica, state, covered)
	}
}

// bulk gives the text of a bulk reply.
func bulk(reply []byte) ([]byte, bool) {
	kind, n, size, ok := resp.Header(reply)
	if !ok || kind != '$' || n < 0 {
		return nil, false
	}
	return reply[size : size+n], true
}
