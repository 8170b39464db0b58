package command

import "errors"

// Where a command's keys are is told by its key specs: from where to search (a
// fixed position, or behind a keyword) and how to go on (a range with step and
// limit, or a number that says how many). A few commands can not be described so;
// special.go has a function for each.

// ErrSyntax says that the arguments do not form a command whose keys can be told:
// a count that is no number or leads past the end. Redis refuses every such
// command, so it may be sent to any group to get Redis's own words.
var ErrSyntax = errors.New("arguments are not valid for the command")

type keySpec struct {
	flags keyFlag
	begin beginKind
	find  findKind

	pos     int    // beginIndex: position of the first key; beginKeyword: where the search starts, negative: from the end, backwards
	keyword string // beginKeyword: lower case

	last  int // findRange: last key relative to the first; negative: from the end
	step  int // findRange, findKeyNum: distance between keys
	limit int // findRange with negative last: only the first 1/limit of the rest are keys; 0 and 1: all

	numAt    int // findKeyNum: where the count is, relative to pos
	firstKey int // findKeyNum: where the first key is, relative to pos
}

type (
	beginKind uint8
	findKind  uint8
	keyFlag   uint16
)

const (
	beginUnknown beginKind = iota
	beginIndex
	beginKeyword
)

const (
	findUnknown findKind = iota
	findRange
	findKeyNum
)

const (
	keyRO keyFlag = 1 << iota
	keyRW
	keyOW
	keyRM
	keyAccess
	keyUpdate
	keyInsert
	keyDelete
	keyNotKey // a channel that is hashed like a key
	keyIncomplete
	keyVariableFlags
)

// Keys appends to dst the positions in args of all keys, in the order of the key
// specs; a key named twice is there twice. args must have passed CheckArity. There
// are none, without an error, only for commands that have none or need none (EVAL).
// The only error is ErrSyntax.
func (c *Command) Keys(args [][]byte, dst []int) ([]int, error) {
	if c.KeyPos > 0 {
		return append(dst, c.KeyPos), nil
	}
	n := len(dst)
	dst, err := c.allKeys(args, dst, keyNotKey)
	if err == nil && len(dst) == n && c.HasKeys() && c.Flags&FlagNoMandatoryKeys == 0 {
		err = ErrSyntax
	}
	return dst, err
}

// Channels is Keys for the shard channels of SPUBLISH, SSUBSCRIBE and SUNSUBSCRIBE.
func (c *Command) Channels(args [][]byte, dst []int) ([]int, error) {
	n := len(dst)
	dst, err := c.allKeys(args, dst, 0)
	if err == nil && len(c.specs) > 0 && c.specs[0].flags&keyNotKey == 0 {
		dst = dst[:n]
	}
	return dst, err
}

// HasKeys reports whether the command can have keys.
func (c *Command) HasKeys() bool {
	for i := range c.specs {
		if c.specs[i].flags&keyNotKey == 0 {
			return true
		}
	}
	return false
}

func (c *Command) allKeys(args [][]byte, dst []int, skip keyFlag) ([]int, error) {
	if c.special != nil {
		return c.special(args, dst)
	}
	for i := range c.specs {
		s := &c.specs[i]
		if s.flags&skip != 0 {
			continue
		}
		var err error
		if dst, err = s.keys(args, dst); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (s *keySpec) keys(args [][]byte, dst []int) ([]int, error) {
	first := s.pos
	switch s.begin {
	case beginUnknown:
		return dst, ErrSyntax
	case beginKeyword:
		if first = s.findKeyword(args); first == 0 {
			return dst, nil
		}
	}
	last := 0
	switch s.find {
	case findRange:
		switch {
		case s.last >= 0:
			last = first + s.last
		case s.limit > 1:
			last = first + (len(args)-first)/s.limit + s.last
		default:
			last = len(args) + s.last
		}
		if last < first && s.last < 0 {
			return dst, nil // PFMERGE without a source
		}
	case findKeyNum:
		n, ok := 0, first+s.numAt < len(args)
		if ok {
			n, ok = parseCount(args[first+s.numAt])
		}
		if !ok {
			return dst, ErrSyntax
		}
		if n == 0 {
			return dst, nil
		}
		first += s.firstKey
		if n > len(args) {
			return dst, ErrSyntax
		}
		last = first + (n-1)*s.step
	default:
		return dst, ErrSyntax
	}
	if first >= len(args) || last < first || last >= len(args) {
		return dst, ErrSyntax
	}
	for i := first; i <= last; i += s.step {
		dst = append(dst, i)
	}
	return dst, nil
}

// findKeyword returns the position behind the keyword, 0 if it is not there.
func (s *keySpec) findKeyword(args [][]byte) int {
	if s.pos >= 0 {
		for i := s.pos; i < len(args); i++ {
			if equalFold(args[i], s.keyword) {
				return i + 1
			}
		}
		return 0
	}
	for i := len(args) + s.pos; i > 0; i-- {
		if equalFold(args[i], s.keyword) {
			return i + 1
		}
	}
	return 0
}

// parseCount reads a count of keys as strictly as Redis: digits only, no sign, no
// leading zero, no space. What does not fit an int32 is more than any request has.
func parseCount(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 10 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	n := 0
	for _, d := range b {
		if d -= '0'; d > 9 {
			return 0, false
		}
		n = n*10 + int(d)
	}
	return n, true
}
