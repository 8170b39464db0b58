package proxy

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
)

const (
	sampleEvery = time.Second
	lookEvery   = 250 * time.Millisecond // at which nodes can be reached: the leader waits for it before a replica takes over
	rateSpan    = 3                      // samples that operations per second are taken over
	keptSamples = 11                     // latency is taken over all of them: 10 s
)

// rates keeps the counters of the last seconds. One goroutine samples; the
// admin port reads.
type rates struct {
	mu      sync.Mutex
	last    stats.Snapshot
	samples []sample // oldest first
}

type sample struct {
	at       time.Time
	commands uint64
	latency  stats.Histogram // all classes
}

// current is what the samples say now.
type current struct {
	snapshot     stats.Snapshot
	opsPerSecond float64
	latency      stats.Histogram
}

func (r *rates) add(snapshot stats.Snapshot, at time.Time) {
	s := sample{at: at, commands: snapshot.Commands}
	for i := range snapshot.Latency {
		s.latency.Add(&snapshot.Latency[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = snapshot
	if len(r.samples) == keptSamples {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
	r.samples = append(r.samples, s)
}

func (r *rates) now() current {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.samples)
	if n == 0 {
		return current{}
	}
	newest := r.samples[n-1]
	c := current{snapshot: r.last, latency: newest.latency}
	if n > 1 {
		c.latency.Sub(&r.samples[0].latency)
		before := r.samples[max(0, n-1-rateSpan)]
		c.opsPerSecond = float64(newest.commands-before.commands) / newest.at.Sub(before.at).Seconds()
	}
	return c
}

// answeredAt is when the loops last gave their counters.
func (r *rates) answeredAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return time.Time{}
	}
	return r.samples[len(r.samples)-1].at
}

// inspect samples the engine each second until ctx ends, and notices nodes
// that can not be reached.
func (c *control) inspect(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%int(sampleEvery/lookEvery) == 0 && c.engine.Tick() {
			c.rates.add(c.engine.Stats(), time.Now())
		}
		c.noteUnreachable(c.engine.Backends(), time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// noteUnreachable updates the nodes that this proxy fails to reach; a change
// of which they are is reported.
func (c *control) noteUnreachable(backends []report.Backend, now time.Time) {
	var down []topo.Unreachable
	for _, b := range backends {
		if b.State != "down" {
			continue
		}
		since := now.Add(-time.Duration(b.DownSeconds * float64(time.Second))).UTC().Truncate(time.Second)
		down = append(down, topo.Unreachable{Node: b.Node, Since: since})
	}
	slices.SortFunc(down, func(a, b topo.Unreachable) int { return strings.Compare(a.Node, b.Node) })
	down = slices.CompactFunc(down, func(a, b topo.Unreachable) bool { return a.Node == b.Node })
	same := func(a, b topo.Unreachable) bool { return a.Node == b.Node }
	c.mu.Lock()
	changed := !slices.EqualFunc(down, c.unreachable, same)
	if changed {
		c.unreachable = down
	}
	c.mu.Unlock()
	if changed {
		names := make([]string, len(down))
		for i, u := range down {
			names[i] = u.Node
		}
		c.log.Warn("nodes that can not be reached changed", "count", len(down), "nodes", strings.Join(names, ","))
		c.poke()
	}
}

// usage is the CPU time and resident memory of this process.
func usage() (seconds float64, bytes int64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		seconds = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			bytes = pages * int64(os.Getpagesize())
		}
	}
	return seconds, bytes
}
