package backend

import (
	"slices"
	"strconv"

	"shardis/proxy/resp"
)

// A private pipeline carries one client's commands alone: one that may block
// would keep everybody behind it waiting. It is lent, and given back when its
// last reply has come; then the next client may have it. It takes part in holds,
// re-routing and debts like a shared one. For a command that may block it has no
// command timeout.

const (
	idlePrivates   = 64          // of one loop, kept open for the next client
	idlePrivateFor = int64(60e9) // how long
)

// Private lends a pipeline to the master of a group. A patient one waits for a
// reply without limit.
func (l *Lane) Private(group int, patient bool) *Pipeline {
	o, node := l.pool, l.pool.masters[group]
	for i := len(o.returned) - 1; i >= 0; i-- { // the newest first: the others may grow old
		p := o.returned[i]
		if !p.spent && p.node == node && p.proto == l.proto && p.db == l.db && p.state == ready {
			o.returned = slices.Delete(o.returned, i, i+1)
			p.lent, p.patient = true, patient
			return p
		}
	}
	p := &Pipeline{node: node, proto: l.proto, db: l.db, pool: o, Handle: -1, private: true, lent: true, patient: patient}
	o.privates = append(o.privates, p)
	return p
}

// GiveBack ends the use of a private pipeline. One that waits for replies still,
// or is not connected, is closed; so is, soon, one that is not clean: something
// that is on its way elsewhere is about it.
func (o *Pool) GiveBack(p *Pipeline, clean bool) {
	if !p.lent {
		return
	}
	p.lent, p.spent, p.idleSince = false, !clean, o.now
	if p.state != ready || p.ring.len() > 0 {
		o.closePrivate(p)
		return
	}
	o.returned = append(o.returned, p)
}

func (o *Pool) closePrivate(p *Pipeline) {
	d, owed := o.lost(p)
	o.dialer.Hangup(p)
	o.privates = slices.DeleteFunc(o.privates, func(other *Pipeline) bool { return other == p })
	p.ring, p.closed = ring{}, true
	p.enter(idle)
	if owed {
		o.collect(p.node, d)
	}
}

// collect asks for the end of a connection that was lost by way of the shared
// pipeline, as nobody may open a new connection to that node soon.
func (o *Pool) collect(node string, d debt) {
	o.pipeline(node, 2, 0).Add(resp.AppendCommandStrings(nil, killArgs(d)...), &collector{o, node, d}, 0, true)
}

// killArgs is the command that ends a connection for certain.
func killArgs(d debt) []string {
	args := []string{"CLIENT", "KILL", "ID", strconv.FormatInt(d.id, 10)}
	if d.user != "" {
		// The id may be another's after a restart of the node; ours alone
		// may be hit.
		args = append(args, "USER", d.user)
	}
	return args
}

// collector takes the answer to CLIENT KILL. When it does not come the shared
// pipeline was lost, and asks again when it greets the node.
type collector struct {
	pool *Pool
	node string
	debt debt
}

func (c *collector) Reply(int, []byte)         { c.pool.settle(c.node, c.debt) }
func (c *collector) Resend(int, []byte, Again) {}
func (c *collector) Fail(int, Cause)           {}

// tickPrivates closes what nobody has wanted for long, and what nobody may have.
func (o *Pool) tickPrivates() {
	extra := len(o.returned) - idlePrivates // the oldest come first
	o.returned = slices.DeleteFunc(o.returned, func(p *Pipeline) bool {
		extra--
		if extra < 0 && !p.spent && o.now-p.idleSince <= idlePrivateFor && p.state == ready && o.wants(p.node) {
			return false
		}
		o.closePrivate(p)
		return true
	})
}

// ConnID is the connection's CLIENT ID on the node, 0 while it has none.
func (p *Pipeline) ConnID() int64 { return p.id }

// Losses counts the connections that ended or could not be made. State of a
// connection is there as long as the number stays the same.
func (p *Pipeline) Losses() uint32 { return p.losses }
