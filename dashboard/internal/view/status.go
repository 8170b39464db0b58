package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"shardis/coordinator/topo"
)

// Health of the whole cluster.
type Health string

const (
	HealthOK        Health = "ok"
	HealthAttention Health = "attention"
	HealthCritical  Health = "critical"
)

// Attention is one thing an operator should know.
type Attention struct {
	Severity string     `json:"severity" enum:"warn,critical"`
	Title    string     `json:"title"`
	Detail   string     `json:"detail"`
	Since    *time.Time `json:"since,omitempty"`
	Link     string     `json:"link" doc:"Where on the page to look."`
}

// SlotCounts counts slots by how they are served.
type SlotCounts struct {
	Total  int `json:"total"`
	Served int `json:"served" doc:"Owned by a group whose master answers; held ones count."`
	Held   int `json:"held"`
	Moving int `json:"moving"`
}

// Status answers: is it OK, is anything moving, must I act?
type Status struct {
	Summary      string             `json:"summary"`
	Health       Health             `json:"health" enum:"ok,attention,critical"`
	Leader       *string            `json:"leader" doc:"The coordinator that leads; null if none does."`
	Slots        SlotCounts         `json:"slots"`
	OpsPerSecond float64            `json:"opsPerSecond"`
	Keys         int64              `json:"keys"`
	MemoryBytes  int64              `json:"memoryBytes"`
	Clients      int64              `json:"clients"`
	Attention    []Attention        `json:"attention" doc:"Worst first."`
	Running      []OperationSummary `json:"running"`
}

// Cluster says which cluster this is.
type Cluster struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Scheme    string `json:"scheme" example:"crc16/16384"`
	SlotCount int    `json:"slotCount"`
	Databases int    `json:"databases"`
	Epoch     uint64 `json:"epoch"`
	Revision  int64  `json:"revision"`
	Version   string `json:"version" doc:"Of the dashboard."`
}

// ClusterOf derives the cluster's description. Before it was created only the
// revision and the version are set.
func ClusterOf(s *State, version string) Cluster {
	out := Cluster{Revision: s.Rev, Version: version}
	if s.Meta != nil {
		out.ID, out.Name, out.Scheme = s.Meta.Cluster, s.Meta.Name, string(s.Meta.Scheme)
		out.SlotCount, out.Databases = s.Meta.Scheme.Slots(), s.Meta.Databases
	}
	if s.Topology != nil {
		out.Epoch = uint64(s.Topology.Epoch)
	}
	return out
}

// StatusOf derives the status. connected is false while etcd does not answer.
func StatusOf(s *State, live map[string]Figures, connected bool, now time.Time) Status {
	groups, proxies := Groups(s, now), Proxies(s, live)
	out := Status{Attention: []Attention{}, Running: []OperationSummary{}}
	if s.Leader != "" {
		out.Leader = &s.Leader
	}
	out.Slots = countSlots(s, groups)
	for _, g := range groups {
		out.Keys += g.Keys
		out.MemoryBytes += g.MemoryBytes
	}
	for _, p := range proxies {
		out.OpsPerSecond += p.OpsPerSecond
		out.Clients += p.Clients
	}
	for _, op := range Operations(s) {
		if !topo.OperationState(op.State).Finished() {
			out.Running = append(out.Running, OperationSummary{op.ID, op.Kind, op.Goal, op.State, op.Summary, op.Progress})
		}
	}
	critical, warn := findings(s, groups, proxies, out.Slots, connected)
	out.Attention = append(append(out.Attention, critical...), warn...)
	switch {
	case len(critical) > 0:
		out.Health = HealthCritical
	case len(warn) > 0:
		out.Health = HealthAttention
	default:
		out.Health = HealthOK
	}
	out.Summary = sentence(s, &out, groups, proxies)
	return out
}

func countSlots(s *State, groups []Group) SlotCounts {
	down := map[string]bool{"": true}
	for _, g := range groups {
		down[g.ID] = g.State == GroupDown
	}
	infos := slotInfos(s)
	out := SlotCounts{Total: len(infos)}
	for _, i := range infos {
		if !down[i.owner] {
			out.Served++
		}
		switch i.state {
		case SlotHeld:
			out.Held++
		case SlotMoving:
			out.Moving++
		}
	}
	return out
}

