package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// child is one process of the demo, of this binary.
type child struct {
	name  string
	args  []string
	env   []string
	admin string // its admin address, "" if it has none
	log   string // file its output goes to

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended; readable once exited is closed
}

// spawner starts processes from one thread that lives as long as the demo: the
// kernel ends a child when the thread that started it ends.
type spawner chan func()

func newSpawner() spawner {
	s := make(spawner)
	go func() {
		runtime.LockOSThread()
		for start := range s {
			start()
		}
	}()
	return s
}

// do runs start on the spawner's thread.
func (s spawner) do(start func() error) error {
	done := make(chan error, 1)
	s <- func() { done <- start() }
	return <-done
}

// start runs the child; its output is appended to its log.
func (c *child) start(s spawner) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(self, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := s.do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	exited := make(chan struct{})
	c.cmd, c.exited, c.err = cmd, exited, nil
	go func() {
		c.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// stop asks the child to end and kills it when it does not in time.
func (c *child) stop(within time.Duration) {
	if c.cmd == nil || !c.running() {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // It may be frozen.
	select {
	case <-c.exited:
	case <-time.After(within):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// outcome says how the child ended, in words.
func (c *child) outcome() string {
	var exit *exec.ExitError
	if errors.As(c.err, &exit) {
		return exit.String()
	}
	if c.err != nil {
		return c.err.Error()
	}
	return "exit status 0"
}

// lastLines gives the end of the child's log, for error messages.
func (c *child) lastLines() string {
	data, err := os.ReadFile(filepath.Clean(c.log))
	if err != nil {
		return ""
	}
	return string(data[max(0, len(data)-1000):])
}

const textAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// randomText makes a secret of n letters and digits.
func randomText(n int) string {
	out := make([]byte, 0, n)
	for len(out) < n {
		var b [64]byte
		_, _ = rand.Read(b[:]) // It never fails.
		for _, v := range b {
			if int(v) < 4*len(textAlphabet) && len(out) < n { // No letter is likelier than another.
				out = append(out, textAlphabet[int(v)%len(textAlphabet)])
			}
		}
	}
	return string(out)
}
