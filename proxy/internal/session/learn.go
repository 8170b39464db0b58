package session

import (
	"errors"
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/router"
	"shardis/proxy/resp"
)

// A command that is not in the table may be one of a module or of a newer server.
// The first client that sends it waits while one master is asked; what comes of
// it serves all clients of the loop. What the master does not know either is
// remembered for a while, so that a client with a typing error in a loop costs no
// master anything. A master that does not answer counts as "not known", shortly.

// lore is what one loop learned of commands that are not in the table.
type lore struct {
	entries map[string]*loreEntry // by lower-case name
}

type loreEntry struct {
	name    string
	cmd     *command.Command // nil: not known
	until   int64            // when a nil one is forgotten, on the loop's clock
	waiting []*Session       // the answer is not there yet
	asked   bool
}

const (
	maxLore     = 1024 // names remembered
	maxLoreName = 64   // bytes; longer names are not asked for
	unknownFor  = int64(10 * time.Second)
	silentFor   = int64(time.Second)
)

// learned finds a command that is not in the table. wait: a master is being
// asked, and the session paused until it answered.
func (s *Session) learned(args [][]byte) (cmd *command.Command, wait bool) {
	var lowered [maxLoreName]byte
	name := args[0]
	if len(name) == 0 || len(name) > maxLoreName || command.Known(name) || !s.loggedIn {
		return nil, false
	}
	for i, c := range name {
		lowered[i] = lower(c)
	}
	e, l := s.env, &s.env.Local.lore
	entry := l.entries[string(lowered[:len(name)])]
	switch {
	case entry == nil:
	case entry.cmd != nil:
		return entry.cmd.Resolve(args), false
	case entry.asked:
		entry.waiting = append(entry.waiting, s)
		s.pause |= pauseLearn
		return nil, true
	case e.Now < entry.until:
		return nil, false
	}
	group := s.mayAsk()
	if group < 0 || !l.makeRoom(e.Now) {
		return nil, false
	}
	entry = &loreEntry{name: string(lowered[:len(name)]), asked: true, waiting: []*Session{s}}
	l.entries[entry.name] = entry
	s.pause |= pauseLearn
	e.Pool.Lane(2, 0).To(group).Add(resp.AppendCommandStrings(nil, "COMMAND", "INFO", entry.name), &loreProbe{e, entry}, 0, true)
	return nil, true
}

// mayAsk picks the group to ask, -1 if there is none now.
func (s *Session) mayAsk() int {
	slot, ok := s.env.anchor()
	if !ok {
		return -1
	}
	group, refusal := s.env.Table.Route(slot)
	if refusal != router.OK {
		return -1
	}
	return group
}

// makeRoom forgets names that are not known when there are too many.
func (l *lore) makeRoom(now int64) bool {
	if l.entries == nil {
		l.entries = map[string]*loreEntry{}
	}
	if len(l.entries) < maxLore {
		return true
	}
	for name, entry := range l.entries {
		if entry.cmd == nil && !entry.asked && now >= entry.until {
			delete(l.entries, name)
		}
	}
	return len(l.entries) < maxLore
}

// loreProbe takes the master's answer.
type loreProbe struct {
	env   *Env
	entry *loreEntry
}

func (p *loreProbe) Reply(_ int, reply []byte) {
	cmd, err := command.Learn(p.entry.name, reply)
	if err != nil {
		hold := silentFor
		if errors.Is(err, command.ErrNotKnown) {
			hold = unknownFor
		}
		p.settle(nil, hold)
		return
	}
	p.settle(cmd, 0)
}

func (p *loreProbe) Resend(int, []byte, backend.Again) { p.settle(nil, silentFor) }

func (p *loreProbe) Fail(int, backend.Cause) { p.settle(nil, silentFor) }

func (p *loreProbe) settle(cmd *command.Command, hold int64) {
	entry := p.entry
	entry.cmd, entry.until, entry.asked = cmd, p.env.Now+hold, false
	for _, s := range entry.waiting {
		s.unpause(pauseLearn)
	}
	entry.waiting = nil
}