// findings lists what needs attention. To add one: give it a severity, say
// what it means for clients and what to do, and where on the page to look.
func findings(s *State, groups []Group, proxies []Proxy, slots SlotCounts, connected bool) (critical, warn []Attention) {
	add := func(list *[]Attention, severity, link string, since *time.Time, title, detail string) {
		*list = append(*list, Attention{severity, title, detail, since, link})
	}
	if !connected {
		add(&critical, "critical", "/", nil, "etcd does not answer",
			"This page shows the last known state. Proxies keep serving; nothing can be changed until etcd is back.")
	}
	if s.Meta == nil || s.Topology == nil {
		if s.Rev > 0 {
			add(&critical, "critical", "/", nil, "The cluster was not created yet", "Create it once with: shardis init")
		}
		return critical, warn
	}
	unassigned := s.Topology.Unassigned().Len()
	switch {
	case len(groups) == 0:
		add(&warn, "warn", "/groups", nil, "No groups yet", "Add a group of Redis nodes to begin.")
	case unassigned > 0:
		add(&critical, "critical", "/slots", nil, fmt.Sprintf("%d slots are not assigned", unassigned),
			"Commands for their keys are refused. Assign them to groups.")
	}
	for _, g := range groups {
		link := "/groups/" + g.ID
		switch {
		case g.State == GroupDown && g.SlotCount > 0:
			add(&critical, "critical", link, masterSince(g), fmt.Sprintf("Group %s is down", g.ID),
				fmt.Sprintf("%s Commands for its %d slots fail.", g.Problem, g.SlotCount))
		case s.Leader == "" && g.State == GroupAttention: // said once, below
		case g.State == GroupDown || g.State == GroupAttention:
			add(&warn, "warn", link, nil, fmt.Sprintf("Group %s needs attention", g.ID), g.Problem)
		}
	}
	if s.Leader == "" {
		add(&warn, "warn", "/", nil, "No coordinator leads",
			"Proxies keep serving, but no operation makes progress. Start a coordinator.")
	}
	serving := 0
	for _, p := range proxies {
		link := "/proxies/" + p.ID
		switch {
		case p.State == ProxyServing:
			serving++
			if len(p.Unreachable) > 0 {
				add(&warn, "warn", link, nil, fmt.Sprintf("Proxy %s can not reach %s", p.ID, english.Plural(len(p.Unreachable), "node", "")),
					strings.Join(p.Unreachable, ", "))
			}
		case p.State == ProxyDown:
			add(&warn, "warn", link, nil, fmt.Sprintf("Proxy %s is down", p.ID), "It no longer renews its lease. Clients connected to it must use another.")
		case p.State == ProxyEvicting:
			add(&warn, "warn", link, nil, fmt.Sprintf("Proxy %s is being evicted", p.ID), "It did not follow the topology, so the nodes no longer accept it.")
		}
	}
	if serving == 0 && len(groups) > 0 {
		add(&critical, "critical", "/proxies", nil, "No proxy serves", "Applications can not reach the cluster. Start a proxy.")
	}
	for _, op := range s.Operations {
		for _, m := range op.Moves {
			if m.State == topo.MoveParked && !op.State.Finished() {
				add(&warn, "warn", "/operations/"+op.ID, nil, fmt.Sprintf("Slots %s wait for a decision", m.Slots), m.Reason)
			}
		}
	}
	return critical, warn
}

func masterSince(g Group) *time.Time {
	for _, n := range g.Nodes {
		if n.Role == string(topo.Master) {
			return n.Since
		}
	}
	return nil
}

// sentence is the status in two or three short sentences.
func sentence(s *State, st *Status, groups []Group, proxies []Proxy) string {
	if s.Topology == nil {
		if s.Rev == 0 {
			return "Waiting for etcd."
		}
		return "The cluster was not created yet: run shardis init."
	}
	var out []string
	switch {
	case st.Slots.Served == st.Slots.Total:
		out = append(out, fmt.Sprintf("All %d slots served.", st.Slots.Total))
	case st.Slots.Served == 0:
		out = append(out, fmt.Sprintf("None of %d slots served.", st.Slots.Total))
	default:
		out = append(out, fmt.Sprintf("%d of %d slots served.", st.Slots.Served, st.Slots.Total))
	}
	serving := 0
	for _, p := range proxies {
		if p.State == ProxyServing {
			serving++
		}
	}
	out = append(out, fmt.Sprintf("%s, %s.", english.Plural(len(groups), "group", ""), english.Plural(serving, "proxy", "proxies")))
	switch n := len(st.Running); {
	case n == 1:
		out = append(out, st.Running[0].Summary+".")
	case n > 1:
		out = append(out, fmt.Sprintf("%d operations under way.", n))
	default:
		out = append(out, "Nothing is moving.")
	}
	if n := len(st.Attention); n > 0 {
		out = append(out, english.Plural(n, "thing needs", "things need")+" attention.")
	}
	return strings.Join(out, " ")
}

// Snapshot is everything the page needs, read at one revision.
type Snapshot struct {
	Revision   int64           `json:"revision"`
	Cluster    Cluster         `json:"cluster"`
	Status     Status          `json:"status"`
	Slots      Slots           `json:"slots"`
	Groups     List[Group]     `json:"groups"`
	Proxies    List[Proxy]     `json:"proxies"`
	Operations List[Operation] `json:"operations"`
}
