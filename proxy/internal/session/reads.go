package session

import (
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
)

// Reads from replicas. A session has a mode, of its listener or its user; in
// mode Master, the default, nothing here runs. In the other modes a command goes
// to a replica when
//
//   - Redis flags it readonly and it has keys that decide its way: plain, split,
//     and scripts of the _RO forms. What is asked of all groups goes to masters.
//   - the client did not write to its slots lately (replicas.Writes), and has no
//     transaction open: those go to masters as blocks; nor does it watch keys;
//   - its slots are not held, and a replica of their owner is fit (below).
//
// It is then marked movable: whatever goes wrong there, an error reply as well
// as a lost connection, has it sent to the master instead, so that a replica
// can make a read slower, never fail. In mode Only the errors are delivered, and
// nothing goes to a master but what the client wrote itself.
//
// Fit is a replica that has all its master had at most max_lag ago, and all it
// had when this loop took the table in which the group got its newest slots or
// its master. Without the latter a read of a slot that was just handed over
// could meet a replica that the keys have not reached yet: it would see them
// gone, a state that never was. Requests to replicas are part of a hold's
// drain (backend.Pool.abandonLate): one that a replica of the old owner answers
// late, after the keys were removed there, would see the same.

// readers is what a loop knows of replicas, made anew with every table and
// every snapshot.
type readers struct {
	snapshot *replicas.Snapshot
	groups   []readGroup // by group of the table in force
	next     uint        // takes turns
}

type readGroup struct {
	id         string
	since      int64 // a replica must have all the master had then
	all, near  []reader
	masterNear bool
}

// reader is a replica that may be fit.
type reader struct {
	index   int // in the group's Replicas
	covered int64
}

// apply follows a new table.
func (x *readers) apply(e *Env, t, before *router.Table) {
	addrs := make([][]string, len(t.Groups))
	was := x.groups
	x.groups = make([]readGroup, len(t.Groups))
	gained := t.Gained(before)
	for i := range t.Groups {
		for _, r := range t.Groups[i].Replicas {
			addrs[i] = append(addrs[i], r.Addr)
		}
		g := &x.groups[i]
		g.id, g.since = t.Groups[i].ID, e.Now
		if gained[i] {
			continue
		}
		for j := range was {
			if was[j].id == g.id {
				g.since = was[j].since
			}
		}
	}
	e.Pool.SetReplicas(addrs)
	x.compile(e, t)
}

// compile lists the replicas that may be fit.
func (x *readers) compile(e *Env, t *router.Table) {
	zone := e.Config.Zone
	for i := range x.groups {
		g := &x.groups[i]
		g.all, g.near = nil, nil
		g.masterNear = zone != "" && t.Groups[i].MasterZone == zone
		for j, r := range t.Groups[i].Replicas {
			v := x.snapshot.Of(g.id, r.Addr)
			if v.State != replicas.Usable {
				continue
			}
			g.all = append(g.all, reader{j, v.Covered})
			if zone != "" && r.Zone == zone {
				g.near = append(g.near, reader{j, v.Covered})
			}
		}
	}
}

// UseReplicas takes what a check of the replicas found.
func (e *Env) UseReplicas(s *replicas.Snapshot) {
	e.readers.snapshot = s
	if e.Table == nil {
		return
	}
	e.readers.compile(e, e.Table)
	for _, v := range s.Verdicts {
		if v.State == replicas.Unreachable {
			e.Pool.Abandon(v.Node)
		}
	}
}

// Replica tells what is known of a group's replica, and how old its data may be.
func (e *Env) Replica(group, node string) (state replicas.State, lag int64) {
	v := e.readers.snapshot.Of(group, node)
	if v.State == replicas.Usable {
		lag = e.Now - v.Covered
	}
	return v.At(e.Now, e.Config.MaxLag), lag
}

// replicaInfos is what INFO tells of the replicas; nothing where none is used.
func (e *Env) replicaInfos() []replicaInfo {
	if e.Table == nil || e.readers.snapshot == nil {
		return nil
	}
	var all []replicaInfo
	for _, g := range e.Table.Groups {
		for _, r := range g.Replicas {
			state, lag := e.Replica(g.ID, r.Addr)
			all = append(all, replicaInfo{g.ID, r.Addr, state, time.Duration(lag)})
		}
	}
	return all
}

