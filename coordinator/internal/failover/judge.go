// Package failover decides whether a group needs another master, and which. It
// is pure: observations in, a verdict with its reason out; acting on it is the
// coordinator's (coordinator/failover.go).
//
// Problem. A master that does not answer its leader may be dead, frozen, or cut
// off from the leader alone; a false alarm costs writes, a missed one service.
// A master that answers may have restarted with less than its replicas have,
// which would then throw theirs away.
//
// Rules.
//
//   - down: silent to the leader for DownAfter (a third of it where its port
//     refuses), and to a majority of the proxies that are there, and to every
//     replica that can be asked. A leader that sees none of the admitted proxies
//     is the one cut off, and does nothing.
//   - restarted: another process than was recorded answers at its address. A
//     replica that still has the data takes over at once: nobody need agree that
//     the process is another one. Without such a replica the new process is
//     accepted with what it has.
//   - unmade: the recorded process answers as a replica. Somebody told it so;
//     a replica of the group that somebody made the master takes over, else it
//     is made the master again if it still has its data.
//   - brakes: maintenance; a pause after each failover of a group, doubling
//     while they repeat; when many masters are down at once each must be
//     confirmed by every proxy; known loss above the limit.
//
// Rejected: a marker key in the data to recognize it (it puts a key among the
// users', and Redis's replication ids say the same); a vote of the coordinators
// standing by (they see the network the leader sees, and have no clients).
package failover

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"shardis/coordinator/topo"
)

const (
	// DownAfter is how long a master must be silent, unless set otherwise.
	DownAfter = 3 * time.Second
	// hears is how recently, in seconds, a replica's word of its master counts.
	hears = 1
	// unmadeFor is how long the recorded master may say it is a replica before
	// that is acted on: it may be somebody's switchover in mid-step.
	unmadeFor = 3 * time.Second
	// syncPatience is how much longer an absent replica that may have more is
	// waited for in strict durability.
	syncPatience = 5 * time.Second

	pauseFirst = time.Minute
	pauseMost  = time.Hour

	manyLeast = 2
	manyRatio = 0.3
)

// Node is what is known of one node.
type Node struct {
	Addr    string
	Zone    string
	Asked   bool // by this leader, since it leads
	Status  topo.NodeStatus
	Silent  time.Duration // since it last answered; 0 when it just did
	Refused bool          // its port refuses connections: there is no process
}

// Group is what is known of one group.
type Group struct {
	ID      string
	Master  string
	Run     string // run id of the recorded process of the master, "" if none is
	Lineage string // replication id the master last had
	Offset  int64  // of its log, when it last answered
	Nodes   []Node // the master among them

	Live, Against int           // proxies that are there, and those that can not reach the master
	Unmade        time.Duration // for how long the master has said that it is a replica
	Failovers     []time.Time   // automatic ones that succeeded, oldest first
	InSync        []string      // strict durability: those that may be promoted
}

// Cluster is what holds for all groups.
type Cluster struct {
	Settings topo.Settings
	Now      time.Time
	Masters  int
	Silent   int // masters that this leader can not reach
	Admitted int // proxies in the topology
	Live     int // of these, those that are there
}

// Kind is what a verdict asks for.
type Kind string

const (
	Fine     Kind = "fine"
	Suspect  Kind = "suspect" // something is wrong; it is not certain, or not long enough
	Blocked  Kind = "blocked" // a failover is due and must not be, or can not be, made
	Failover Kind = "failover"
	Adopt    Kind = "adopt"  // accept the process at the master's address, made the master if it is none
	Remake   Kind = "remake" // make the recorded process the master again
)

// Verdict is what to do about a group, and why.
type Verdict struct {
	Kind   Kind
	Reason string
	To     string // the replica to take over
	Loss   int64  // bytes of the master's log known to be missing there
}

