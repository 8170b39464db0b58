package rights

import (
	"slices"
	"sync"
	"time"
)

// Log remembers what was denied lately, for ACL LOG: the newest entries, equal
// ones within a minute as one. All loops of a proxy write to one log: a denial is
// rare, and where it is not, it is answered slower than what is allowed.
type Log struct {
	mu      sync.Mutex
	entries []Entry // newest first
}

// Entry is a denial.
type Entry struct {
	Count   int
	Reason  Denial
	Context string // toplevel, multi
	Object  string // what was denied: a command, key, channel or user
	User    string
	Client  string // its line of CLIENT LIST
	At      time.Time
}

const (
	logSize  = 128
	logMerge = time.Minute
)

// Add notes a denial.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Count = 1
	for i := range l.entries {
		o := &l.entries[i]
		if o.Reason == e.Reason && o.Context == e.Context && o.Object == e.Object && o.User == e.User && e.At.Sub(o.At) < logMerge {
			e.Count += o.Count
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	if len(l.entries) == logSize {
		l.entries = l.entries[:logSize-1]
	}
	l.entries = slices.Insert(l.entries, 0, e)
}

// Newest gives at most n entries, the newest first.
func (l *Log) Newest(n int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[:min(n, len(l.entries))])
}

// Reset forgets all.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}
