// Package wire is a raw, pipelined RESP2 connection to one node, for the two
// jobs where a general client is in the way: following a replication log, and
// copying hundreds of thousands of keys a second.
//
// Design. The caller appends commands to an out buffer, flushes when it likes,
// and reads replies in order. Replies are read typed, as views into the read
// buffer, so that a DUMP payload is copied once: into the RESTORE behind it.
// There is no reconnect: who needs an unbroken connection can rely on it.
//
// A Conn may be written by one goroutine and read by another at the same time.
package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"shardis/proxy/resp"
)

const (
	readBuffer = 256 << 10
	// Silence is how long a reply may take. It must allow for a slow script
	// and for the DUMP of a value of some hundred megabytes.
	silence = 60 * time.Second
)

// ServerError is an error reply, text as the server sent it.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// ErrNil is a nil reply where a value was wanted.
var ErrNil = errors.New("nil reply")

// Conn is one connection.
type Conn struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	out  []byte // appended, not yet written
	stop func() bool
}

// New takes over a connection that is logged in. It is closed at once when ctx
// ends.
func New(ctx context.Context, addr string, conn net.Conn) *Conn {
	c := &Conn{addr: addr, conn: conn, in: bufio.NewReaderSize(conn, readBuffer)}
	c.stop = context.AfterFunc(ctx, func() { _ = c.abort() })
	return c
}

// Addr is the node's address.
func (c *Conn) Addr() string { return c.addr }

// Close ends the connection.
func (c *Conn) Close() error {
	c.stop()
	return c.abort()
}

// abort closes with a reset: bytes that the node did not read yet are dropped,
// rather than executed after we are gone.
func (c *Conn) abort() error {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.conn.Close()
}

// Append adds a command to the out buffer.
func (c *Conn) Append(args ...string) {
	c.out = resp.AppendCommandStrings(c.out, args...)
}

// AppendKey adds a command of fixed words with a key behind them.
func (c *Conn) AppendKey(word string, key []byte) {
	c.out = resp.AppendArray(c.out, 2)
	c.out = resp.AppendBulkString(c.out, word)
	c.out = resp.AppendBulk(c.out, key)
}

// Buffer gives the out buffer to append encoded commands to; hand it back with
// SetBuffer.
func (c *Conn) Buffer() []byte { return c.out }

// SetBuffer replaces the out buffer.
func (c *Conn) SetBuffer(out []byte) { c.out = out }

// Flush writes the out buffer.
func (c *Conn) Flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(silence))
	_, err := c.conn.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 4<<20 {
		c.out = nil
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", c.addr, err)
	}
	return nil
}

// Write sends encoded commands at once, past the out buffer.
func (c *Conn) Write(encoded []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(silence))
	if _, err := c.conn.Write(encoded); err != nil {
		return fmt.Errorf("node %s: %w", c.addr, err)
	}
	return nil
}

// Raw is the byte stream behind the replies read so far.
func (c *Conn) Raw() io.Reader { return c.in }

// SetReadDeadline bounds reads from Raw; the zero time means no bound.
func (c *Conn) SetReadDeadline(t time.Time) { _ = c.conn.SetReadDeadline(t) }

// Do sends one command, with what was appended before it, and reads its reply.
func (c *Conn) Do(args ...string) (Value, error) {
	c.Append(args...)
	if err := c.Flush(); err != nil {
		return Value{}, err
	}
	v, err := c.Read()
	if err != nil {
		return v, err
	}
	if v.Kind == '-' {
		return v, ServerError(v.Bytes)
	}
	return v, nil
}

// Value is a reply of any shape, owned by the caller.
type Value struct {
	Kind  byte   // '+', '-', ':', '$', '*'; 0 for nil
	Bytes []byte // of statuses, errors and bulks
	Int   int64  // of integers
	Items []Value
}

// Text is Bytes as a string.
func (v Value) Text() string { return string(v.Bytes) }

// Number is the integer in a reply of either form.
func (v Value) Number() int64 {
	if v.Kind == ':' {
		return v.Int
	}
	n, _ := strconv.ParseInt(string(v.Bytes), 10, 64)
	return n
}

