package view

import (
	"cmp"
	"slices"
	"time"

	"shardis/coordinator/topo"
)

// ProxyState is where a proxy stands.
type ProxyState string

const (
	ProxyServing  ProxyState = "serving"
	ProxyStarting ProxyState = "starting" // registered, not admitted yet
	ProxyDraining ProxyState = "draining" // on its way out
	ProxyEvicting ProxyState = "evicting" // being fenced
	ProxyDown     ProxyState = "down"     // admitted, but its lease ended
)

// Proxy is one proxy with its latest figures.
type Proxy struct {
	ID              string     `json:"id"`
	Addr            string     `json:"addr" doc:"Where clients connect."`
	Admin           string     `json:"admin"`
	Zone            string     `json:"zone"`
	State           ProxyState `json:"state" enum:"serving,starting,draining,evicting,down"`
	Incarnation     string     `json:"incarnation"`
	Version         string     `json:"version"`
	StartedAt       *time.Time `json:"startedAt,omitempty"`
	AppliedEpoch    uint64     `json:"appliedEpoch"`
	EpochLag        uint64     `json:"epochLag" doc:"Epochs behind the topology."`
	OpsPerSecond    float64    `json:"opsPerSecond"`
	Clients         int64      `json:"clients"`
	P50Ms           float64    `json:"p50Ms"`
	P99Ms           float64    `json:"p99Ms"`
	MemoryBytes     int64      `json:"memoryBytes"`
	CPUPercent      float64    `json:"cpuPercent" doc:"Of one core."`
	ErrorsPerSecond float64    `json:"errorsPerSecond"`
	PID             int        `json:"pid"`
	FiguresAt       *time.Time `json:"figuresAt,omitempty" doc:"When it last answered; absent: the figures are not known."`
	Problem         string     `json:"problem,omitempty" doc:"Why there are no fresh figures."`
	Unreachable     []string   `json:"unreachable" doc:"Nodes it can not reach."`
}

// Proxies derives all proxies known to the topology or to etcd, by id.
func Proxies(s *State, live map[string]Figures) []Proxy {
	out := []Proxy{}
	for id, r := range s.Proxies {
		out = append(out, proxy(s, id, r, live[id]))
	}
	if s.Topology != nil {
		for _, m := range s.Topology.Proxies {
			if _, registered := s.Proxies[m.ID]; !registered {
				out = append(out, Proxy{ID: m.ID, Incarnation: m.Incarnation, State: memberState(m, ProxyDown), Unreachable: []string{}})
			}
		}
	}
	slices.SortFunc(out, func(a, b Proxy) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func memberState(m topo.Member, otherwise ProxyState) ProxyState {
	if m.State == topo.Evicting {
		return ProxyEvicting
	}
	return otherwise
}

func proxy(s *State, id string, r topo.ProxyRecord, f Figures) Proxy {
	out := Proxy{
		ID: id, Addr: r.Addr, Admin: r.Admin, Zone: r.Zone, State: ProxyStarting, Incarnation: r.Incarnation,
		Version: r.Version, StartedAt: timePointer(r.StartedAt), AppliedEpoch: uint64(r.AppliedEpoch), PID: r.PID,
		Unreachable: []string{},
	}
	for _, u := range r.Unreachable {
		out.Unreachable = append(out.Unreachable, u.Node)
	}
	if s.Topology != nil {
		if s.Topology.Epoch > r.AppliedEpoch {
			out.EpochLag = uint64(s.Topology.Epoch - r.AppliedEpoch)
		}
		if m := s.Topology.Member(id); m != nil && m.Incarnation == r.Incarnation {
			out.State = memberState(*m, ProxyServing)
		}
	}
	if r.Draining && out.State == ProxyServing {
		out.State = ProxyDraining
	}
	out.Problem = f.Problem
	if f.Incarnation == r.Incarnation && !f.At.IsZero() {
		out.OpsPerSecond, out.Clients, out.MemoryBytes = f.OpsPerSecond, f.Clients, f.MemoryBytes
		out.P50Ms, out.P99Ms = f.P50Micros/1000, f.P99Micros/1000
		out.CPUPercent, out.ErrorsPerSecond = f.CPUPercent, f.ErrorsPerSecond
		out.FiguresAt = timePointer(f.At)
	}
	return out
}
