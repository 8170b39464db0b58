package loop

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller tells which sockets are ready. Level-triggered, so that what one turn
// leaves the next one sees. All methods but wake are for the owning loop.
type poller struct {
	epoll  int
	eventf int // eventfd, for wake
	awake  atomic.Bool
	events [256]unix.EpollEvent
}

// event is one ready socket. generation tells a socket from an earlier one of
// the same number.
type event struct {
	fd, generation             int32
	readable, writable, broken bool
}

func newPoller() (*poller, error) {
	p := &poller{epoll: -1, eventf: -1}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create an epoll: %w", err)
	}
	if p.eventf, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		p.close()
		return nil, fmt.Errorf("create an eventfd: %w", err)
	}
	if err := p.add(int32(p.eventf), 0, true, false); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() {
	if p.epoll >= 0 {
		_ = unix.Close(p.epoll)
	}
	if p.eventf >= 0 {
		_ = unix.Close(p.eventf)
	}
}

func interest(generation int32, fd int32, read, write bool) *unix.EpollEvent {
	e := &unix.EpollEvent{Fd: fd, Pad: generation}
	if read {
		e.Events |= unix.EPOLLIN
	}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	return e
}

func (p *poller) add(fd, generation int32, read, write bool) error {
	err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, int(fd), interest(generation, fd, read, write))
	return os.NewSyscallError("epoll_ctl", err)
}

func (p *poller) modify(fd, generation int32, read, write bool) error {
	err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, int(fd), interest(generation, fd, read, write))
	return os.NewSyscallError("epoll_ctl", err)
}

// wait returns the number of ready sockets. With timeout 0 it does not block,
// and does not tell Go's scheduler either; a negative timeout is none.
func (p *poller) wait(timeout int) (int, error) {
	call := syscall.Syscall6
	if timeout == 0 {
		call = syscall.RawSyscall6
	}
	n, _, errno := call(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll),
		uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(timeout), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, os.NewSyscallError("epoll_wait", errno)
}

// event returns the i-th of the ready sockets. woken: it was a wake-up.
func (p *poller) event(i int) (e event, woken bool) {
	raw := &p.events[i]
	if raw.Fd == int32(p.eventf) {
		var count [8]byte
		_, _ = unix.Read(p.eventf, count[:])
		p.awake.Store(false)
		return event{}, true
	}
	return event{
		fd: raw.Fd, generation: raw.Pad,
		readable: raw.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0,
		writable: raw.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0,
		broken:   raw.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0,
	}, false
}

// wake ends a wait. Any goroutine may call it.
func (p *poller) wake() {
	if p.awake.CompareAndSwap(false, true) {
		_, _ = unix.Write(p.eventf, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// read and write are the bare system calls: the sockets never block, so the
// scheduler need not know.
func read(fd int32, b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return -1, nil
		default:
			return 0, errno
		}
	}
}

func write(fd int32, b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, errno
		}
	}
}

func accept(fd int) (int, unix.Sockaddr, error) {
	return unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
}

func newSocket(family int) (int, error) {
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
}

func setKeepAlive(fd, seconds int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, max(seconds/3, 1))
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
}
