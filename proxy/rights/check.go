package rights

import (
	"strings"

	"shardis/proxy/command"
)

// Rights are rules compiled for checking: a bit for each command of the table,
// and patterns. They never change. What a user with all rights may do is not
// checked at all; see User.Rights.
type Rights struct {
	allowed     []uint64 // bit set by command ID
	keys        []keyPattern
	channels    []pattern
	allKeys     bool
	allChannels bool
	commands    []commandRule // for commands that are not in the table
}

type keyPattern struct {
	pattern
	access command.Access
}

// Denial says what a user may not do. Its values are the reasons ACL LOG gives.
type Denial uint8

const (
	Allowed Denial = iota
	DeniedCommand
	DeniedKey
	DeniedChannel
	DeniedLogin
)

var denials = [...]string{"", "command", "key", "channel", "auth"}

func (d Denial) String() string { return denials[d] }

// unlimited reports whether the rules allow everything.
func (r *Rules) unlimited() bool {
	return r.allKeys && r.allChannels && r.allCommands()
}

func (r *Rules) allCommands() bool { return len(r.commands) == 1 && r.commands[0].all }

// compile makes rights of rules.
func (r *Rules) compile() *Rights {
	c := &Rights{
		allowed: make([]uint64, (command.Count()+63)/64),
		allKeys: r.allKeys, allChannels: r.allChannels, commands: r.commands,
	}
	for _, k := range r.keys {
		c.keys = append(c.keys, keyPattern{compile(k.text), k.access})
	}
	for _, ch := range r.channels {
		c.channels = append(c.channels, compile(ch))
	}
	trusted := r.allKeys && r.allCommands()
	for id := 1; id < command.Count(); id++ {
		cmd := command.ByID(uint16(id))
		if allowed, named := decide(r.commands, cmd); allowed && (named || trusted || cmd.Class != command.ClassScript) {
			c.allowed[id/64] |= 1 << (id % 64)
		}
	}
	return c
}

// decide says whether rules, in their order, allow a command, and whether that is
// by a rule that names it or @scripting.
//
// A script can do what it likes with any key, and is run by the node, which knows
// the proxy and not the client. So a user with any limit may run scripts only
// where a rule says so in particular: +@all does not.
func decide(rules []commandRule, cmd *command.Command) (allowed, named bool) {
	for i := range rules {
		if r := &rules[i]; r.covers(cmd) {
			allowed = r.add
			named = allowed && (!r.all && !r.category || r.name == "scripting")
		}
	}
	return allowed, named
}

func (r *commandRule) covers(cmd *command.Command) bool {
	switch {
	case r.all:
		return true
	case r.category:
		return cmd.InCategory(r.name)
	}
	rest, found := strings.CutPrefix(cmd.Name, r.name)
	return found && (rest == "" || rest[0] == '|')
}

// Command reports whether a command may be run, with whatever arguments.
func (r *Rights) Command(cmd *command.Command) bool {
	if cmd.Flags&command.FlagNoAuth != 0 {
		return true
	}
	if cmd.ID == 0 {
		allowed, _ := decide(r.commands, cmd)
		return allowed
	}
	return r.allowed[cmd.ID/64]&(1<<(cmd.ID%64)) != 0
}

// Check says whether a command may be run, and if not, why and for which
// argument (0: the command itself). args must have passed CheckArity. uses is
// memory for it to work in; it gives that back, perhaps grown.
//
// As in Redis, arguments whose keys can not be told pass: no server executes them.
func (r *Rights) Check(cmd *command.Command, args [][]byte, uses []command.KeyUse) (Denial, int, []command.KeyUse) {
	if !r.Command(cmd) {
		return DeniedCommand, 0, uses
	}
	if !r.allKeys && cmd.HasKeys() {
		if access, ok := cmd.KeyAccess(); ok {
			if !r.Key(args[cmd.KeyPos], access) {
				return DeniedKey, cmd.KeyPos, uses
			}
		} else {
			found, err := cmd.KeyUses(args, uses[:0])
			uses = found[:0]
			for _, u := range found {
				if err == nil && !r.Key(args[u.At], u.Access) {
					return DeniedKey, u.At, uses
				}
			}
		}
	}
	if !r.allChannels {
		var room [8]command.ChannelUse
		for _, u := range cmd.ChannelUses(args, room[:0]) {
			if !r.Channel(args[u.At], u.Pattern) {
				return DeniedChannel, u.At, uses
			}
		}
	}
	return Allowed, 0, uses
}

// Key reports whether all of access to a key is allowed by one of the patterns.
func (r *Rights) Key(key []byte, access command.Access) bool {
	for i := range r.keys {
		if p := &r.keys[i]; p.access&access == access && p.match(key) {
			return true
		}
	}
	return r.allKeys
}

// Channel reports whether a channel may be used. A pattern to subscribe to must
// itself be among the user's patterns.
func (r *Rights) Channel(channel []byte, isPattern bool) bool {
	if r.allChannels {
		return true
	}
	if isPattern {
		return covers(r.channels, channel)
	}
	for i := range r.channels {
		if r.channels[i].match(channel) {
			return true
		}
	}
	return false
}

// ReadsAll reports whether every key may be read: what SORT's BY and GET ask for.
func (r *Rights) ReadsAll() bool {
	if r.allKeys {
		return true
	}
	for i := range r.keys {
		if p := &r.keys[i]; p.kind == prefix && p.text == "" && p.access&command.AccessRead != 0 {
			return true
		}
	}
	return false
}
