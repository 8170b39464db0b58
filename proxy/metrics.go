package proxy

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/stats"
)

// collector gives the engine's counters to Prometheus. The loops count in
// plain integers of their own; here the last sample is turned into series, so
// that scraping costs the loops nothing. Labels never grow with keys, clients
// or slots: commands come from the fixed table, groups and nodes from the
// topology.
type collector struct {
	*control
	info, state                                 *prometheus.Desc
	clients, maxClients, connections, ended     *prometheus.Desc
	commands, latency, held, local, denied      *prometheus.Desc
	subscriptions, messages                     *prometheus.Desc
	received, sent                              *prometheus.Desc
	epoch, updated, age, heldSlots              *prometheus.Desc
	connects, losses, faults, timeouts, retries *prometheus.Desc
	up, backendConns, inflight, requests        *prometheus.Desc
	replicaReads, replicaRetries                *prometheus.Desc
	replicaState, replicaLag                    *prometheus.Desc
}

func newCollector(c *control) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("shardis_"+name, help, labels, nil)
	}
	node := []string{"group", "node"}
	return &collector{
		control: c,
		info:    desc("build_info", "Always 1; what is running.", "version", "revision", "go_version", "component"),
		state:   desc("proxy_state", "1 for the state the proxy is in.", "state"),

		clients:     desc("proxy_clients_connected", "Client connections now."),
		maxClients:  desc("proxy_clients_max", "Client connections allowed at a time."),
		connections: desc("proxy_client_connections_total", "Client connections, by what became of them at once.", "result"),
		ended:       desc("proxy_client_disconnects_total", "Client connections that ended, by why.", "reason"),

		commands: desc("proxy_commands_total", "Commands answered.", "command", "status"),
		latency:  desc("proxy_command_duration_seconds", "Time from a command's last byte read to its reply queued.", "command_class"),
		held:     desc("proxy_held_commands_total", "Commands that waited for a hand-over."),
		denied:   desc("proxy_denied_commands_total", "Commands and logins that users' rights did not allow."),
		local:    desc("proxy_local_commands_total", "Commands answered by the proxy itself."),

		subscriptions: desc("proxy_subscriptions", "Subscriptions of clients now: channels, patterns and shard channels."),
		messages:      desc("proxy_subscription_messages_total", "Messages given to subscribers."),

		received: desc("proxy_receive_bytes_total", "Bytes read.", "side"),
		sent:     desc("proxy_transmit_bytes_total", "Bytes written.", "side"),

		epoch:     desc("proxy_slot_table_epoch", "Lowest topology epoch that the event loops run, 0 before admission."),
		updated:   desc("proxy_slot_table_update_timestamp_seconds", "When the topology last changed here."),
		age:       desc("proxy_slot_table_age_seconds", "Time since etcd confirmed the topology."),
		heldSlots: desc("proxy_held_slots", "Slots that are being handed over now."),

		connects: desc("proxy_backend_connects_total", "Connections made to nodes."),
		losses:   desc("proxy_backend_losses_total", "Connections to nodes that were lost."),
		faults:   desc("proxy_backend_faults_total", "Connections to nodes closed for replies that did not fit."),
		timeouts: desc("proxy_backend_timeouts_total", "Requests that a node did not answer in time."),
		retries:  desc("proxy_backend_retries_total", "Requests sent a second time."),

		replicaReads:   desc("proxy_replica_reads_total", "Requests sent to replicas."),
		replicaRetries: desc("proxy_replica_retries_total", "Requests that a replica failed to answer, sent to its master."),
		replicaState:   desc("backend_replica_state", "1 for what is known of a replica: usable, or why it answers no reads.", "group", "node", "state"),
		replicaLag:     desc("backend_replica_lag_seconds", "How old the data of a usable replica may be.", node...),

		up:           desc("backend_up", "0 while a node can not be reached.", node...),
		backendConns: desc("backend_connections", "Connections to a node.", node...),
		inflight:     desc("backend_inflight_requests", "Requests sent to a node and not yet answered.", node...),
		requests:     desc("backend_requests_total", "Requests sent to a node.", node...),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.info, c.state, c.clients, c.maxClients, c.connections, c.ended, c.commands, c.latency, c.held, c.local, c.denied,
		c.subscriptions, c.messages,
		c.received, c.sent, c.epoch, c.updated, c.age, c.heldSlots, c.connects, c.losses, c.faults, c.timeouts, c.retries,
		c.up, c.backendConns, c.inflight, c.requests, c.replicaReads, c.replicaRetries, c.replicaState, c.replicaLag,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	c.collectTable(gauge)
	s := c.rates.now().snapshot
	gauge(c.clients, float64(s.Clients))
	gauge(c.maxClients, float64(c.cfg.Limits.MaxClients))
	counter(c.connections, s.Accepted, "accepted")
	for reason, n := range s.Closed {
		if r := stats.Reason(reason); r == stats.TooManyClients {
			counter(c.connections, n, "rejected_maxclients")
		} else {
			counter(c.ended, n, r.String())
		}
	}
	for id, calls := range s.Calls {
		if calls > 0 {
			counter(c.commands, calls-s.Failed[id], commandName(id), "ok")
			counter(c.commands, s.Failed[id], commandName(id), "error")
		}
	}
	for class := range s.Latency {
		out <- histogram(c.latency, &s.Latency[class], stats.Class(class).String())
	}
	counter(c.held, s.Held)
	counter(c.local, s.Local)
	counter(c.denied, s.Denied)
	gauge(c.subscriptions, float64(s.Subscriptions))
	counter(c.messages, s.Messages)
	counter(c.received, s.BytesIn, "client")
	counter(c.received, s.BackendBytesIn, "backend")
	counter(c.sent, s.BytesOut, "client")
	counter(c.sent, s.BackendBytesOut, "backend")
	counter(c.connects, s.BackendConnects)
	counter(c.losses, s.BackendLosses)
	counter(c.faults, s.BackendFaults)
	counter(c.timeouts, s.BackendTimeouts)
	counter(c.retries, s.Retried)
	counter(c.replicaReads, s.ReplicaReads)
	counter(c.replicaRetries, s.ReplicaRetries)
	for _, b := range c.engine.Backends() {
		up := 1.0
		if b.State == "down" {
			up = 0
		}
		gauge(c.up, up, b.Group, b.Node)
		gauge(c.backendConns, float64(b.Connections), b.Group, b.Node)
		gauge(c.inflight, float64(b.Inflight), b.Group, b.Node)
		counter(c.requests, uint64(b.Requests), b.Group, b.Node)
		if b.Reads == "" {
			continue
		}
		for state := range replicas.States {
			is := 0.0
			if replicas.State(state).String() == b.Reads {
				is = 1
			}
			gauge(c.replicaState, is, b.Group, b.Node, replicas.State(state).String())
		}
		if b.Reads == replicas.Usable.String() {
			gauge(c.replicaLag, b.LagSeconds, b.Group, b.Node)
		}
	}
}

