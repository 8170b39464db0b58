package loop

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"shardis/proxy/internal/replicas"
)

// listener is a listening socket. The first loop accepts for all and hands new
// clients to the loop with the fewest.
//
// SO_REUSEPORT, a listening socket for each loop, was rejected: the kernel
// spreads few clients badly, and two proxies started on one port by mistake
// would share it without an error.
type listener struct {
	fd    int
	addr  net.Addr
	reads replicas.Mode // of its clients
}

const backlog = 1024

// listen binds an address of the form host:port; an empty host means all.
func listen(address string) (*listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	family, sa := sockaddr(tcp.AddrPort())
	fd, err := newSocket(family)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, os.NewSyscallError("socket", err))
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if family == unix.AF_INET6 && tcp.IP != nil && !tcp.IP.IsUnspecified() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err := unix.Bind(fd, sa); err != nil {
		_ = unix.Close(fd)
		if err == unix.EADDRINUSE {
			return nil, fmt.Errorf("listen on %s: another process uses this port: %w", address, err)
		}
		return nil, fmt.Errorf("listen on %s: %w", address, os.NewSyscallError("bind", err))
	}
	if err := unix.Listen(fd, backlog); err != nil {
		_ = unix.Close(fd)
		if err == unix.EADDRINUSE {
			return nil, fmt.Errorf("listen on %s: another process uses this port: %w", address, err)
		}
		return nil, fmt.Errorf("listen on %s: %w", address, os.NewSyscallError("listen", err))
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen on %s: %w", address, os.NewSyscallError("getsockname", err))
	}
	return &listener{fd: fd, addr: net.TCPAddrFromAddrPort(addrPort(bound))}, nil
}

// sockaddr gives the system's form of an address; no IP means every address of
// both families.
func sockaddr(a netip.AddrPort) (family int, sa unix.Sockaddr) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	s := &unix.SockaddrInet6{Port: int(a.Port())}
	if ip.IsValid() {
		s.Addr = ip.As16()
		if zone := ip.Zone(); zone != "" {
			if i, err := net.InterfaceByName(zone); err == nil {
				s.ZoneId = uint32(i.Index)
			}
		}
	}
	return unix.AF_INET6, s
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