// pick chooses a replica of a group, by its index there; -1: the master.
func (e *Env) pick(mode replicas.Mode, group int) int {
	x := &e.readers
	g := &x.groups[group]
	oldest := max(g.since, e.Now-int64(e.Config.MaxLag))
	if mode == replicas.Nearest {
		if i := x.choose(g.near, oldest); i >= 0 || g.masterNear {
			return i
		}
	}
	return x.choose(g.all, oldest)
}

func (x *readers) choose(from []reader, oldest int64) int {
	for range from {
		x.next++
		if r := &from[x.next%uint(len(from))]; r.covered >= oldest {
			return r.index
		}
	}
	return -1
}

// SetReads says where the session's reads go, as its listener has it. RESET
// returns to that.
func (s *Session) SetReads(mode replicas.Mode) {
	s.home = mode
	s.useReads(mode)
}

// useReads changes the mode until RESET.
func (s *Session) useReads(mode replicas.Mode) {
	s.reads = mode
	if mode != replicas.Master && s.env.Local.ReadsWanted != nil {
		s.env.Local.ReadsWanted.Store(true)
	}
}

// fromReplica reports whether a replica's answer is as good. TOUCH is a read to
// Redis, but is about what the master evicts.
func fromReplica(cmd *command.Command) bool { return cmd.ReadOnly() && cmd.Name != "touch" }

// readMode decides how a request about to be sent to slots is sent: by the
// session's mode, or, Master, as it would be without. It notes writes.
func (s *Session) readMode(r *Request, slots replicas.Slots) replicas.Mode {
	switch {
	case s.reads == replicas.Master:
	case !fromReplica(r.cmd):
		r.willWrite(slots)
	case s.watch != nil: // what it reads has to be as new as the watch
	case !s.writes.Recent(slots, s.env.Now):
		return s.reads
	}
	return replicas.Master
}

// queueByMode is queue for sessions in any mode.
func (s *Session) queueByMode(r *Request, slots replicas.Slots, group int, args [][]byte, raw []byte) {
	r.reads = s.readMode(r, slots)
	p, movable := r.target(group)
	if p == nil {
		r.fail(0, errNoReplica)
		return
	}
	s.queue(r, p, args, raw)
	if movable {
		p.Movable()
	}
}

// target is the pipeline for a request to group, nil if it is for replicas only
// and none is fit. movable: it leads to a replica, and the master can answer too.
func (r *Request) target(group int) (p *backend.Pipeline, movable bool) {
	if r.reads != replicas.Master {
		if i := r.env.pick(r.reads, group); i >= 0 {
			r.env.Stats.ReplicaReads++
			return r.lane.ToReplica(group, i), r.reads != replicas.Only
		}
		if r.reads == replicas.Only {
			return nil, false
		}
	}
	return r.lane.To(group), false
}

// readAgain sends a read that a replica gave back to the master, or in mode Only
// to another replica.
func (r *Request) readAgain(group, part int, command []byte, again backend.Again) {
	switch {
	case r.session == nil:
		r.fail(part, errNoReplica)
	case r.reads != replicas.Only:
		r.lane.To(group).AddAgain(command, r, part, again)
	default:
		p, _ := r.target(group)
		if p == nil {
			r.fail(part, errNoReplica)
			return
		}
		p.AddAgain(command, r, part, again)
	}
}

// willWrite notes, of a client that may read from replicas, what a request is
// about to write. Whatever builds requests itself calls it.
func (r *Request) willWrite(slots replicas.Slots) {
	s := r.session
	if s.reads == replicas.Master || r.cmd.ReadOnly() || s.env.Config.ReadYourWrites == 0 {
		return
	}
	if s.writes == nil {
		s.writes = &replicas.Writes{}
	}
	s.writes.Sent(slots)
	r.writes = slots
}

// wrote follows the reply to a write.
func (r *Request) wrote() {
	if s := r.session; s != nil {
		s.writes.Done(r.writes, r.env.Now+int64(r.env.Config.ReadYourWrites))
	}
	r.writes = 0
}