func (c *collector) collectTable(gauge func(*prometheus.Desc, float64, ...string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge(c.info, 1, c.cfg.Version, buildRevision(), runtime.Version(), "proxy")
	for _, state := range []string{"starting", "serving", "draining"} {
		value := 0.0
		if state == c.control.state() {
			value = 1
		}
		gauge(c.state, value, state)
	}
	epoch, held := 0.0, 0.0
	if c.serving {
		epoch = float64(c.engine.Applied())
		if c.topology.Hold != nil {
			held = float64(c.topology.Hold.Slots.Len())
		}
	}
	gauge(c.epoch, epoch)
	gauge(c.heldSlots, held)
	gauge(c.age, c.tableAge().Seconds())
	if !c.acceptedAt.IsZero() {
		gauge(c.updated, float64(c.acceptedAt.UnixNano())/1e9)
	}
}

// latencyBounds are the buckets shown. The loops count in finer ones, of
// which each is put where its upper end belongs.
var latencyBounds = []time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second,
}

func histogram(desc *prometheus.Desc, h *stats.Histogram, labels ...string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(latencyBounds))
	var n uint64
	next := 0
	for _, bound := range latencyBounds {
		for next < stats.Buckets() && time.Duration(stats.Upper(next))*time.Microsecond <= bound {
			n += h.Counts[next]
			next++
		}
		cumulative[bound.Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, h.Count(), float64(h.Sum)/1e6, cumulative, labels...)
}
