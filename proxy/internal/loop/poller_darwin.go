package loop

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// poller is the kqueue form, for development on macOS; see poller_linux.go for
// what the methods promise.
type poller struct {
	kqueue int
	awake  atomic.Bool
	events [256]unix.Kevent_t
	state  map[int32]watched // what is registered, by socket
}

type watched struct {
	generation  int32
	read, write bool
}

type event struct {
	fd, generation             int32
	readable, writable, broken bool
}

const wakeIdent = 1

func newPoller() (*poller, error) {
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("create a kqueue: %w", err)
	}
	unix.CloseOnExec(kq)
	p := &poller{kqueue: kq, state: map[int32]watched{}}
	change := unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR}
	if _, err := unix.Kevent(kq, []unix.Kevent_t{change}, nil, nil); err != nil {
		_ = unix.Close(kq)
		return nil, fmt.Errorf("register the wake-up: %w", err)
	}
	return p, nil
}

func (p *poller) close() { _ = unix.Close(p.kqueue) }

func (p *poller) add(fd, generation int32, read, write bool) error {
	delete(p.state, fd)
	return p.modify(fd, generation, read, write)
}

func (p *poller) modify(fd, generation int32, read, write bool) error {
	old := p.state[fd]
	var changes []unix.Kevent_t
	change := func(filter int, was, is bool) {
		if was == is {
			return
		}
		flags := unix.EV_ADD
		if was {
			flags = unix.EV_DELETE
		}
		var k unix.Kevent_t
		unix.SetKevent(&k, int(fd), filter, flags)
		changes = append(changes, k)
	}
	change(unix.EVFILT_READ, old.read, read)
	change(unix.EVFILT_WRITE, old.write, write)
	p.state[fd] = watched{generation, read, write}
	if len(changes) == 0 {
		return nil
	}
	_, err := unix.Kevent(p.kqueue, changes, nil, nil)
	return os.NewSyscallError("kevent", err)
}

func (p *poller) wait(timeout int) (int, error) {
	var limit *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout) * 1e6)
		limit = &t
	}
	n, err := unix.Kevent(p.kqueue, nil, p.events[:], limit)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, os.NewSyscallError("kevent", err)
}

func (p *poller) event(i int) (e event, woken bool) {
	raw := &p.events[i]
	if raw.Filter == unix.EVFILT_USER {
		p.awake.Store(false)
		return event{}, true
	}
	fd := int32(raw.Ident)
	return event{
		fd: fd, generation: p.state[fd].generation,
		readable: raw.Filter == unix.EVFILT_READ,
		writable: raw.Filter == unix.EVFILT_WRITE,
	}, false
}

func (p *poller) wake() {
	if p.awake.CompareAndSwap(false, true) {
		change := unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER}
		_, _ = unix.Kevent(p.kqueue, []unix.Kevent_t{change}, nil, nil)
	}
}

func read(fd int32, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return -1, nil
		default:
			return 0, err
		}
	}
}

func write(fd int32, b []byte) (int, error) {
	for {
		n, err := unix.Write(int(fd), b)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}

func accept(fd int) (int, unix.Sockaddr, error) {
	conn, addr, err := unix.Accept(fd)
	if err != nil {
		return -1, nil, err
	}
	return conn, addr, prepare(conn)
}

func newSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	return fd, prepare(fd)
}

func prepare(fd int) error {
	unix.CloseOnExec(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
	return unix.SetNonblock(fd, true)
}

func setKeepAlive(fd, seconds int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPALIVE, seconds)
}
