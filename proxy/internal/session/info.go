package session

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
)

// INFO is the proxy's own, in Redis's format and with its section and field
// names, so that tools that read a Redis read a proxy. Connections, commands and
// traffic are this proxy's; memory, keyspace and expiry are sums over the
// masters. What has no meaning here keeps the value an idle Redis has.
//
// A new field: add its line to a section below; tools look fields up by name, so
// order only matters to people.

// infoSource is all that INFO tells.
type infoSource struct {
	host    HostInfo
	now     time.Time
	total   *stats.Snapshot // of all loops
	recent  rates           // of all loops
	table   *router.Table   // nil before the first
	nodes   nodeInfo
	version string // of Redis

	replicas []replicaInfo // that were checked
}

// replicaInfo is what INFO tells of a replica.
type replicaInfo struct {
	group, addr string
	state       replicas.State
	lag         time.Duration
}

// rates are per second, over about the last second.
type rates struct {
	ops               float64
	bytesIn, bytesOut float64
}

func (r *rates) add(o rates) {
	r.ops += o.ops
	r.bytesIn += o.bytesIn
	r.bytesOut += o.bytesOut
}

type infoSection struct {
	name  string
	extra bool // only with "all" or "everything", or by name
	write func(*infoWriter, *infoSource)
}

var infoSections = []infoSection{
	{"server", false, infoServer},
	{"clients", false, infoClients},
	{"memory", false, infoMemory},
	{"persistence", false, infoPersistence},
	{"stats", false, infoStats},
	{"replication", false, infoReplication},
	{"cpu", false, infoCPU},
	{"modules", false, func(*infoWriter, *infoSource) {}},
	{"commandstats", true, infoCommandStats},
	{"errorstats", false, infoErrorStats},
	{"cluster", false, func(w *infoWriter, _ *infoSource) { w.put("cluster_enabled", 0) }},
	{"keyspace", false, infoKeyspace},
	{"shardis", false, infoShardis},
}

type infoWriter struct{ b []byte }

func (w *infoWriter) put(name string, value any) {
	w.b = fmt.Appendf(w.b, "%s:%v\r\n", name, value)
}

// infoText writes the sections named; none: the default ones. Unknown names are
// ignored, as in Redis.
func infoText(src *infoSource, names [][]byte) []byte {
	want := make([]string, len(names))
	for i, n := range names {
		want[i] = strings.ToLower(string(n))
	}
	all := slices.Contains(want, "all") || slices.Contains(want, "everything")
	standard := len(want) == 0 || slices.Contains(want, "default")
	w := &infoWriter{}
	for _, s := range infoSections {
		if !all && !(standard && !s.extra) && !slices.Contains(want, s.name) {
			continue
		}
		if len(w.b) > 0 {
			w.b = append(w.b, "\r\n"...)
		}
		w.b = append(w.b, "# "+strings.ToUpper(s.name[:1])+s.name[1:]+"\r\n"...)
		s.write(w, src)
	}
	return w.b
}

func infoServer(w *infoWriter, s *infoSource) {
	uptime := s.now.Sub(s.host.Started)
	w.put("redis_version", s.version)
	w.put("redis_git_sha1", "00000000")
	w.put("redis_git_dirty", 0)
	w.put("redis_build_id", "0")
	w.put("redis_mode", "standalone")
	w.put("os", runtime.GOOS+" "+runtime.GOARCH)
	w.put("arch_bits", 32<<(^uint(0)>>63))
	w.put("multiplexing_api", multiplexing())
	w.put("process_id", os.Getpid())
	w.put("run_id", s.host.RunID)
	w.put("tcp_port", s.host.Port)
	w.put("server_time_usec", s.now.UnixMicro())
	w.put("uptime_in_seconds", int64(uptime.Seconds()))
	w.put("uptime_in_days", int64(uptime.Hours()/24))
	w.put("hz", 10)
	w.put("configured_hz", 10)
	w.put("lru_clock", s.now.Unix()&(1<<24-1))
	w.put("executable", "")
	w.put("config_file", "")
	w.put("io_threads_active", 0)
}

func multiplexing() string {
	if runtime.GOOS == "darwin" {
		return "kqueue"
	}
	return "epoll"
}

