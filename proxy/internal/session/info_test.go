package session

import (
	"strings"
	"testing"
	"time"

	"shardis/proxy/internal/stats"
)

func TestNodeInfoSums(t *testing.T) {
	var n nodeInfo
	n.add([]byte("# Server\r\nredis_version:7.0.15\r\nused_memory:100\r\nused_memory_human:1K\r\n\r\n# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=1000\r\n"))
	n.add([]byte("redis_version:7.0.9\r\nused_memory:50\r\ndb0:keys=4,expires=3,avg_ttl=2000\r\ndb7:keys=1,expires=0,avg_ttl=0\r\ndbx:keys=1\r\n"))
	if n.version != "7.0.9" || n.nodes != 2 || n.sums["used_memory"] != 150 {
		t.Errorf("%+v", n)
	}
	text := string(infoText(&infoSource{nodes: n, total: &stats.Snapshot{}}, [][]byte{[]byte("keyspace")}))
	if want := "# Keyspace\r\ndb0:keys=7,expires=4,avg_ttl=1750\r\ndb7:keys=1,expires=0,avg_ttl=0\r\n"; text != want {
		t.Errorf("keyspace: %q", text)
	}
}

func TestInfoSections(t *testing.T) {
	src := &infoSource{total: &stats.Snapshot{}, now: time.Now(), version: "7.0.15"}
	src.nodes.add(nil)
	for names, want := range map[string]string{
		"":                         "server clients memory persistence stats replication cpu modules errorstats cluster keyspace shardis",
		"default":                  "server clients memory persistence stats replication cpu modules errorstats cluster keyspace shardis",
		"ALL":                      "server clients memory persistence stats replication cpu modules commandstats errorstats cluster keyspace shardis",
		"server nosuch":            "server",
		"commandstats Replication": "replication commandstats",
		"nosuch":                   "",
	} {
		var args [][]byte
		for _, f := range strings.Fields(names) {
			args = append(args, []byte(f))
		}
		var got []string
		for line := range strings.SplitSeq(string(infoText(src, args)), "\r\n") {
			if name, ok := strings.CutPrefix(line, "# "); ok {
				got = append(got, strings.ToLower(name))
			} else if line != "" && !strings.Contains(line, ":") {
				t.Errorf("line %q", line)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("INFO %s: sections %v", names, got)
		}
	}
}

func TestLessVersion(t *testing.T) {
	for _, pair := range [][2]string{{"6.2.14", "7.0"}, {"7.0.9", "7.0.15"}, {"7.0", "7.0.1"}} {
		if !lessVersion(pair[0], pair[1]) || lessVersion(pair[1], pair[0]) {
			t.Errorf("%s is not below %s", pair[0], pair[1])
		}
	}
	if lessVersion("7.0.15", "7.0.15") {
		t.Error("a version is below itself")
	}
}

func TestMeter(t *testing.T) {
	var m meter
	st := &stats.Snapshot{}
	m.tick(1e9, st)
	st.Commands = 500
	m.tick(1.5e9, st)
	if m.last.ops != 0 {
		t.Error("sampled too early")
	}
	m.tick(3e9, st)
	if m.last.ops != 250 {
		t.Errorf("%v ops/s", m.last.ops)
	}
}
