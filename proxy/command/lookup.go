package command

import "encoding/binary"

// Looking a name up costs one hash, one table read and one comparison. The
// generator searched for a multiplier under which all names have places of their
// own, so there is no probing, and an unknown name fails at its first comparison.
//
// A name is packed into two words, its first and its last eight bytes, with bit 5
// of each byte set: that folds case for letters. Up to eight bytes the first word
// holds all of them, and since only letters become letters by setting the bit, a
// name of 1–8 letters (nearly all) is compared by that word alone. The others are
// compared byte by byte. A Go map needs a lower-cased copy of the name and was
// several times slower.

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
	first, last := pack(name)
	c := &commands[hashSlots[hash(first, last, len(name))]]
	if c.word == first && len(name) == len(c.Name) || equalFold(name, c.Name) {
		return c
	}
	return nil
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

const lowerBits = 0x2020202020202020

// pack gives the first and last eight bytes with bit 5 set, and of a shorter name
// all of its bytes and no last word.
func pack(name []byte) (first, last uint64) {
	n := len(name)
	switch {
	case n >= 8:
		return binary.LittleEndian.Uint64(name) | lowerBits, binary.LittleEndian.Uint64(name[n-8:]) | lowerBits
	case n >= 4:
		first = uint64(binary.LittleEndian.Uint32(name)) | uint64(binary.LittleEndian.Uint32(name[n-4:]))<<32
	default:
		first = uint64(name[0]) | uint64(name[n>>1])<<8 | uint64(name[n-1])<<16
	}
	return first | lowerBits, lowerBits
}

// pack and hash must stay the same as in gen/table.go.
func hash(first, last uint64, n int) uint64 {
	return (first*hashMul ^ last + uint64(n)) * hashMul >> (64 - hashBits)
}

// onlyLetters packs a lower-case name if that word alone tells it, else gives 0.
func onlyLetters(name string) uint64 {
	if len(name) == 0 || len(name) > 8 {
		return 0
	}
	for i := range len(name) {
		if name[i]-'a' >= 26 {
			return 0
		}
	}
	first, _ := pack([]byte(name))
	return first
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
