package node

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"shardis/coordinator/topo"
)

// Info is the answer to INFO: field → value, whatever the section.
type Info map[string]string

// Int is a field as a number, 0 where it is missing or is none.
func (i Info) Int(field string) int64 {
	n, _ := strconv.ParseInt(i[field], 10, 64)
	return n
}

// parseInfo reads the text of INFO.
func parseInfo(text string) Info {
	info := Info{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if name, value, found := strings.Cut(line, ":"); found {
			info[name] = value
		}
	}
	return info
}

// Info asks for INFO, all usual sections or those named.
func (a *Admin) Info(ctx context.Context, sections ...string) (Info, error) {
	args := []any{"INFO"}
	for _, s := range sections {
		args = append(args, s)
	}
	text, err := a.Do(ctx, args...).Text()
	if err != nil {
		return nil, fmt.Errorf("read info: %w", err)
	}
	return parseInfo(text), nil
}

// Status is what the node says of itself. LagBytes, Owes and Since need more
// than one node or moment and are left to the caller.
func (a *Admin) Status(ctx context.Context) (topo.NodeStatus, error) {
	info, err := a.Info(ctx)
	if err != nil {
		return topo.NodeStatus{Addr: a.addr, Error: err.Error()}, err
	}
	return status(a.addr, info), nil
}

func status(addr string, info Info) topo.NodeStatus {
	s := topo.NodeStatus{
		Addr:         addr,
		Reachable:    true,
		Role:         topo.Master,
		RunID:        info["run_id"],
		ReplID:       info["master_replid"],
		PrevReplID:   info["master_replid2"],
		Offset:       info.Int("master_repl_offset"),
		Loading:      info["loading"] == "1" || info["async_loading"] == "1",
		Version:      info["redis_version"],
		UsedMemory:   info.Int("used_memory"),
		MaxMemory:    info.Int("maxmemory"),
		Policy:       info["maxmemory_policy"],
		Keys:         keyCounts(info),
		OpsPerSecond: float64(info.Int("instantaneous_ops_per_sec")),
		Clients:      info.Int("connected_clients"),
		SeenAt:       time.Now(),
	}
	if info["role"] == "slave" {
		s.Role = topo.Replica
		s.MasterAddr = net.JoinHostPort(info["master_host"], info["master_port"])
		s.LinkUp = info["master_link_status"] == "up"
		s.Offset = info.Int("slave_repl_offset")
		s.Priority = info.Int("slave_priority")
		s.LastIO = -1
		if s.LinkUp {
			s.LastIO = info.Int("master_last_io_seconds_ago")
		}
	}
	return s
}

// keyCounts reads "db0:keys=5,expires=0,avg_ttl=0".
func keyCounts(info Info) map[string]int64 {
	counts := map[string]int64{}
	for field, value := range info {
		db, isDB := strings.CutPrefix(field, "db")
		if _, err := strconv.Atoi(db); !isDB || err != nil {
			continue
		}
		first, _, _ := strings.Cut(value, ",")
		if n, err := strconv.ParseInt(strings.TrimPrefix(first, "keys="), 10, 64); err == nil {
			counts[db] = n
		}
	}
	return counts
}

// RoleState is the answer to ROLE.
type RoleState struct {
	Role       topo.Role
	Offset     int64         // of its replication log, or how far the replica has come
	Replicas   []ReplicaLink // of a master: those connected
	MasterAddr string        // of a replica
	Link       string        // of a replica: connect, connecting, sync or connected
}

// ReplicaLink is a replica as its master sees it.
type ReplicaLink struct {
	Addr   string
	Offset int64 // acknowledged
}

// InSync reports whether a replica follows its master.
func (r RoleState) InSync() bool { return r.Role == topo.Replica && r.Link == "connected" }

