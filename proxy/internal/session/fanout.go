package session

import (
	"shardis/proxy/command"
	"shardis/proxy/internal/replicas"
)

// A fan-out asks several groups and makes one reply of theirs. A handler (see
// local.go) starts it so:
//
//	r := s.ask(cmd, merge)
//	for _, g := range s.owners() {
//		r.to(g, encoded)
//	}
//
// merge is called once all parts are answered, with the output to append to;
// the parts' replies are r.reply(0) to r.reply(len(r.parts)-1), in the order of
// the calls of to, and r.firstError() is the first of them that is an error. A
// command that holds must stop returns s.noRoute(cmd, router.Held) from its
// handler.

// ask starts a request that will have parts. At least one call of to follows.
func (s *Session) ask(cmd *command.Command, merge func(r *Request, dst []byte) []byte) *Request {
	r := s.env.newRequest(s, cmd)
	r.how, r.merge = byGroup, merge
	r.willWrite(replicas.AllSlots)
	s.enqueue(r)
	return r
}

// to adds a part: an encoded command for a group of the table in force.
func (r *Request) to(group int, encoded []byte) {
	s := r.session
	r.parts = append(r.parts, part{group: s.env.Table.Groups[group].ID})
	r.left++
	p := r.lane.To(group)
	p.Add(encoded, r, len(r.parts)-1, r.cmd.ReadOnly())
	s.env.Stats.BackendRequests++
	if p.Full() {
		s.pause |= pausePipeline
		p.Notify(s)
	}
}

// owners lists the groups that own slots, nil before the first table.
func (s *Session) owners() []int {
	if s.env.Table == nil {
		return nil
	}
	var groups []int
	for i := range s.env.Table.Groups {
		if s.env.Table.Groups[i].Slots > 0 {
			groups = append(groups, i)
		}
	}
	return groups
}
