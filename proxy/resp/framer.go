// Package resp frames RESP2 and RESP3 over borrowed bytes and writes replies.
//
// Nothing here reads a socket or copies a complete command. A Framer finds the
// arguments of one client command, a ReplyFramer the end of one server reply.
// Both are incremental: after an incomplete answer they remember how far they
// got, so input that arrives in pieces costs time linear in its length, however
// it was cut. Both keep offsets, never pointers, so the buffer may move between
// two calls as long as its content only grew at the end.
//
// They are strict where Redis is lax (a line must end in CRLF, a bulk must be
// followed by CRLF): bytes of many clients share one server connection, so what
// is passed on must mean the same to everybody who reads it.
package resp

import (
	"bytes"
	"fmt"
)

// Limits bound what a client may send. Zero values mean the default.
type Limits struct {
	MaxBulk    int // longest argument, bytes
	MaxArgs    int // most arguments of one command
	MaxInline  int // longest inline command and longest length line, bytes
	MaxCommand int // longest whole command, bytes

	// Unauthenticated bounds clients that still have to log in, to 10
	// arguments of 16 KiB as Redis does.
	Unauthenticated bool
}

// The defaults are Redis's, except MaxCommand: a server drops a connection
// whose query buffer passes 1 GiB, and here that connection is shared.
const (
	defaultMaxBulk    = 512 << 20
	defaultMaxArgs    = 1 << 20
	defaultMaxInline  = 64 << 10
	defaultMaxCommand = 768 << 20

	unauthenticatedBulk = 16 << 10
	unauthenticatedArgs = 10
)

func (l Limits) withDefaults() Limits {
	if l.MaxBulk == 0 {
		l.MaxBulk = defaultMaxBulk
	}
	if l.MaxArgs == 0 {
		l.MaxArgs = defaultMaxArgs
	}
	if l.MaxInline == 0 {
		l.MaxInline = defaultMaxInline
	}
	if l.MaxCommand == 0 {
		l.MaxCommand = defaultMaxCommand
	}
	return l
}

// ProtocolError is a fault of the peer. Its text follows "ERR " in the reply
// that a client gets before it is disconnected.
type ProtocolError string

func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

const (
	errMultibulkLength = ProtocolError("invalid multibulk length")
	errBulkLength      = ProtocolError("invalid bulk length")
	errUnauthArgs      = ProtocolError("unauthenticated multibulk length")
	errUnauthBulk      = ProtocolError("unauthenticated bulk length")
	errBigMultibulk    = ProtocolError("too big mbulk count string")
	errBigBulk         = ProtocolError("too big bulk count string")
	errBigInline       = ProtocolError("too big inline request")
	errBigCommand      = ProtocolError("too big request")
	errQuotes          = ProtocolError("unbalanced quotes in request")
	errBulkEnd         = ProtocolError("expected CRLF after bulk")
)

// Framer finds the commands in one client's byte stream. The zero value works
// with default limits.
type Framer struct {
	limits Limits

	args   [][]byte // views handed out by Next, reused
	bounds []bound  // arguments found so far of the current command

	pos   int  // first byte of the current command not yet consumed
	scan  int  // no line end lies before this byte (only for unfinished lines)
	large bool // args point into a large command
	want  int  // arguments announced by the header; 0 before it was read
	bulk  int  // length of the bulk being read; -1 when its header is to come
}

// bound is one argument, as offsets from the command's first byte.
type bound struct{ start, end int }

// SetLimits replaces the limits; it may be called between two commands.
func (f *Framer) SetLimits(l Limits) { f.limits = l.withDefaults() }

// Next looks at data, which starts with the first byte of the current command.
// It returns the command's arguments and its length in bytes, or n == 0 when
// the command is not complete: then the next call must pass the same bytes
// again, with more behind them. An empty line or "*0" yields n > 0 and no
// arguments. The arguments are views into data (unquoted inline arguments
// aside) and both they and the slice are valid until the next call or until
// data changes. An error is final.
func (f *Framer) Next(data []byte) (args [][]byte, n int, err error) {
	if f.want == 0 {
		if len(data) == 0 {
			return nil, 0, nil
		}
		if f.limits.MaxBulk == 0 {
			f.limits = f.limits.withDefaults()
		}
		if data[0] != '*' {
			return f.inline(data)
		}
		count, next, err := f.length(data, 0, errBigMultibulk, errMultibulkLength)
		if err != nil || next == 0 {
			return nil, 0, err
		}
		switch {
		case count <= 0:
			return nil, next, nil
		case count > f.limits.MaxArgs:
			return nil, 0, errMultibulkLength
		case f.limits.Unauthenticated && count > unauthenticatedArgs:
			return nil, 0, errUnauthArgs
		}
		f.want, f.pos, f.bulk = count, next, -1
	}
	return f.multibulk(data)
}