// Judge looks at one group.
func Judge(c Cluster, g Group) Verdict {
	m := g.node(g.Master)
	if m == nil || !m.Asked {
		return Verdict{Kind: Suspect, Reason: "the master was not asked yet"}
	}
	s := &m.Status
	switch {
	case !s.Reachable:
		return down(c, g, m)
	case g.Run != "" && s.RunID != g.Run:
		return restarted(c, g, m)
	case s.Role == topo.Replica:
		return unmade(c, g, m)
	}
	return Verdict{Kind: Fine}
}

func (g *Group) node(addr string) *Node {
	for i := range g.Nodes {
		if g.Nodes[i].Addr == addr {
			return &g.Nodes[i]
		}
	}
	return nil
}

// down judges a master that does not answer the leader.
func down(c Cluster, g Group, m *Node) Verdict {
	after := cmp.Or(c.Settings.DownAfter, DownAfter)
	if m.Refused {
		after /= 3
	}
	suspect := func(format string, args ...any) Verdict {
		return Verdict{Kind: Suspect, Reason: fmt.Sprintf("master %s does not answer: ", m.Addr) + fmt.Sprintf(format, args...)}
	}
	if m.Silent < after {
		return suspect("for %s, down counts after %s", m.Silent.Round(100*time.Millisecond), after)
	}
	many := c.Silent > manyLeast && float64(c.Silent) > manyRatio*float64(c.Masters)
	switch {
	case c.Admitted > 0 && c.Live == 0:
		return suspect("but no proxy is there either: this coordinator may be the one cut off")
	case c.Admitted == 0 && many:
		return suspect("but so are %d of %d masters, and there is no proxy to confirm it", c.Silent, c.Masters)
	case many && g.Against < g.Live:
		return suspect("%d of %d masters do not, so every proxy must confirm it: %d of %d do", c.Silent, c.Masters, g.Against, g.Live)
	case c.Admitted > 0 && 2*g.Against <= g.Live:
		return suspect("but only %d of %d proxies can not reach it", g.Against, g.Live)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		s := &n.Status
		if n != m && s.Reachable && s.MasterAddr == m.Addr && s.LinkUp && s.LastIO <= hears {
			return suspect("but replica %s hears it", n.Addr)
		}
	}
	why := fmt.Sprintf("master %s does not answer for %.1f s, %d of %d proxies agree", m.Addr, m.Silent.Seconds(), g.Against, g.Live)
	return replace(c, g, m, why)
}

// restarted judges a master that is another process now.
func restarted(c Cluster, g Group, m *Node) Verdict {
	why := fmt.Sprintf("master %s restarted", m.Addr)
	v := replace(c, g, m, why)
	if v.Kind == Failover {
		return v
	}
	if m.Status.Loading {
		return Verdict{Kind: Suspect, Reason: why + " and is loading its data"}
	}
	if v.Kind == Blocked && v.To != "" {
		return v // a replica has the data, and only a brake is in the way
	}
	return Verdict{Kind: Adopt, To: m.Addr,
		Reason: fmt.Sprintf("%s and no replica has its data: it goes on with the %d keys it has", why, m.Status.KeyCount())}
}

// unmade judges a master that says it is a replica.
func unmade(c Cluster, g Group, m *Node) Verdict {
	why := fmt.Sprintf("master %s was made a replica of %s", m.Addr, m.Status.MasterAddr)
	if g.Unmade < unmadeFor {
		return Verdict{Kind: Suspect, Reason: why}
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Addr == m.Status.MasterAddr && n.Status.Reachable && n.Status.Role == topo.Master {
			return brakes(c, g, Verdict{Kind: Failover, To: n.Addr, Reason: why + ", which is one"})
		}
	}
	if g.Lineage == "" || m.Status.ReplID == g.Lineage {
		return Verdict{Kind: Remake, To: m.Addr, Reason: why + ", and still has its data"}
	}
	return replace(c, g, m, why+" and took over its data")
}

