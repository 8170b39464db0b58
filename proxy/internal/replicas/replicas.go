// Package replicas decides which replicas may answer reads.
//
// A replica answers with the past. How far back is what this package bounds,
// without writing anything to the nodes and without trusting their clocks. Once
// a second one loop of the proxy asks each master for its replication offset,
// and then each replica for its own:
//
//	asked the master at   10.0   11.0   12.0   13.0
//	it had written         500    720    900    980     bytes of its log
//	a replica has          910 now: all that the master had at 12.0, at least
//
// So the replica is certain to hold what the master held at 12.0, and a read
// sent to it at 13.4 is answered with data at most 1.4 s old. That time, the
// newest known to be covered, is all that is kept of a replica; whoever sends a
// read compares it with its own clock, so that a verdict ages by itself: with
// the checks failing, for whatever reason, replicas drop out after max_lag.
//
// Offsets compare only within one history of replication (master_replid). A
// replica of another history, as after a failover, is left out until it follows
// the group's master.
//
// Rejected: master_last_io_seconds_ago, which says when the last byte came, not
// how many are missing, and whose resolution is a second; a heartbeat key, which
// the proxy would have to write into the users' data; the offsets' difference in
// bytes, which no operator can translate into an age.
package replicas

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Mode is where the reads of a client go.
type Mode uint8

const (
	Master  Mode = iota // to masters, as everything
	Prefer              // to replicas that are fit, else to masters
	Only                // to replicas that are fit, else an error
	Nearest             // to the proxy's zone: replicas, then the master; else as Prefer
)

var modeNames = [...]string{"master", "prefer-replica", "replica-only", "nearest"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode reads a mode as String writes it.
func ParseMode(s string) (Mode, error) {
	for i, name := range modeNames {
		if s == name {
			return Mode(i), nil
		}
	}
	return Master, fmt.Errorf("%q is not one of %s", s, strings.Join(modeNames[:], ", "))
}

// State is what is known of a replica.
type State uint8

const (
	Unknown     State = iota // not checked yet
	Usable                   // may answer reads
	Unreachable              // does not answer
	Loading                  // reads its data from disk
	LinkDown                 // has no connection to its master
	Foreign                  // is a master, or follows another one
	Lagging                  // answers, but is too far behind
)

var stateNames = [...]string{"unknown", "usable", "unreachable", "loading", "link-down", "foreign", "lagging"}

func (s State) String() string { return stateNames[s] }

// States is the number of states.
const States = len(stateNames)

// Info is what a node's INFO says of replication.
type Info struct {
	Replica bool
	LinkUp  bool
	Loading bool
	History string // master_replid
	Offset  int64  // of the log: written by a master, applied by a replica
}

// ParseInfo reads the sections replication and persistence of INFO.
func ParseInfo(text []byte) Info {
	var i Info
	var written, applied int64
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r"), []byte(":"))
		switch string(name) {
		case "role":
			i.Replica = string(value) == "slave"
		case "master_link_status":
			i.LinkUp = string(value) == "up"
		case "loading", "async_loading":
			i.Loading = i.Loading || string(value) == "1"
		case "master_replid":
			i.History = string(value)
		case "master_repl_offset":
			written, _ = strconv.ParseInt(string(value), 10, 64)
		case "slave_repl_offset":
			applied, _ = strconv.ParseInt(string(value), 10, 64)
		}
	}
	i.Offset = written
	if i.Replica {
		i.Offset = applied
	}
	return i
}

// Log is what a master said of its offset, and when it was asked.
type Log struct {
	keep    time.Duration
	history string
	samples []sample // oldest first; neither field ever falls
}

type sample struct{ at, offset int64 }

// NewLog makes a log that remembers for so long.
func NewLog(keep time.Duration) *Log { return &Log{keep: keep} }

// Note adds that a master, asked at at, had written that much.
func (l *Log) Note(info Info, at int64) {
	if info.Replica || info.History == "" {
		return // not the master it should be
	}
	n := len(l.samples)
	if info.History != l.history || n > 0 && info.Offset < l.samples[n-1].offset {
		l.history, l.samples, n = info.History, l.samples[:0], 0
	}
	old := 0
	for old < n && at-l.samples[old].at > int64(l.keep) {
		old++
	}
	l.samples = append(l.samples[:copy(l.samples, l.samples[old:])], sample{at, info.Offset})
}

// Judge says what a replica's answer means, and up to when it certainly has all
// that the master had. Whether that is recent enough is for the reader to say.
func (l *Log) Judge(info Info) (State, int64) {
	switch {
	case info.Loading:
		return Loading, 0
	case !info.Replica:
		return Foreign, 0
	case !info.LinkUp:
		return LinkDown, 0
	case info.History != l.history || l.history == "":
		return Foreign, 0
	}
	beyond := sort.Search(len(l.samples), func(i int) bool { return l.samples[i].offset > info.Offset })
	if beyond == 0 {
		return Lagging, 0
	}
	return Usable, l.samples[beyond-1].at
}

// Verdict is what a check found of one replica.
type Verdict struct {
	Group, Node string
	State       State
	Covered     int64 // of a usable one: it has all that the master had then; nanoseconds on the proxy's clock
}

// At is the verdict's state as time goes by.
func (v Verdict) At(now int64, maxLag time.Duration) State {
	if v.State == Usable && now-v.Covered > int64(maxLag) {
		return Lagging
	}
	return v.State
}

// Snapshot is the verdicts of one moment. It never changes.
type Snapshot struct {
	Verdicts map[string]Verdict // by node
}

// Of finds the verdict on a group's replica; Unknown without one.
func (s *Snapshot) Of(group, node string) Verdict {
	if s != nil {
		if v, ok := s.Verdicts[node]; ok && v.Group == group {
			return v
		}
	}
	return Verdict{Group: group, Node: node}
}
