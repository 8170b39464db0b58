package command

// What a command does with each of its keys, as Redis's ACL sees it: the flags
// access, insert, update and delete of the key specs. Commands that only look at
// whether or how a key is there (EXISTS, TYPE) have neither right.

// Access is what a command does with a key.
type Access uint8

const (
	AccessRead  Access = 1 << iota // reads or copies its value
	AccessWrite                    // changes it
)

// KeyUse is one key of a command.
type KeyUse struct {
	At     int // position in the arguments
	Access Access
}

// KeyUses is Keys with what is done to each key. Without an error it names the
// same positions in the same order.
func (c *Command) KeyUses(args [][]byte, dst []KeyUse) ([]KeyUse, error) {
	if c.special != nil {
		return c.specialUses(args, dst)
	}
	for i := range c.specs {
		s := &c.specs[i]
		if s.flags&keyNotKey != 0 {
			continue
		}
		access := s.flags.access()
		if s.flags&keyVariableFlags != 0 {
			access = c.variableAccess(args)
		}
		// Few commands have more than a handful of keys in one spec, and those
		// that do, such as MSET, are no place to save an allocation for users
		// with limits.
		var at [16]int
		found, err := s.keys(args, at[:0])
		if err != nil {
			return dst, err
		}
		for _, k := range found {
			dst = append(dst, KeyUse{k, access})
		}
	}
	return dst, nil
}

// KeyAccess is the access to the key at KeyPos, where that does not depend on
// the other arguments. ok is false where it does, or KeyPos is 0.
func (c *Command) KeyAccess() (access Access, ok bool) {
	if c.KeyPos == 0 || c.specs[0].flags&keyVariableFlags != 0 {
		return 0, false
	}
	return c.specs[0].flags.access(), true
}

func (f keyFlag) access() (a Access) {
	if f&keyAccess != 0 {
		a |= AccessRead
	}
	if f&(keyInsert|keyUpdate|keyDelete) != 0 {
		a |= AccessWrite
	}
	return a
}

// specialUses says what the commands of special.go do: all read their first key
// and write the others, but for MIGRATE, which reads and deletes all.
func (c *Command) specialUses(args [][]byte, dst []KeyUse) ([]KeyUse, error) {
	var at [16]int
	found, err := c.special(args, at[:0])
	if err != nil {
		return dst, err
	}
	for i, k := range found {
		access := AccessWrite
		switch {
		case c.Name == "migrate":
			access = AccessRead | AccessWrite
		case i == 0:
			access = AccessRead
		case c.Name == "sort_ro":
			continue // has no STORE
		}
		dst = append(dst, KeyUse{k, access})
	}
	return dst, nil
}

// variableAccess is for the two commands whose options decide: SET reads with
// GET, BITFIELD writes with anything but GET. Where Redis is not sure, neither
// is this: the command counts as doing both.
func (c *Command) variableAccess(args [][]byte) Access {
	switch c.Name {
	case "set":
		for _, a := range args[min(3, len(args)):] {
			if equalFold(a, "get") {
				return AccessRead | AccessWrite
			}
		}
		return AccessWrite
	case "bitfield":
		for i := 2; i < len(args); {
			switch left := len(args) - i - 1; {
			case equalFold(args[i], "get") && left >= 2:
				i += 3
			case equalFold(args[i], "overflow") && left >= 1:
				i += 2
			default:
				return AccessRead | AccessWrite
			}
		}
		return AccessRead
	}
	return AccessRead | AccessWrite
}

// ChannelUse is one channel of a pub/sub command.
type ChannelUse struct {
	At      int
	Pattern bool // names all channels that match
}

// ChannelUses appends the channels that a command publishes to or subscribes to.
// Giving a subscription up is nobody's secret and is not listed.
func (c *Command) ChannelUses(args [][]byte, dst []ChannelUse) []ChannelUse {
	switch c.Name {
	case "publish", "spublish":
		return append(dst, ChannelUse{At: 1})
	case "subscribe", "ssubscribe", "psubscribe":
		for i := 1; i < len(args); i++ {
			dst = append(dst, ChannelUse{i, c.Name[0] == 'p'})
		}
	}
	return dst
}

// SortOption finds the first option of SORT that reaches keys other than those
// named: BY with a pattern, or GET. It gives the option's name, "" when there is
// none before the first thing that Redis would refuse anyway.
func (c *Command) SortOption(args [][]byte) string {
	if c.Name != "sort" && c.Name != "sort_ro" {
		return ""
	}
	for i := 2; i < len(args); {
		switch left := len(args) - i - 1; {
		case equalFold(args[i], "asc"), equalFold(args[i], "desc"), equalFold(args[i], "alpha"):
			i++
		case equalFold(args[i], "limit") && left >= 2 && isInteger(args[i+1]) && isInteger(args[i+2]):
			i += 3
		case equalFold(args[i], "store") && left >= 1 && c.Name == "sort":
			i += 2
		case equalFold(args[i], "by") && left >= 1:
			if hasStar(args[i+1]) {
				return "BY"
			}
			i += 2
		case equalFold(args[i], "get") && left >= 1:
			return "GET"
		default:
			return ""
		}
	}
	return ""
}

func isInteger(b []byte) bool {
	if len(b) > 1 && b[0] == '-' {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return false
	}
	for _, d := range b {
		if d-'0' > 9 {
			return false
		}
	}
	return true
}
