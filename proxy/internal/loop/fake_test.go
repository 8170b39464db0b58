package loop_test

import (
	"net"
	"strings"
	"sync"

	"github.com/tidwall/redcon"
)

// fake is a node played by redcon. The login's second step is answered as a
// redis-server would; everything else is up to the test.
type fake struct {
	reply func(args []string) []byte
	mu    sync.Mutex
	conns map[redcon.Conn]bool
	ln    net.Listener
}

func newFake(reply func(args []string) []byte) *fake {
	return &fake{reply: reply, conns: map[redcon.Conn]bool{}}
}

// Serve answers until Close.
func (f *fake) Serve(ln net.Listener) error {
	f.mu.Lock()
	f.ln = ln
	f.mu.Unlock()
	return redcon.Serve(ln, f.handle, func(c redcon.Conn) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conns[c] = true
		return true
	}, func(c redcon.Conn, _ error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	})
}

// Close ends all connections.
func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.NetConn().Close()
	}
	return f.ln.Close()
}

func (f *fake) handle(c redcon.Conn, cmd redcon.Command) {
	var args []string
	for _, a := range cmd.Args {
		args = append(args, string(a))
	}
	switch strings.ToUpper(args[0]) {
	case "CLIENT":
		switch strings.ToUpper(args[1]) {
		case "ID":
			c.WriteInt(7)
		case "KILL":
			c.WriteInt(0)
		default:
			c.WriteString("OK")
		}
		return
	case "INFO":
		c.WriteBulkString("redis_version:7.0.15\r\n")
		return
	}
	reply := f.reply(args)
	if reply == nil {
		_ = c.Close()
		return
	}
	c.WriteRaw(reply)
}
