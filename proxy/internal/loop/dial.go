package loop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"shardis/proxy/internal/backend"
)

// Dial implements backend.Dialer: it opens a socket without waiting for it.
// Names are looked up aside; addresses need no look-up.
func (l *loop) Dial(p *backend.Pipeline) {
	l.resolved++
	token := l.resolved
	l.resolving[p] = token
	if addr, err := netip.ParseAddrPort(p.Node()); err == nil {
		if err := l.connect(p, addr); err != nil {
			l.post(func() { l.dialed(p, token, netip.AddrPort{}, err) })
		}
		return
	}
	node := p.Node()
	l.engine.background(func(ctx context.Context) {
		addr, err := lookUp(ctx, node)
		l.post(func() { l.dialed(p, token, addr, err) })
	})
}

func lookUp(ctx context.Context, node string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(node)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("node %s: %w", node, err)
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("node %s: %w", node, err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("node %s: %w", node, err)
	}
	best := ips[0]
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			best = ip
			break
		}
	}
	return netip.AddrPortFrom(best.Unmap(), uint16(number)), nil
}

// dialed goes on after a look-up, or reports a failure, unless the pipeline
// gave up meanwhile.
func (l *loop) dialed(p *backend.Pipeline, token int, addr netip.AddrPort, err error) {
	if l.resolving[p] != token || l.stop {
		return
	}
	if err == nil {
		err = l.connect(p, addr)
	}
	if err != nil {
		delete(l.resolving, p)
		p.Lost(err)
	}
}

func (l *loop) connect(p *backend.Pipeline, addr netip.AddrPort) error {
	family, sa := sockaddr(addr)
	fd, err := newSocket(family)
	if err != nil {
		return fmt.Errorf("node %s: %w", p.Node(), os.NewSyscallError("socket", err))
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	setKeepAlive(fd, 15)
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return fmt.Errorf("node %s: %w", p.Node(), os.NewSyscallError("connect", err))
	}
	c := &conn{fd: int32(fd), pipeline: p, connecting: true}
	if err := l.register(c, false, true); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.Handle = c.fd
	delete(l.resolving, p)
	return nil
}

// Hangup implements backend.Dialer.
func (l *loop) Hangup(p *backend.Pipeline) {
	delete(l.resolving, p)
	if p.Handle < 0 {
		return
	}
	if c := l.conns[p.Handle]; c != nil && c.pipeline == p {
		l.drop(c)
	}
	p.Handle = -1
}
