//go:build !linux

package main

import "syscall"

// childAttributes: only Linux can tie a child's life to its parent's; elsewhere
// children of a crashed demo must be ended by hand.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
