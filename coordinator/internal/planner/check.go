package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"shardis/coordinator/topo"
)

const (
	pass = "pass"
	warn = "warn"
	fail = "fail"

	headRoom = 1.2              // of the bytes to come: copies take a little more than they took
	oldAfter = 30 * time.Second // measurements older than this are said to be old
)

// estimate fills in what each group has before and after, taking the keys of a
// group as spread evenly over its slots.
func estimate(p *topo.Plan, t *topo.Topology, observed map[string]topo.Observed) {
	index := map[string]int{}
	for i, g := range t.Groups {
		index[g.ID] = i
		share := topo.Share{Group: g.ID, Slots: t.SlotsOf(g.ID).Len()}
		if m := masterOf(&g, observed); m != nil && share.Slots > 0 {
			share.Keys = max(0, m.KeyCount()-observed[g.ID].Hidden)
			share.Bytes = m.UsedMemory
		}
		p.Before = append(p.Before, share)
	}
	p.After = slices.Clone(p.Before)
	for _, m := range p.Moves {
		n := m.Slots.Len()
		to := &p.After[index[m.To]]
		to.Slots += n
		if m.From == "" {
			continue
		}
		source := p.Before[index[m.From]]
		part := float64(n) / float64(source.Slots)
		keys, bytes := int64(part*float64(source.Keys)), int64(part*float64(source.Bytes))
		from := &p.After[index[m.From]]
		from.Slots -= n
		from.Keys -= keys
		from.Bytes -= bytes
		to.Keys += keys
		to.Bytes += bytes
		p.Keys += keys
		p.Bytes += bytes
	}
}

// masterOf is what was last seen of a group's master, nil if it never was.
func masterOf(g *topo.Group, observed map[string]topo.Observed) *topo.NodeStatus {
	o := observed[g.ID]
	return o.Node(g.Master())
}

// check looks at what may stand against a plan. One line a check and group.
func check(p *topo.Plan, t *topo.Topology, observed map[string]topo.Observed, now time.Time) []topo.Check {
	var checks []topo.Check
	add := func(name, result, format string, args ...any) {
		checks = append(checks, topo.Check{Name: name, Result: result, Detail: fmt.Sprintf(format, args...)})
	}
	gains := map[string]int64{}
	var concerned []string
	for _, m := range p.Moves {
		for _, id := range []string{m.From, m.To} {
			if id != "" && !slices.Contains(concerned, id) {
				concerned = append(concerned, id)
			}
		}
	}
	for i, after := range p.After {
		gains[after.Group] = after.Bytes - p.Before[i].Bytes
	}
	for _, id := range concerned {
		reachable(t.Group(id), observed[id], now, add)
	}
	for _, g := range t.Groups {
		if gains[g.ID] > 0 {
			memory(&g, masterOf(&g, observed), gains[g.ID], add)
		}
	}
	for _, m := range p.Moves {
		if m.From != "" {
			versions(masterOf(t.Group(m.From), observed), masterOf(t.Group(m.To), observed), m, add)
		}
	}
	if free := t.Unassigned().Len(); free > 0 && p.Request.Goal != topo.GoalAssign {
		add("unassigned", warn, "%d slots have no owner and stay without: assign them", free)
	}
	if req := p.Request; req.Goal == topo.GoalMove && p.Slots() < req.Slots.Len() {
		add("already-there", warn, "%d of these slots are with group %s already", req.Slots.Len()-p.Slots(), req.ToGroup)
	}
	return checks
}

type adder func(name, result, format string, args ...any)

func reachable(g *topo.Group, o topo.Observed, now time.Time, add adder) {
	result, bad := pass, []string(nil)
	for _, n := range g.Nodes {
		s := o.Node(n.Addr)
		if s != nil && s.Reachable && !s.Loading && now.Sub(o.At) <= oldAfter {
			continue
		}
		why := "was not seen yet"
		switch {
		case s == nil:
		case !s.Reachable:
			why = "can not be reached"
		case s.Loading:
			why = "is loading its data"
		default:
			why = "was last seen " + humanize.RelTime(o.At, now, "ago", "ahead")
		}
		bad = append(bad, fmt.Sprintf("%s %s %s", n.Role, n.Addr, why))
		// Never seen, or long ago, is no proof that it is gone.
		if n.Role == topo.Master && s != nil && (!s.Reachable || s.Loading) {
			result = fail
		} else if result == pass {
			result = warn
		}
	}
	if len(bad) == 0 {
		add("reachable", pass, "all nodes of group %s answer", g.ID)
		return
	}
	add("reachable", result, "group %s: %s", g.ID, strings.Join(bad, "; "))
}

func memory(g *topo.Group, m *topo.NodeStatus, gain int64, add adder) {
	if m == nil {
		return // reachable said so.
	}
	needs := int64(float64(gain) * headRoom)
	switch room := m.MaxMemory - m.UsedMemory; {
	case m.MaxMemory == 0:
		add("memory", pass, "group %s gets about %s; its memory is not bounded", g.ID, size(gain))
	case needs <= room:
		add("memory", pass, "group %s gets about %s and has room for %s", g.ID, size(gain), size(room))
	case m.Policy == "noeviction" || m.Policy == "":
		add("memory", fail, "group %s gets about %s but has room for %s only: raise maxmemory", g.ID, size(gain), size(room))
	default:
		add("memory", warn, "group %s gets about %s but has room for %s only: it will remove keys (%s)", g.ID, size(gain), size(room), m.Policy)
	}
	if m.MaxMemory > 0 && m.Policy != "noeviction" && m.Policy != "" {
		add("memory-policy", warn, "group %s may remove keys by itself while they are copied (%s)", g.ID, m.Policy)
	}
}

func size(bytes int64) string { return humanize.IBytes(uint64(max(0, bytes))) }

// versions: a key's dump can be restored by a server of the same or a newer
// release only.
func versions(from, to *topo.NodeStatus, m topo.Move, add adder) {
	if from == nil || to == nil || from.Version == "" || to.Version == "" {
		return
	}
	if older(to.Version, from.Version) {
		add("version", fail, "group %s runs %s and can not read what %s of group %s writes: upgrade it first",
			m.To, to.Version, from.Version, m.From)
	}
}

// older compares the first two parts of version numbers.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range 2 {
		p, q := 0, 0
		if i < len(x) {
			p, _ = strconv.Atoi(x[i])
		}
		if i < len(y) {
			q, _ = strconv.Atoi(y[i])
		}
		if p != q {
			return p < q
		}
	}
	return false
}