func infoClients(w *infoWriter, s *infoSource) {
	w.put("connected_clients", s.total.Clients)
	w.put("cluster_connections", 0)
	w.put("maxclients", s.host.MaxClients)
	w.put("client_recent_max_input_buffer", 0)
	w.put("client_recent_max_output_buffer", 0)
	w.put("blocked_clients", s.total.Blocked)
	w.put("tracking_clients", 0)
	w.put("clients_in_timeout_table", 0)
}

func infoMemory(w *infoWriter, s *infoSource) {
	sum := s.nodes.sums
	for _, f := range []string{"used_memory", "used_memory_rss", "used_memory_peak"} {
		w.put(f, sum[f])
		w.put(f+"_human", humanBytes(sum[f]))
	}
	w.put("used_memory_peak_perc", percent(sum["used_memory"], sum["used_memory_peak"]))
	for _, f := range []string{"used_memory_overhead", "used_memory_startup", "used_memory_dataset"} {
		w.put(f, sum[f])
	}
	w.put("used_memory_dataset_perc", percent(sum["used_memory_dataset"], sum["used_memory"]-sum["used_memory_startup"]))
	w.put("total_system_memory", sum["total_system_memory"])
	w.put("total_system_memory_human", humanBytes(sum["total_system_memory"]))
	w.put("used_memory_lua", sum["used_memory_lua"])
	w.put("used_memory_lua_human", humanBytes(sum["used_memory_lua"]))
	w.put("number_of_cached_scripts", sum["number_of_cached_scripts"])
	w.put("number_of_functions", sum["number_of_functions"])
	w.put("maxmemory", sum["maxmemory"])
	w.put("maxmemory_human", humanBytes(sum["maxmemory"]))
	w.put("maxmemory_policy", "noeviction")
	ratio := 0.0
	if sum["used_memory"] > 0 {
		ratio = float64(sum["used_memory_rss"]) / float64(sum["used_memory"])
	}
	w.put("mem_fragmentation_ratio", fmt.Sprintf("%.2f", ratio))
	w.put("mem_fragmentation_bytes", sum["used_memory_rss"]-sum["used_memory"])
	w.put("mem_replication_backlog", sum["mem_replication_backlog"])
	w.put("mem_clients_slaves", 0)
	w.put("mem_clients_normal", 0)
	w.put("mem_allocator", "go")
	w.put("active_defrag_running", 0)
	w.put("lazyfree_pending_objects", sum["lazyfree_pending_objects"])
	w.put("lazyfreed_objects", sum["lazyfreed_objects"])
}

// infoPersistence: loading is always 0 here; a group that loads answers its own
// commands with LOADING, and clients that wait for 0 would wait for the others too.
func infoPersistence(w *infoWriter, s *infoSource) {
	w.put("loading", 0)
	w.put("async_loading", 0)
	w.put("rdb_changes_since_last_save", s.nodes.sums["rdb_changes_since_last_save"])
	w.put("rdb_bgsave_in_progress", 0)
	w.put("rdb_last_save_time", s.host.Started.Unix())
	w.put("rdb_last_bgsave_status", "ok")
	w.put("rdb_last_bgsave_time_sec", -1)
	w.put("rdb_current_bgsave_time_sec", -1)
	w.put("aof_enabled", 0)
	w.put("aof_rewrite_in_progress", 0)
	w.put("aof_rewrite_scheduled", 0)
	w.put("aof_last_rewrite_time_sec", -1)
	w.put("aof_current_rewrite_time_sec", -1)
	w.put("aof_last_bgrewrite_status", "ok")
	w.put("aof_last_write_status", "ok")
}

