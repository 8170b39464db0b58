package coordinator

import (
	"math"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"shardis/coordinator/topo"
)

// counts holds the metrics of a coordinator process. What can be read off the
// present leadership is collected when somebody asks (Collect); only events are
// counted as they happen.
type counts struct {
	registry *prometheus.Registry
	leading  func() *leading // nil while standing by

	leader        prometheus.Gauge
	changes       prometheus.Counter
	reconcile     *prometheus.HistogramVec
	reconcileErrs *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	slots         *prometheus.CounterVec
	keys, bytes   prometheus.Counter
	handover      prometheus.Histogram
	retries       prometheus.Counter
}

func newCounts(version string) *counts {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1}
	}
	quick := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
	c := &counts{
		registry: prometheus.NewRegistry(),
		leader:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "shardis_coordinator_leader", Help: "1 while this coordinator leads."}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{Name: "shardis_coordinator_leader_changes_total",
			Help: "How often this coordinator began or ceased to lead."}),
		reconcile: prometheus.NewHistogramVec(histogram("shardis_coordinator_reconcile_duration_seconds",
			"Time of one look at what a loop tends.", quick), []string{"loop"}),
		reconcileErrs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shardis_coordinator_reconcile_errors_total",
			Help: "Looks that failed."}, []string{"loop"}),
		duration: prometheus.NewHistogramVec(histogram("shardis_operation_duration_seconds", "Time from start to end of an operation.",
			[]float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}), []string{"type", "result"}),
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shardis_migration_slots_total",
			Help: "Slots whose move ended."}, []string{"result"}),
		keys:  prometheus.NewCounter(prometheus.CounterOpts{Name: "shardis_migration_keys_total", Help: "Keys copied by ended moves."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "shardis_migration_bytes_total", Help: "Bytes copied by ended moves."}),
		handover: prometheus.NewHistogram(histogram("shardis_migration_handover_duration_seconds",
			"How long slots were held at hand-over.", quick)),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "shardis_migration_retries_total", Help: "Attempts beyond the first of ended moves."}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "shardis_build_info", Help: "1, with what was built.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version(), "component": "coordinator"}})
	info.Set(1)
	c.registry.MustRegister(info, c.leader, c.changes, c.reconcile, c.reconcileErrs, c.duration, c.slots, c.keys, c.bytes, c.handover, c.retries,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), c)
	return c
}

func (c *counts) elected(yes bool) {
	c.changes.Inc()
	c.leader.Set(0)
	if yes {
		c.leader.Set(1)
	}
}

func (c *counts) reconciled(loop string, took time.Duration, err error) {
	c.reconcile.WithLabelValues(loop).Observe(took.Seconds())
	if err != nil {
		c.reconcileErrs.WithLabelValues(loop).Inc()
	}
}

// operation counts one that ended.
func (c *counts) operation(op *topo.Operation, took time.Duration) {
	c.duration.WithLabelValues(string(op.Kind), string(op.State)).Observe(took.Seconds())
	held := map[string]bool{} // moves of one attempt are handed over together
	for _, m := range op.Moves {
		c.slots.WithLabelValues(string(m.State)).Add(float64(m.Slots.Len()))
		c.keys.Add(float64(m.KeysDone))
		c.bytes.Add(float64(m.BytesDone))
		c.retries.Add(float64(max(0, m.Attempts-1)))
		if m.HoldMS > 0 && !held[m.Attempt] {
			held[m.Attempt] = true
			c.handover.Observe(m.HoldMS / 1000)
		}
	}
}

