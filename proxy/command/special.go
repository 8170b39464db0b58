package command

import "errors"

// ErrPattern is the answer to a SORT whose BY or GET pattern names keys of other slots.
// Redis Cluster refuses all such patterns; here one with the hash tag of the
// sorted key is served, since the keys it makes are all in that slot.
var ErrPattern = errors.New("ERR BY and GET patterns of SORT must contain the hash tag of the sorted key")

func init() {
	for name, f := range map[string]func([][]byte, []int) ([]int, error){
		"sort":              sortKeys,
		"sort_ro":           sortKeys,
		"migrate":           migrateKeys,
		"georadius":         func(args [][]byte, dst []int) ([]int, error) { return geoKeys(args, dst, 6) },
		"georadiusbymember": func(args [][]byte, dst []int) ([]int, error) { return geoKeys(args, dst, 5) },
	} {
		lookupName([]byte(name)).special = f
	}
}

// sortKeys finds the sorted key and the last STORE destination. Options may stand
// in any order, and a value may look like an option (BY STORE), so all are walked.
// SORT_RO has no STORE: Redis refuses it, wherever it is sent.
func sortKeys(args [][]byte, dst []int) ([]int, error) {
	if len(args) < 2 {
		return dst, ErrSyntax
	}
	dst = append(dst, 1)
	store := 0
	for i := 2; i < len(args); i++ {
		switch a := args[i]; {
		case equalFold(a, "limit"):
			i += 2
		case equalFold(a, "by"), equalFold(a, "get"):
			i++
		case equalFold(a, "store"):
			if i++; i < len(args) {
				store = i
			}
		}
	}
	if store > 0 {
		dst = append(dst, store)
	}
	return dst, nil
}

// geoKeys finds the searched key and every STORE and STOREDIST destination among
// the options, which start at position options. The key specs would look for the
// keywords anywhere, and take a destination named "storedist" for one.
func geoKeys(args [][]byte, dst []int, options int) ([]int, error) {
	if len(args) < 2 {
		return dst, ErrSyntax
	}
	dst = append(dst, 1)
	for i := options; i < len(args); i++ {
		switch a := args[i]; {
		case equalFold(a, "count"):
			i++
		case equalFold(a, "store"), equalFold(a, "storedist"):
			if i++; i < len(args) {
				dst = append(dst, i)
			}
		}
	}
	return dst, nil
}

// migrateKeys finds the key, or those behind the last KEYS when the key is empty.
func migrateKeys(args [][]byte, dst []int) ([]int, error) {
	if len(args) < 6 {
		return dst, ErrSyntax
	}
	for i := 6; len(args[3]) == 0 && i < len(args); i++ {
		switch a := args[i]; {
		case equalFold(a, "keys"):
			for i++; i < len(args); i++ {
				dst = append(dst, i)
			}
			return dst, nil
		case equalFold(a, "auth"):
			i++
		case equalFold(a, "auth2"):
			i += 2
		}
	}
	return append(dst, 3), nil
}

// SortPatterns appends the positions of BY and GET patterns that name other keys:
// those with a '*', except GET #. It is empty for other commands than SORT.
func (c *Command) SortPatterns(args [][]byte, dst []int) []int {
	if c.Name != "sort" && c.Name != "sort_ro" {
		return dst
	}
	for i := 2; i < len(args); i++ {
		switch a := args[i]; {
		case equalFold(a, "limit"):
			i += 2
		case equalFold(a, "store"):
			i++
		case equalFold(a, "by"), equalFold(a, "get"):
			i++
			if i < len(args) && hasStar(args[i]) {
				dst = append(dst, i)
			}
		}
	}
	return dst
}

func hasStar(b []byte) bool {
	for _, c := range b {
		if c == '*' {
			return true
		}
	}
	return false
}

// Blocks reports whether the command, with these arguments, may wait for other
// clients: the blocking commands always, XREAD and XREADGROUP with BLOCK.
func (c *Command) Blocks(args [][]byte) bool {
	if c.Flags&FlagBlocking == 0 {
		return false
	}
	if c.Class == ClassBlocking {
		return true
	}
	i := 1
	for i < len(args) {
		switch a := args[i]; {
		case equalFold(a, "block"):
			return true
		case equalFold(a, "streams"):
			return false
		case equalFold(a, "count"):
			i += 2
		case equalFold(a, "group"):
			i += 3
		default:
			i++
		}
	}
	return false
}