// Read reads one reply whole.
func (c *Conn) Read() (Value, error) {
	kind, n, text, err := c.header()
	if err != nil {
		return Value{}, err
	}
	switch kind {
	case '+', '-':
		return Value{Kind: kind, Bytes: append([]byte(nil), text...)}, nil
	case ':':
		return Value{Kind: kind, Int: n}, nil
	case '$':
		if n < 0 {
			return Value{}, nil
		}
		data, err := c.body(int(n))
		return Value{Kind: kind, Bytes: append([]byte{}, data...)}, err
	}
	if n < 0 {
		return Value{}, nil
	}
	v := Value{Kind: '*', Items: make([]Value, n)}
	for i := range v.Items {
		if v.Items[i], err = c.Read(); err != nil {
			return v, err
		}
	}
	return v, nil
}

// ReadInt reads an integer reply. A nil reply is ErrNil.
func (c *Conn) ReadInt() (int64, error) {
	kind, n, text, err := c.header()
	switch {
	case err != nil:
		return 0, err
	case kind == ':':
		return n, nil
	case kind == '-':
		return 0, ServerError(text)
	case kind == '$' && n < 0:
		return 0, ErrNil
	}
	return 0, fmt.Errorf("node %s: reply of type %q where an integer was due", c.addr, kind)
}

// ReadBulk reads a bulk reply as a view that is valid until the next read; nil
// for a nil reply.
func (c *Conn) ReadBulk() ([]byte, error) {
	kind, n, text, err := c.header()
	switch {
	case err != nil:
		return nil, err
	case kind == '-':
		return nil, ServerError(text)
	case kind != '$':
		return nil, fmt.Errorf("node %s: reply of type %q where a string was due", c.addr, kind)
	case n < 0:
		return nil, nil
	}
	return c.body(int(n))
}

// ReadArray reads the header of an array reply; its elements are to be read.
func (c *Conn) ReadArray() (int, error) {
	kind, n, text, err := c.header()
	switch {
	case err != nil:
		return 0, err
	case kind == '-':
		return 0, ServerError(text)
	case kind != '*':
		return 0, fmt.Errorf("node %s: reply of type %q where an array was due", c.addr, kind)
	}
	return int(max(n, 0)), nil
}

// Check reads one reply of any shape and gives its error if it is one.
func (c *Conn) Check() error {
	kind, n, text, err := c.header()
	switch {
	case err != nil:
		return err
	case kind == '-':
		return ServerError(text)
	case kind == '$' && n >= 0:
		_, err = c.body(int(n))
		return err
	case kind == '*':
		for range n {
			if err := c.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadLine reads one line without its end, as a view.
func (c *Conn) ReadLine() ([]byte, error) {
	if c.in.Buffered() == 0 {
		_ = c.conn.SetReadDeadline(time.Now().Add(silence))
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", c.addr, err)
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

// header reads a reply's first line; text is a view.
func (c *Conn) header() (kind byte, n int64, text []byte, err error) {
	line, err := c.ReadLine()
	if err != nil {
		return 0, 0, nil, err
	}
	if len(line) == 0 {
		return 0, 0, nil, fmt.Errorf("node %s: empty line where a reply was due", c.addr)
	}
	kind, text = line[0], line[1:]
	switch kind {
	case '+', '-':
		return kind, 0, text, nil
	case ':', '$', '*':
		n, ok := parseInt(text)
		if !ok {
			return 0, 0, nil, fmt.Errorf("node %s: number %q in a reply", c.addr, text)
		}
		return kind, n, nil, nil
	}
	return 0, 0, nil, fmt.Errorf("node %s: reply of unknown type %q", c.addr, kind)
}

// body reads a bulk of n bytes and its line end, as a view.
func (c *Conn) body(n int) ([]byte, error) {
	if c.in.Buffered() < n+2 {
		_ = c.conn.SetReadDeadline(time.Now().Add(silence))
	}
	if n+2 <= readBuffer {
		data, err := c.in.Peek(n + 2)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", c.addr, err)
		}
		_, _ = c.in.Discard(n + 2)
		return data[:n], nil
	}
	data := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.addr, err)
	}
	return data[:n], nil
}

func parseInt(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		n, err := strconv.ParseInt(string(b), 10, 64)
		return n, err == nil && !negative
	}
	var n int64
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	if negative {
		n = -n
	}
	return n, true
}
