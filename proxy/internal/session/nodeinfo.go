package session

import (
	"bytes"
	"strconv"
	"strings"
)

// nodeInfo is what the proxy's INFO takes from the masters' own: sums over all of
// them, the largest number of patterns, of which each has all, and the lowest
// version.
type nodeInfo struct {
	version  string
	patterns int64
	nodes    int
	sums     map[string]int64 // by INFO field
	dbs      map[int]dbInfo
}

// dbInfo is one line of the keyspace section.
type dbInfo struct {
	keys, expires int64
	ttl           float64 // avg_ttl × expires, so that it can be summed; milliseconds
}

// summedFields are the INFO fields that make sense as a sum over masters.
var summedFields = []string{
	"used_memory", "used_memory_rss", "used_memory_peak", "used_memory_overhead", "used_memory_startup",
	"used_memory_dataset", "used_memory_lua", "total_system_memory", "maxmemory", "mem_replication_backlog",
	"lazyfree_pending_objects", "lazyfreed_objects", "rdb_changes_since_last_save",
	"expired_keys", "evicted_keys", "keyspace_hits", "keyspace_misses", "connected_slaves",
	"pubsub_channels", "pubsubshard_channels", "number_of_cached_scripts", "number_of_functions",
	"master_repl_offset", "loading",
}

// add parses one master's INFO text and adds it.
func (n *nodeInfo) add(text []byte) {
	if n.sums == nil {
		n.sums, n.dbs = map[string]int64{}, map[int]dbInfo{}
		for _, f := range summedFields {
			n.sums[f] = 0
		}
	}
	n.nodes++
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		name, value, ok := bytes.Cut(bytes.TrimRight(line, "\r"), []byte(":"))
		if !ok {
			continue
		}
		switch sum, summed := n.sums[string(name)]; {
		case summed:
			v, _ := strconv.ParseInt(string(value), 10, 64)
			n.sums[string(name)] = sum + v
		case string(name) == "pubsub_patterns":
			v, _ := strconv.ParseInt(string(value), 10, 64)
			n.patterns = max(n.patterns, v)
		case string(name) == "redis_version":
			if n.version == "" || lessVersion(string(value), n.version) {
				n.version = string(value)
			}
		case bytes.HasPrefix(name, []byte("db")):
			n.addDB(string(name[2:]), string(value))
		}
	}
}

// addDB parses "keys=1,expires=0,avg_ttl=0".
func (n *nodeInfo) addDB(number, value string) {
	i, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	db := n.dbs[i]
	var expires int64
	for field := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(field, "=")
		v, _ := strconv.ParseInt(text, 10, 64)
		switch name {
		case "keys":
			db.keys += v
		case "expires":
			expires = v
			db.expires += v
		case "avg_ttl":
			db.ttl += float64(v) * float64(expires)
		}
	}
	n.dbs[i] = db
}

// lessVersion compares versions such as 7.0.15 number by number.
func lessVersion(a, b string) bool {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		if m != n {
			return m < n
		}
	}
	return false
}
