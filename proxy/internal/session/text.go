package session

import (
	"bytes"
	"strconv"
)

// parseInt reads an integer as strictly as Redis reads arguments: no plus sign,
// no leading zero, no blank.
func parseInt(b []byte) (n int64, ok bool) {
	digits := b
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] < '0' || digits[0] > '9' || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// shown is the part of an argument that Redis prints in an error: it ends at a
// zero byte.
func shown(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