// replace chooses a replica, within the brakes.
func replace(c Cluster, g Group, m *Node, why string) Verdict {
	choice, reason := Choose(g, c.Settings.Durability == topo.Strict, m.Silent)
	if choice == nil {
		return Verdict{Kind: Blocked, Reason: why + "; " + reason}
	}
	v := Verdict{Kind: Failover, To: choice.Addr, Loss: Loss(g, choice), Reason: why}
	return brakes(c, g, v)
}

// brakes stops a failover that is due and must wait.
func brakes(c Cluster, g Group, v Verdict) Verdict {
	block := func(format string, args ...any) Verdict {
		v.Kind, v.Reason = Blocked, v.Reason+"; "+fmt.Sprintf(format, args...)
		return v
	}
	if until := c.Settings.MaintenanceUntil; c.Now.Before(until) {
		return block("no automatic failover before %s: maintenance", until.UTC().Format(time.RFC3339))
	}
	if until := Rest(g.Failovers); c.Now.Before(until) {
		return block("the last failover of group %s was just made, the next one may be at %s", g.ID, until.UTC().Format(time.RFC3339))
	}
	if most := c.Settings.MaxLoss; most > 0 && v.Loss > most {
		return block("replica %s is %d bytes behind, more than max_loss_bytes (%d): a person must decide", v.To, v.Loss, most)
	}
	return v
}

// Rest is until when a group gets no automatic failover after those it had.
func Rest(failovers []time.Time) time.Time {
	pause := pauseFirst
	for i := 1; i < len(failovers); i++ {
		if failovers[i].Sub(failovers[i-1]) < 2*pause {
			pause = min(2*pause, pauseMost)
		} else {
			pause = pauseFirst
		}
	}
	if n := len(failovers); n > 0 {
		return failovers[n-1].Add(pause)
	}
	return time.Time{}
}

// Loss is by how many bytes n is behind what is known of the master's log.
func Loss(g Group, n *Node) int64 { return max(0, g.Offset-n.Status.Offset) }

// Choose picks the replica that has most, or says why none can be it.
func Choose(g Group, strict bool, silent time.Duration) (*Node, string) {
	var fit []*Node
	reasons := ""
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Addr == g.Master {
			continue
		}
		why := Unfit(g, n, strict)
		if why == "" {
			fit = append(fit, n)
			continue
		}
		reasons += fmt.Sprintf(", replica %s %s", n.Addr, why)
	}
	if len(fit) == 0 {
		if reasons == "" {
			reasons = ", it has no replica"
		}
		return nil, "no replica can take over" + reasons
	}
	if strict && silent < DownAfter+syncPatience {
		for _, addr := range g.InSync {
			if n := g.node(addr); n != nil && addr != g.Master && !n.Status.Reachable {
				return nil, fmt.Sprintf("replica %s may have more than the others and does not answer: waiting for it a little", addr)
			}
		}
	}
	zone := ""
	if m := g.node(g.Master); m != nil {
		zone = m.Zone
	}
	slices.SortFunc(fit, func(a, b *Node) int {
		return cmp.Or(-cmp.Compare(a.Status.Offset, b.Status.Offset), cmp.Compare(a.Status.Priority, b.Status.Priority),
			-cmp.Compare(one(a.Zone == zone), one(b.Zone == zone)), cmp.Compare(a.Addr, b.Addr))
	})
	return fit[0], ""
}

// Unfit says why a replica can not take over, "" if it can.
func Unfit(g Group, n *Node, strict bool) string {
	s := &n.Status
	switch {
	case !n.Asked || !s.Reachable:
		return "does not answer"
	case s.Loading:
		return "is loading its data"
	case s.Role == topo.Master && g.Lineage != "" && s.PrevReplID == g.Lineage: // promoted before, by a failover that did not come to its end
	case s.Role != topo.Replica:
		return "is not a replica"
	case g.Lineage != "" && s.ReplID != g.Lineage:
		return "does not have the group's data"
	case s.Role == topo.Replica && s.Priority == 0:
		return "has replica-priority 0: never"
	case strict && !slices.Contains(g.InSync, n.Addr):
		return "was not in sync when durability strict last looked"
	}
	return ""
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
