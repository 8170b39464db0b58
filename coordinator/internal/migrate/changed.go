package migrate

import (
	"sync"

	"shardis/coordinator/topo"
)

// route says where the keys of each slot go: the index of a target, or -1 for
// slots that stay.
type route struct {
	scheme topo.Scheme
	to     []int16
}

func newRoute(scheme topo.Scheme) *route {
	r := &route{scheme, make([]int16, scheme.Slots())}
	for i := range r.to {
		r.to[i] = -1
	}
	return r
}

func (r *route) set(slots topo.SlotSet, target int) {
	for _, s := range slots.Slots() {
		r.to[s] = int16(target)
	}
}

// of gives the target of a key, -1 if it does not move.
func (r *route) of(key []byte) int { return int(r.to[r.scheme.SlotOf(key)]) }

// changed collects the names of moving keys that the feed says were written.
type changed struct {
	route *route
	mu    sync.Mutex
	names map[string]struct{}
	over  bool // more names than may be kept
}

// maxChanged bounds the names kept while an operation is paused for long.
const maxChanged = 20_000_000

func newChanged(r *route) *changed {
	return &changed{route: r, names: map[string]struct{}{}}
}

// add is called by the feed.
func (c *changed) add(key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route.of(key) < 0 {
		return
	}
	if len(c.names) >= maxChanged {
		c.over = true
		return
	}
	if _, known := c.names[string(key)]; !known {
		c.names[string(key)] = struct{}{}
	}
}

// put gives names back that are still to be read.
func (c *changed) put(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.names[n] = struct{}{}
	}
}

// take hands out all names of slots in only (all moving slots when it is
// empty) and forgets them. What is named from now on is for the next round.
func (c *changed) take(only topo.SlotSet) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.names))
	for n := range c.names {
		if len(only) > 0 && !only.Contains(c.route.scheme.SlotOf([]byte(n))) {
			continue
		}
		names = append(names, n)
	}
	if len(names) == len(c.names) {
		c.names = make(map[string]struct{}, min(len(c.names), 1<<16))
	} else {
		for _, n := range names {
			delete(c.names, n)
		}
	}
	return names
}

// leave stops collecting names of slots: they were handed over.
func (c *changed) leave(slots topo.SlotSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.route.set(slots, -1)
	for n := range c.names {
		if c.route.of([]byte(n)) < 0 {
			delete(c.names, n)
		}
	}
}

// hasBig reports whether a big key is among the names.
func (c *changed) hasBig(known map[string]int, hot map[string]bigName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range known {
		if _, named := c.names[name]; named {
			if _, aside := hot[name]; !aside {
				return true
			}
		}
	}
	return false
}

func (c *changed) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.names)
}

func (c *changed) overflowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}
