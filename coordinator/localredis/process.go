package localredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// run starts cmd and watches it to its end.
//
// The goroutine that starts it keeps its operating system thread until the
// process has ended: the kernel sends the parent-death signal when the thread
// that forked ends, not the whole parent.
func (p *Process) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	return <-started
}

// ping makes sure that a Redis answers at addr and is done loading.
func ping(ctx context.Context, addr, password string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	call := func(args ...string) (string, error) {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
		}
		if _, err := conn.Write([]byte(b.String())); err != nil {
			return "", err
		}
		reply, err := r.ReadString('\n')
		return strings.TrimSpace(reply), err
	}
	if password != "" {
		reply, err := call("AUTH", password)
		if err != nil {
			return err
		}
		if reply != "+OK" {
			return errors.New(reply)
		}
	}
	reply, err := call("PING")
	switch {
	case err != nil:
		return err
	case reply == "+PONG", strings.HasPrefix(reply, "-MASTERDOWN"):
		return nil // The latter is a replica told not to serve old data.
	}
	return errors.New(reply)
}
