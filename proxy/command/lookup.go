package command

import "encoding/binary"

// Looking a name up costs one multiplication-based hash, one table read and one
// comparison. The generator searched for a multiplier under which all names have
// places of their own, so there is no probing, and an unknown name fails at its
// first comparison. The hash sees the first and the last eight bytes with bit 5
// set, which folds case for letters; the few other bytes this confuses are told
// apart by the comparison. A Go map was 5 times slower and needs a lower-cased
// copy of the name.

const hashBits = 12

// Lookup finds the command that args name, the sub-command where the first
// argument is a container. Case does not matter. nil: unknown command or
// sub-command, see AppendErrUnknown. A container alone (CLIENT) is itself.
func Lookup(args [][]byte) *Command {
	c := lookupName(args[0])
	if c == nil || c.subs == 0 || len(args) == 1 {
		return c
	}
	return c.lookupSub(args[1])
}

// lookupName finds a command, never a sub-command, by name.
func lookupName(name []byte) *Command {
	if len(name) == 0 {
		return nil
	}
	c := &commands[hashSlots[hash(name)]]
	if !equalFold(name, c.Name) {
		return nil
	}
	return c
}

// lookupSub finds a sub-command: containers have at most some thirty, and they
// are not on the fast path.
func (c *Command) lookupSub(name []byte) *Command {
	skip := len(c.Name) + 1
	subs := c.subCommands()
	for i := range subs {
		if equalFold(name, subs[i].Name[skip:]) {
			return &subs[i]
		}
	}
	return nil
}

// hash must stay the same as in gen/table.go.
func hash(name []byte) uint64 {
	const lower = 0x2020202020202020
	var a, c uint64
	n := len(name)
	switch {
	case n >= 8:
		a, c = binary.LittleEndian.Uint64(name), binary.LittleEndian.Uint64(name[n-8:])
	case n >= 4:
		a = uint64(binary.LittleEndian.Uint32(name)) | uint64(binary.LittleEndian.Uint32(name[n-4:]))<<32
	default:
		a = uint64(name[0]) | uint64(name[n>>1])<<8 | uint64(name[n-1])<<16
	}
	return ((a|lower)*hashMul ^ (c | lower) + uint64(n)) * hashMul >> (64 - hashBits)
}

// equalFold compares with a lower-case name, ASCII case ignored.
func equalFold(s []byte, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i, b := range s {
		if b-'A' < 26 {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}
