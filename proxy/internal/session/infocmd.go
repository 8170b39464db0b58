package session

import (
	"slices"
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/backend"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// infoCache is what the masters said last. A loop asks them at most once per
// second, however many clients ask for INFO, and leaves out for a while those
// that did not answer: INFO is what tools and health checks live on, so it must
// neither fail nor wait because one group does.
type infoCache struct {
	nodes nodeInfo
	at    int64            // when it was asked for, on the loop's clock
	down  map[string]int64 // by group: until when it is not asked

	versions map[string]string // of Redis, by master
}

// meter takes the rates of one loop, once a second while it has work.
type meter struct {
	at           int64 // the loop's clock at the last sample
	ops, in, out uint64
	last         rates
}

// tick must be called once per turn, and before last is read.
func (m *meter) tick(now int64, st *stats.Snapshot) {
	if now-m.at < int64(time.Second) {
		return
	}
	if m.at != 0 {
		seconds := float64(now-m.at) / float64(time.Second)
		m.last = rates{
			ops:      float64(st.Commands-m.ops) / seconds,
			bytesIn:  float64(st.BytesIn-m.in) / seconds,
			bytesOut: float64(st.BytesOut-m.out) / seconds,
		}
	}
	m.at, m.ops, m.in, m.out = now, st.Commands, st.BytesIn, st.BytesOut
}

const (
	infoFresh = int64(time.Second)
	infoSkip  = int64(5 * time.Second)
)

func (s *Session) info(cmd *command.Command, args [][]byte) bool {
	sections := make([][]byte, 0, len(args))
	for _, a := range args[1:] {
		sections = append(sections, slices.Clone(a))
	}
	e := s.env
	cache := &e.Local.info
	proto := s.Proto()
	asked := 0
	var total stats.Snapshot
	var recent rates
	r := s.ask(cmd, func(r *Request, dst []byte) []byte {
		if asked > 0 {
			cache.take(r, asked)
		}
		return resp.AppendVerbatim(dst, proto, "txt", string(infoText(e.infoSource(&total, recent), sections)))
	})
	if s.db != 0 {
		r.lane = e.Pool.Lane(proto, 0) // no connection to another database just for this
	}
	if e.Table != nil && (cache.nodes.nodes == 0 || e.Now-cache.at >= infoFresh) {
		cache.at = e.Now
		encoded := resp.AppendCommandStrings(nil, "INFO")
		for _, g := range s.owners() {
			if e.Now >= cache.down[e.Table.Groups[g].ID] && !e.Table.AllHeld(g) {
				r.to(g, encoded)
				asked++
			}
		}
	}
	totals := make([]stats.Snapshot, e.loops())
	recents := make([]rates, e.loops())
	part := r.own()
	e.each(func(i int, peer *Env) {
		totals[i].Add(&peer.Stats.Snapshot)
		peer.Local.meter.tick(peer.Now, &peer.Stats.Snapshot)
		recents[i] = peer.Local.meter.last
	}, func() {
		for i := range totals {
			total.Add(&totals[i])
			recent.add(recents[i])
		}
		r.Reply(part, []byte("\n"))
	})
	return true
}

// take reads the replies of the masters, the first n parts.
func (c *infoCache) take(r *Request, n int) {
	var sum nodeInfo
	for i := range n {
		reply := r.reply(i)
		kind, length, size, ok := resp.Header(reply)
		if !ok || kind != '$' && kind != '=' || length < 0 {
			if c.down == nil {
				c.down = map[string]int64{}
			}
			c.down[r.parts[i].group] = r.env.Now + infoSkip
			continue
		}
		sum.add(reply[size : size+length])
	}
	if sum.nodes > 0 {
		c.nodes = sum
	}
}

func (e *Env) infoSource(total *stats.Snapshot, recent rates) *infoSource {
	now := time.Now()
	return &infoSource{
		host: e.Local.Host, now: now, total: total, recent: recent,
		table: e.Table, nodes: e.Local.info.nodes, version: e.version(), replicas: e.replicaInfos(),
	}
}

// version is the lowest version of Redis among the masters, as far as known.
func (e *Env) version() string {
	lowest := ""
	if e.Table != nil {
		for i := range e.Table.Groups {
			v := e.Local.info.versions[e.Table.Groups[i].Master]
			if v != "" && (lowest == "" || lessVersion(v, lowest)) {
				lowest = v
			}
		}
	}
	if lowest == "" {
		return e.Config.Version
	}
	return lowest
}

// LearnVersions asks new masters for their version, after Apply: HELLO tells it, and nobody
// may have asked for INFO before.
func (e *Env) LearnVersions() {
	c := &e.Local.info
	known := c.versions
	c.versions = make(map[string]string, len(e.Table.Groups))
	lane := e.Pool.Lane(2, 0)
	for i := range e.Table.Groups {
		master := e.Table.Groups[i].Master
		if v := known[master]; v != "" {
			c.versions[master] = v
			continue
		}
		if e.Table.Groups[i].Slots > 0 {
			lane.To(i).Add(resp.AppendCommandStrings(nil, "INFO", "server"), &versionProbe{e, master}, 0, true)
		}
	}
}

// versionProbe takes a master's answer. Without one the next table tries again.
type versionProbe struct {
	env    *Env
	master string
}

func (p *versionProbe) Reply(_ int, reply []byte) {
	if kind, n, size, ok := resp.Header(reply); ok && kind == '$' && n >= 0 {
		var info nodeInfo
		info.add(reply[size : size+n])
		p.env.Local.info.versions[p.master] = info.version
	}
}

func (p *versionProbe) Resend(int, []byte, backend.Again) {}

func (p *versionProbe) Fail(int, backend.Cause) {}