// multibulk goes on with the bulks of an array command.
func (f *Framer) multibulk(data []byte) ([][]byte, int, error) {
	for len(f.bounds) < f.want {
		if f.bulk < 0 {
			if f.pos >= len(data) {
				return nil, 0, nil
			}
			n, next, err := f.length(data, f.pos, errBigBulk, errBulkLength)
			if next == 0 && err == nil {
				return nil, 0, nil
			}
			if data[f.pos] != '$' && err != errBigBulk {
				return nil, 0, ProtocolError(fmt.Sprintf("expected '$', got '%c'", printable(data[f.pos])))
			}
			switch {
			case err != nil:
				return nil, 0, err
			case n < 0 || n > f.limits.MaxBulk:
				return nil, 0, errBulkLength
			case f.limits.Unauthenticated && n > unauthenticatedBulk:
				return nil, 0, errUnauthBulk
			case next+n > f.limits.MaxCommand:
				return nil, 0, errBigCommand
			}
			f.bulk, f.pos = n, next
		}
		end := f.pos + f.bulk
		if end+2 > len(data) {
			return nil, 0, nil
		}
		if data[end] != '\r' || data[end+1] != '\n' {
			return nil, 0, errBulkEnd
		}
		f.bounds = append(f.bounds, bound{f.pos, end})
		f.pos, f.bulk = end+2, -1
	}
	args := f.args[:0]
	for _, b := range f.bounds {
		args = append(args, data[b.start:b.end:b.end])
	}
	n := f.pos
	f.args = args
	f.reset()
	return args, n, nil
}

// reset forgets the finished command, and the arrays of an unusually long one.
func (f *Framer) reset() {
	const keep = 1024 // arguments
	f.bounds = f.bounds[:0]
	if cap(f.bounds) > keep {
		f.bounds, f.args = nil, nil
	}
	f.large = f.pos > largeCommand
	f.pos, f.scan, f.want, f.bulk = 0, 0, 0, -1
}

// largeCommand is the length in bytes above which memory counts.
const largeCommand = 64 << 10

// Rest must be called when a client may send nothing for a while: it lets go of
// the memory of a large command that was handed out last.
func (f *Framer) Rest() {
	if f.large {
		f.args, f.large = nil, false
	}
}

// Need returns how many bytes the current command takes at least, from its
// first byte, as far as is known. It lets a reader make room at once for a
// large argument.
func (f *Framer) Need() int {
	if f.want == 0 {
		return 0
	}
	if f.bulk < 0 {
		return f.pos
	}
	return f.pos + f.bulk + 2
}

// length reads the number in the line that starts at pos with a type byte.
// next is the first byte after the line, 0 when the line is not complete.
func (f *Framer) length(data []byte, pos int, tooBig, invalid error) (n, next int, err error) {
	// Nearly all lines are a type byte and at most nine digits, complete.
	i := pos + 1
	for i < len(data) && i-pos <= 9 {
		c := data[i]
		if c-'0' > 9 {
			break
		}
		n = n*10 + int(c-'0')
		i++
	}
	if digits := i - pos - 1; digits > 0 && i+1 < len(data) && data[i] == '\r' && data[i+1] == '\n' &&
		(digits == 1 || data[pos+1] != '0') {
		f.scan = 0
		return n, i + 2, nil
	}
	return f.oddLength(data, pos, tooBig, invalid)
}

// oddLength is length for lines that are unfinished, negative, long or wrong.
func (f *Framer) oddLength(data []byte, pos int, tooBig, invalid error) (n, next int, err error) {
	from := max(pos+1, f.scan)
	cr := -1
	if from < len(data) {
		cr = bytes.IndexByte(data[from:], '\r')
	}
	if cr < 0 {
		if len(data)-pos > f.limits.MaxInline {
			return 0, 0, tooBig
		}
		f.scan = len(data)
		return 0, 0, nil
	}
	cr += from
	if cr-pos > f.limits.MaxInline {
		return 0, 0, tooBig
	}
	if cr+1 >= len(data) {
		f.scan = cr
		return 0, 0, nil
	}
	f.scan = 0
	n, ok := parseInt(data[pos+1 : cr])
	if !ok || data[cr+1] != '\n' {
		return 0, cr + 2, invalid
	}
	return n, cr + 2, nil
}

// parseInt reads a decimal as Redis does: no plus sign, no leading zeros, no
// blanks. Numbers above 2^40 are refused: nothing here may be that long.
func parseInt(b []byte) (int, bool) {
	negative := len(b) > 1 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 12 || len(b) > 1 && b[0] == '0' || negative && b[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

func printable(c byte) byte {
	if c == '\r' || c == '\n' {
		return ' '
	}
	return c
}
