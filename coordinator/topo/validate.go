package topo

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var idPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// CheckID says whether text can name a group or a proxy: 1 to 40 lower-case
// letters, digits and inner hyphens.
func CheckID(text string) error {
	if !idPattern.MatchString(text) {
		return fmt.Errorf("%q is not a valid id: use 1 to 40 lower-case letters, digits and inner hyphens", text)
	}
	return nil
}

// CheckAddr says whether text is a host:port that other machines can dial.
func CheckAddr(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not an address of the form host:port", text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if host == "" || err != nil || n == 0 {
		return fmt.Errorf("%q is not an address of the form host:port with a port of 1-65535", text)
	}
	// An address identifies a node, so there must not be two ways to write it.
	if net.JoinHostPort(host, strconv.FormatUint(n, 10)) != text || strings.ContainsFunc(host, unusual) {
		return fmt.Errorf("%q is not an address as Shardis writes it: use lower case, no spaces, and a port without leading zeros", text)
	}
	return nil
}

// unusual: not part of a host name or IP address in lower case.
func unusual(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-._:%", r))
}

// Validate checks the invariants of a topology:
//
//   - runs are sorted, disjoint, inside the scheme, and owned by known groups;
//   - group ids, node addresses and proxy ids are well-formed and unique, an
//     address over all groups;
//   - each group has exactly one master;
//   - held slots are sorted, joined and inside the scheme; a change of master
//     is between nodes of one group.
func (t *Topology) Validate() error {
	if _, err := ParseScheme(string(t.Scheme)); err != nil {
		return err
	}
	if t.Databases < 1 {
		return fmt.Errorf("databases is %d: want at least 1", t.Databases)
	}
	if err := t.validateGroups(); err != nil {
		return err
	}
	if err := t.validateSlots(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, m := range t.Proxies {
		if err := CheckID(m.ID); err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
		if seen[m.ID] {
			return fmt.Errorf("proxy %s is listed twice", m.ID)
		}
		seen[m.ID] = true
		if m.Incarnation == "" {
			return fmt.Errorf("proxy %s has no incarnation", m.ID)
		}
		if m.State != Admitted && m.State != Evicting {
			return fmt.Errorf("proxy %s has unknown state %q", m.ID, m.State)
		}
	}
	return nil
}

func (t *Topology) validateGroups() error {
	groups, addrs := map[string]bool{}, map[string]string{}
	for _, g := range t.Groups {
		if err := CheckID(g.ID); err != nil {
			return fmt.Errorf("group: %w", err)
		}
		if groups[g.ID] {
			return fmt.Errorf("group %s is listed twice", g.ID)
		}
		groups[g.ID] = true
		masters := 0
		for _, n := range g.Nodes {
			if err := CheckAddr(n.Addr); err != nil {
				return fmt.Errorf("group %s: %w", g.ID, err)
			}
			if other, taken := addrs[n.Addr]; taken {
				return fmt.Errorf("node %s is in group %s and in group %s", n.Addr, other, g.ID)
			}
			addrs[n.Addr] = g.ID
			switch n.Role {
			case Master:
				masters++
			case Replica:
			default:
				return fmt.Errorf("node %s has unknown role %q", n.Addr, n.Role)
			}
		}
		if masters != 1 {
			return fmt.Errorf("group %s has %d masters: want 1", g.ID, masters)
		}
	}
	return nil
}

func (t *Topology) validateSlots() error {
	known := make(map[string]bool, len(t.Groups))
	for _, g := range t.Groups {
		known[g.ID] = true
	}
	next := 0
	for _, r := range t.Slots {
		switch {
		case r.Last < r.First || int(r.Last) >= t.Scheme.Slots():
			return fmt.Errorf("slot run %d-%d is not inside 0-%d", r.First, r.Last, t.Scheme.Slots()-1)
		case int(r.First) < next:
			return fmt.Errorf("slot run %d-%d overlaps the one before it", r.First, r.Last)
		case !known[r.Group]:
			return fmt.Errorf("slots %d-%d belong to unknown group %q", r.First, r.Last, r.Group)
		}
		next = int(r.Last) + 1
	}
	if h := t.Hold; h != nil {
		if h.ID == "" || (h.Phase != Holding && h.Phase != Promoting) {
			return fmt.Errorf("hold %q has unknown phase %q", h.ID, h.Phase)
		}
		if !slices.Equal(h.Slots, NewSlotSet(h.Slots...)) {
			return fmt.Errorf("hold %s has slots %s: they are not sorted and joined", h.ID, h.Slots)
		}
		if n := len(h.Slots); n > 0 && int(h.Slots[n-1].Last) >= t.Scheme.Slots() {
			return fmt.Errorf("hold %s reaches past slot %d", h.ID, t.Scheme.Slots()-1)
		}
		if c := h.Change; c != nil {
			for _, addr := range []string{c.From, c.To} {
				if g := t.GroupOfNode(addr); g == nil || g.ID != c.Group {
					return fmt.Errorf("hold %s changes the master of group %s, which has no node %s", h.ID, c.Group, addr)
				}
			}
		}
	}
	return nil
}