func infoStats(w *infoWriter, s *infoSource) {
	sum := s.nodes.sums
	w.put("total_connections_received", s.total.Accepted)
	w.put("total_commands_processed", s.total.Commands)
	w.put("instantaneous_ops_per_sec", int64(s.recent.ops))
	w.put("total_net_input_bytes", s.total.BytesIn)
	w.put("total_net_output_bytes", s.total.BytesOut)
	w.put("instantaneous_input_kbps", fmt.Sprintf("%.2f", s.recent.bytesIn/1024))
	w.put("instantaneous_output_kbps", fmt.Sprintf("%.2f", s.recent.bytesOut/1024))
	w.put("rejected_connections", s.total.Closed[stats.TooManyClients])
	w.put("sync_full", 0)
	w.put("sync_partial_ok", 0)
	w.put("sync_partial_err", 0)
	w.put("expired_keys", sum["expired_keys"])
	w.put("evicted_keys", sum["evicted_keys"])
	w.put("evicted_clients", s.total.Closed[stats.OutputLimit])
	w.put("keyspace_hits", sum["keyspace_hits"])
	w.put("keyspace_misses", sum["keyspace_misses"])
	w.put("pubsub_channels", sum["pubsub_channels"])
	w.put("pubsub_patterns", s.nodes.patterns)
	w.put("pubsubshard_channels", sum["pubsubshard_channels"])
	w.put("latest_fork_usec", 0)
	w.put("total_forks", 0)
	w.put("migrate_cached_sockets", 0)
	w.put("tracking_total_keys", 0)
	w.put("unexpected_error_replies", 0)
	w.put("total_error_replies", s.total.Errors)
}

// infoReplication calls the proxy a master without replicas: that is how clients
// are to treat it.
func infoReplication(w *infoWriter, s *infoSource) {
	w.put("role", "master")
	w.put("connected_slaves", 0)
	w.put("master_failover_state", "no-failover")
	w.put("master_replid", s.host.RunID)
	w.put("master_replid2", strings.Repeat("0", 40))
	w.put("master_repl_offset", s.nodes.sums["master_repl_offset"])
	w.put("second_repl_offset", -1)
	w.put("repl_backlog_active", 0)
	w.put("repl_backlog_size", 1048576)
	w.put("repl_backlog_first_byte_offset", 0)
	w.put("repl_backlog_histlen", 0)
}

func infoCPU(w *infoWriter, _ *infoSource) {
	system, user := cpuTimes()
	w.put("used_cpu_sys", fmt.Sprintf("%.6f", system.Seconds()))
	w.put("used_cpu_user", fmt.Sprintf("%.6f", user.Seconds()))
	w.put("used_cpu_sys_children", "0.000000")
	w.put("used_cpu_user_children", "0.000000")
}

// infoCommandStats counts calls and failures; the proxy does not time commands
// one by one, so the times are 0.
func infoCommandStats(w *infoWriter, s *infoSource) {
	for id, calls := range s.total.Calls {
		c := command.ByID(uint16(id))
		if c == nil || calls == 0 {
			continue
		}
		w.put("cmdstat_"+c.Name, fmt.Sprintf("calls=%d,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=%d", calls, s.total.Failed[id]))
	}
}

func infoErrorStats(w *infoWriter, s *infoSource) {
	if s.total.Errors > 0 {
		w.put("errorstat_ERR", fmt.Sprintf("count=%d", s.total.Errors))
	}
}

func infoKeyspace(w *infoWriter, s *infoSource) {
	numbers := make([]int, 0, len(s.nodes.dbs))
	for n := range s.nodes.dbs {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		db := s.nodes.dbs[n]
		ttl := int64(0)
		if db.expires > 0 {
			ttl = int64(db.ttl / float64(db.expires))
		}
		w.put(fmt.Sprint("db", n), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=%d", db.keys, db.expires, ttl))
	}
}

func infoShardis(w *infoWriter, s *infoSource) {
	w.put("proxy_id", s.host.ID)
	w.put("shardis_version", s.host.Version)
	if s.table == nil {
		w.put("topology_epoch", 0)
		return
	}
	w.put("topology_epoch", s.table.Epoch)
	w.put("topology_groups", len(s.table.Groups))
	w.put("topology_slots", s.table.Slots())
	w.put("topology_hold", s.table.HoldID)
	for _, g := range s.table.Groups {
		w.put("group_"+g.ID, fmt.Sprintf("master=%s,slots=%d", g.Master, g.Slots))
	}
	w.put("replica_reads", s.total.ReplicaReads)
	w.put("replica_retries", s.total.ReplicaRetries)
	for i, r := range s.replicas {
		w.put(fmt.Sprint("replica", i), fmt.Sprintf("group=%s,addr=%s,reads=%s,lag=%.3f", r.group, r.addr, r.state, r.lag.Seconds()))
	}
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(whole))
}

// humanBytes writes sizes as Redis does: 1.04M.
func humanBytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, unit := float64(n), 0
	for v >= 1024 && unit < len(byteUnits)-1 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.2f%c", v, byteUnits[unit])
}

const byteUnits = "BKMGTPE"