// What is collected from the leadership.
var (
	descRevision   = desc("shardis_coordinator_store_revision", "Revision of the newest topology seen.")
	descSlots      = desc("shardis_cluster_slots", "Slots by state; one that moves counts as migrating until it is handed over.", "state")
	descImbalance  = desc("shardis_cluster_imbalance_ratio", "Largest share of a group over the mean, minus 1.", "by")
	descGroupSlots = desc("shardis_group_slots", "Slots of a group.", "group")
	descGroupKeys  = desc("shardis_group_keys", "Keys on the master of a group.", "group")
	descGroupUsed  = desc("shardis_group_memory_used_bytes", "Memory used by the master of a group.", "group")
	descGroupMax   = desc("shardis_group_memory_max_bytes", "maxmemory of the master of a group, 0 when unbounded.", "group")
	descNodeInfo   = desc("shardis_node_info", "1 for each node.", "group", "server", "role", "version", "zone")
	descNodeUp     = desc("shardis_node_up", "1 when the node answers.", "group", "server")
	descNodeRole   = desc("shardis_node_role_mismatch", "1 when the node is not what the topology intends.", "group", "server")
	descNodeLag    = desc("shardis_node_replication_lag_bytes", "How far a replica is behind its master.", "group", "server")
	descProxyLag   = desc("shardis_proxy_revision_lag", "Epochs a proxy is behind the newest.", "proxy")
	descOperations = desc("shardis_operations", "Operations in etcd.", "type", "state")
	descRemaining  = desc("shardis_migration_remaining_bytes", "Bytes the running migrations still have to copy.")
	descETA        = desc("shardis_migration_eta_seconds", "Time the running migration still takes, -1 when not known.")
	descLimit      = desc("shardis_migration_rate_limit_bytes_per_second", "Bound of the running migration, 0 for none.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector. What Collect gives depends on
// whether this process leads, so nothing is promised.
func (c *counts) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *counts) Collect(ch chan<- prometheus.Metric) {
	l := c.leading()
	if l == nil {
		return
	}
	t, rev := l.hand.Topology()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(descRevision, float64(rev))
	for id, applied := range l.hand.Applied() {
		gauge(descProxyLag, float64(t.Epoch)-math.Min(float64(applied), float64(t.Epoch)), id)
	}
	collectGroups(l, t, gauge)
	collectOperations(l, t, gauge)
}

type setGauge func(d *prometheus.Desc, value float64, labels ...string)

func collectGroups(l *leading, t *topo.Topology, gauge setGauge) {
	status := l.nodeStatus()
	var slots, memory, ops []float64
	for _, g := range t.Groups {
		owned := float64(t.SlotsOf(g.ID).Len())
		slots = append(slots, owned)
		gauge(descGroupSlots, owned, g.ID)
		master, known := status[g.Master()]
		if known {
			memory, ops = append(memory, float64(master.UsedMemory)), append(ops, master.OpsPerSecond)
			gauge(descGroupKeys, float64(master.KeyCount()), g.ID)
			gauge(descGroupUsed, float64(master.UsedMemory), g.ID)
			gauge(descGroupMax, float64(master.MaxMemory), g.ID)
		}
		for _, n := range g.Nodes {
			s, seen := status[n.Addr]
			if !seen {
				continue
			}
			gauge(descNodeInfo, 1, g.ID, n.Addr, string(n.Role), s.Version, n.Zone)
			gauge(descNodeUp, claim(s.Reachable), g.ID, n.Addr)
			gauge(descNodeRole, claim(s.Reachable && s.Role != n.Role), g.ID, n.Addr)
			if n.Role == topo.Replica && s.Reachable && master.Reachable {
				gauge(descNodeLag, float64(max(0, master.Offset-s.Offset)), g.ID, n.Addr)
			}
		}
	}
	gauge(descImbalance, imbalance(slots), "slots")
	gauge(descImbalance, imbalance(memory), "memory")
	gauge(descImbalance, imbalance(ops), "ops")
}

func collectOperations(l *leading, t *topo.Topology, gauge setGauge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type kindState struct{ kind, state string }
	count := map[kindState]int{}
	var moving topo.SlotSet
	for id, op := range l.ops {
		count[kindState{string(op.Kind), string(op.State)}]++
		if op.Kind != topo.OpMigrate || op.State.Finished() {
			continue
		}
		for _, m := range op.Moves {
			switch m.State {
			case topo.MovePreparing, topo.MoveCopying, topo.MoveCatchingUp, topo.MoveHandingOver:
				moving = moving.Union(m.Slots)
			}
		}
		if op.State != topo.OpQueued {
			gauge(descRemaining, float64(max(0, op.Progress.BytesTotal-op.Progress.BytesDone)))
			gauge(descETA, op.Progress.ETASeconds)
			gauge(descLimit, float64(l.controls[id].Limits.BytesPerSecond))
		}
	}
	for k, n := range count {
		gauge(descOperations, float64(n), k.kind, k.state)
	}
	held, free := 0, t.Unassigned().Len()
	if t.Hold != nil {
		held = t.Hold.Slots.Len()
	}
	migrating := max(0, moving.Len()-held)
	gauge(descSlots, float64(free), "unassigned")
	gauge(descSlots, float64(held), "blocked")
	gauge(descSlots, float64(migrating), "migrating")
	gauge(descSlots, float64(t.Scheme.Slots()-free-held-migrating), "online")
}

func claim(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// imbalance is max/mean - 1, 0 where there is nothing.
func imbalance(shares []float64) float64 {
	sum, most := 0.0, 0.0
	for _, s := range shares {
		sum, most = sum+s, math.Max(most, s)
	}
	if sum == 0 {
		return 0
	}
	return most*float64(len(shares))/sum - 1
}