// Role asks for ROLE.
func (a *Admin) Role(ctx context.Context) (RoleState, error) {
	reply, err := a.Do(ctx, "ROLE").Slice()
	if err != nil {
		return RoleState{}, fmt.Errorf("read role: %w", err)
	}
	role, err := parseRole(reply)
	if err != nil {
		return RoleState{}, fmt.Errorf("node %s: read role: %w", a.addr, err)
	}
	return role, nil
}

func parseRole(reply []any) (RoleState, error) {
	unexpected := fmt.Errorf("unexpected answer %v", reply)
	if len(reply) < 3 {
		return RoleState{}, unexpected
	}
	switch reply[0] {
	case "master":
		offset, ok := reply[1].(int64)
		links, ok2 := reply[2].([]any)
		if !ok || !ok2 {
			return RoleState{}, unexpected
		}
		r := RoleState{Role: topo.Master, Offset: offset}
		for _, l := range links {
			parts, _ := l.([]any)
			if len(parts) < 3 {
				return RoleState{}, unexpected
			}
			at, err := strconv.ParseInt(fmt.Sprint(parts[2]), 10, 64)
			if err != nil {
				return RoleState{}, unexpected
			}
			r.Replicas = append(r.Replicas, ReplicaLink{net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1])), at})
		}
		return r, nil
	case "slave":
		if len(reply) < 5 {
			return RoleState{}, unexpected
		}
		offset, ok := reply[4].(int64)
		if !ok {
			return RoleState{}, unexpected
		}
		return RoleState{
			Role:       topo.Replica,
			Offset:     offset,
			MasterAddr: net.JoinHostPort(fmt.Sprint(reply[1]), fmt.Sprint(reply[2])),
			Link:       fmt.Sprint(reply[3]),
		}, nil
	}
	return RoleState{}, unexpected
}

// ReplicaOf makes the node follow the master at addr, to which it logs in with
// the master's secret. It does not wait until it is in sync.
func (a *Admin) ReplicaOf(ctx context.Context, addr string, master topo.Secret) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("follow %s: %w", addr, err)
	}
	// A user without a name is the default one, which wants no user name.
	if err := a.ConfigSet(ctx, "masteruser", master.User, "masterauth", master.Password); err != nil {
		return err
	}
	if err := a.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		return fmt.Errorf("follow %s: %w", addr, err)
	}
	return nil
}

// Promote makes the node a master and makes sure that it is one.
func (a *Admin) Promote(ctx context.Context) error {
	if err := a.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	role, err := a.Role(ctx)
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if role.Role != topo.Master {
		return fmt.Errorf("promote: node %s is still a %s", a.addr, role.Role)
	}
	return nil
}

// ConfigGet reads one setting; it fails where the server has no such setting.
func (a *Admin) ConfigGet(ctx context.Context, name string) (string, error) {
	pair, err := a.Do(ctx, "CONFIG", "GET", name).StringSlice()
	if err != nil {
		return "", fmt.Errorf("read setting %s: %w", name, err)
	}
	if len(pair) != 2 {
		return "", fmt.Errorf("node %s has no setting %s", a.addr, name)
	}
	return pair[1], nil
}

// ConfigSet changes settings, given as name, value, name, value …, all or none,
// until the node restarts. They are never written to its configuration file:
// that would store the ACL users with them.
func (a *Admin) ConfigSet(ctx context.Context, pairs ...string) error {
	args := []any{"CONFIG", "SET"}
	var names []string
	for i, p := range pairs {
		args = append(args, p)
		if i%2 == 0 {
			names = append(names, p)
		}
	}
	if err := a.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("set %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// Wait waits until the writes of this connection reached that many replicas,
// and says how many they reached.
func (a *Admin) Wait(ctx context.Context, replicas int, timeout time.Duration) (int, error) {
	n, err := a.client.Wait(ctx, replicas, timeout).Result()
	if err != nil {
		return 0, fmt.Errorf("wait for replicas: %w", a.Err(ctx, err))
	}
	return int(n), nil
}
