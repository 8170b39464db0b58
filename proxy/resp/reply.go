package resp

import "bytes"

const (
	errReplyType   = ProtocolError("unknown reply type")
	errReplyLength = ProtocolError("invalid length in a reply")
	errReplyLine   = ProtocolError("too long line in a reply")
	errReplyEnd    = ProtocolError("expected CRLF in a reply")

	maxReplyLine  = 1 << 20 // bytes of a status, error or number
	maxReplyBulk  = 1 << 32 // bytes
	maxReplyItems = 1 << 32 // elements of one reply, all levels together
)

// ReplyFramer finds the end of one reply, RESP2 or RESP3, of any nesting. It
// needs no stack: whatever the shape, it is enough to know how many elements
// are still to come. The zero value is ready.
type ReplyFramer struct {
	pos  int // first byte of the current reply not yet consumed
	scan int // no line end lies before this byte (only for unfinished lines)
	left int // elements still to come
	bulk int // bytes of an announced bulk and its CRLF, still to come
}

// Next looks at data, which starts with the first byte of the current reply,
// and returns the reply's length, or 0 when it is not complete: then the next
// call must pass the same bytes again with more behind them. An error is
// final: the stream has lost its order.
func (f *ReplyFramer) Next(data []byte) (n int, err error) {
	if f.pos == 0 {
		f.left = 1
	}
	for {
		if f.bulk > 0 {
			end := f.pos + f.bulk
			if end > len(data) {
				return 0, nil
			}
			if data[end-2] != '\r' || data[end-1] != '\n' {
				return 0, errReplyEnd
			}
			f.pos, f.bulk = end, 0
		}
		if f.left == 0 {
			n = f.pos
			*f = ReplyFramer{}
			return n, nil
		}
		if f.pos >= len(data) {
			return 0, nil
		}
		done, err := f.element(data)
		if err != nil || !done {
			return 0, err
		}
	}
}

// element consumes the line at pos: one scalar, or the header of a bulk or an
// aggregate.
func (f *ReplyFramer) element(data []byte) (done bool, err error) {
	kind := data[f.pos]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		next, err := f.line(data)
		if err != nil || next == 0 {
			return false, err
		}
		f.pos = next
		f.left--
		return true, nil
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default:
		return false, errReplyType
	}
	next, err := f.line(data)
	if err != nil || next == 0 {
		return false, err
	}
	n, ok := parseInt(data[f.pos+1 : next-2])
	if !ok || n < -1 {
		return false, errReplyLength
	}
	f.pos = next
	f.left--
	switch {
	case n == -1:
		if kind != '$' && kind != '*' {
			return false, errReplyLength
		}
	case kind == '$' || kind == '=' || kind == '!':
		if n > maxReplyBulk {
			return false, errReplyLength
		}
		f.bulk = n + 2
	case kind == '%':
		f.left += 2 * n
	case kind == '|':
		f.left += 2*n + 1 // the reply proper follows its attributes
	default:
		f.left += n
	}
	if f.left > maxReplyItems {
		return false, errReplyLength
	}
	return true, nil
}

// line returns the first byte after the line at pos, 0 when it is unfinished.
func (f *ReplyFramer) line(data []byte) (next int, err error) {
	from := max(f.pos+1, f.scan)
	// Most lines are short: look at the next bytes before calling a function.
	i, short := from, min(from+16, len(data))
	for i < short && data[i] != '\r' {
		i++
	}
	if i == short {
		cr := bytes.IndexByte(data[i:], '\r')
		if cr < 0 {
			if len(data)-f.pos > maxReplyLine {
				return 0, errReplyLine
			}
			f.scan = len(data)
			return 0, nil
		}
		i += cr
	}
	if i+1 >= len(data) {
		f.scan = i
		return 0, nil
	}
	if data[i+1] != '\n' {
		return 0, errReplyEnd
	}
	f.scan = 0
	return i + 2, nil
}

// Started tells whether part of a reply was seen already.
func (f *ReplyFramer) Started() bool { return f.pos != 0 || f.scan != 0 }

// Need returns how many bytes the current reply takes at least, as far as is
// known.
func (f *ReplyFramer) Need() int { return f.pos + f.bulk }

// Skip returns the length of the complete reply at the start of data, 0 if
// there is none.
func Skip(data []byte) int {
	var f ReplyFramer
	n, err := f.Next(data)
	if err != nil {
		return 0
	}
	return n
}

// Header reads the first line of an aggregate or number reply: its type byte,
// its number and the length of the line. ok is false for anything else.
func Header(data []byte) (kind byte, n, size int, ok bool) {
	cr := bytes.IndexByte(data, '\r')
	if cr < 2 || cr+1 >= len(data) {
		return 0, 0, 0, false
	}
	digits, negative := data[1:cr], false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, 0, 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, 0, 0, false
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return data[0], n, cr + 2, true
}
