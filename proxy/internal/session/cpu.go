package session

import (
	"syscall"
	"time"
)

// cpuTimes is what this process has used so far.
func cpuTimes() (system, user time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Stime.Nano()), time.Duration(u.Utime.Nano())
}
