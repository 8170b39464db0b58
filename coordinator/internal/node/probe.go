package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shardis/coordinator/topo"
)

// Results of a check.
const (
	Pass = "pass"
	Warn = "warn" // works, with a consequence that Detail names
	Fail = "fail" // the node can not be used as it is
)

// Names of the checks a Probe makes, in this order. What can not be looked at,
// because an earlier one failed, is left out.
const (
	CheckReachable   = "reachable"
	CheckPassword    = "password"
	CheckPermissions = "permissions" // of the administrator's user
	CheckVersion     = "version"
	CheckStandalone  = "standalone" // not part of a Redis Cluster, no Sentinel
	CheckRole        = "role"
	CheckEmpty       = "empty"
	CheckModules     = "modules"
	CheckPolicy      = "memory-policy"
	CheckDefaultUser = "default-user"
	CheckUsers       = "users" // Shardis's own, left from before
)

const oldestVersion = "7.0"

// Report is what a Probe found.
type Report struct {
	Addr      string
	Status    topo.NodeStatus // filled when the node could be asked
	Databases int             // 0 when not known
	Replicas  []ReplicaLink   // of a master: who follows it
	Checks    []topo.Check
}

// Check finds a check by name, nil if it was not made.
func (r *Report) Check(name string) *topo.Check {
	if i := slices.IndexFunc(r.Checks, func(c topo.Check) bool { return c.Name == name }); i >= 0 {
		return &r.Checks[i]
	}
	return nil
}

// Failed is the first check that failed, nil if none did.
func (r *Report) Failed() *topo.Check {
	if i := slices.IndexFunc(r.Checks, func(c topo.Check) bool { return c.Result == Fail }); i >= 0 {
		return &r.Checks[i]
	}
	return nil
}

func (r *Report) add(name, result, format string, args ...any) {
	r.Checks = append(r.Checks, topo.Check{Name: name, Result: result, Detail: fmt.Sprintf(format, args...)})
}

// Probe looks at a node before it joins a cluster. It changes nothing.
func Probe(ctx context.Context, addr string, secret topo.Secret) Report {
	r := Report{Addr: addr, Status: topo.NodeStatus{Addr: addr}}
	admin, err := Open(ctx, addr, secret, Named("shardis-probe"))
	if err != nil {
		r.refused(err)
		return r
	}
	defer admin.Close()
	info, err := admin.Info(ctx)
	if err != nil {
		r.refused(err)
		return r
	}
	r.Status = status(addr, info)
	r.add(CheckReachable, Pass, "it answers")
	r.add(CheckPassword, Pass, "it accepts the login")
	r.permissions(ctx, admin)
	r.version(info)
	r.standalone(info)
	r.role(ctx, admin)
	r.empty()
	r.modules(ctx, admin)
	r.policy()
	r.users(ctx, admin)
	return r
}

// refused notes why nothing more could be found out.
func (r *Report) refused(err error) {
	r.Status.Error = err.Error()
	switch {
	case errors.Is(err, ErrAuth):
		r.add(CheckReachable, Pass, "it answers")
		r.add(CheckPassword, Fail, "it refuses the login: check user and password (%v)", err)
	case errors.Is(err, ErrNotReady):
		r.add(CheckReachable, Fail, "it answers but is not ready: %v", err)
	default:
		r.add(CheckReachable, Fail, "it can not be reached: check address, bind and firewall (%v)", err)
	}
}

func (r *Report) permissions(ctx context.Context, a *Admin) {
	var missing []string
	if _, err := a.Users(ctx); err != nil {
		missing = append(missing, "ACL")
	}
	databases, err := a.ConfigGet(ctx, "databases")
	if err != nil {
		missing = append(missing, "CONFIG")
	}
	r.Databases, _ = strconv.Atoi(databases)
	if _, err := a.Clients(ctx); err != nil {
		missing = append(missing, "CLIENT")
	}
	if len(missing) > 0 {
		r.add(CheckPermissions, Fail, "the user may not use %s: log in as one that may use every command", strings.Join(missing, ", "))
		return
	}
	r.add(CheckPermissions, Pass, "the user may administer it")
}

func (r *Report) version(info Info) {
	name := "Redis"
	if n := info["server_name"]; n != "" {
		name = n
	}
	version := r.Status.Version
	if !atLeast(version, oldestVersion) {
		r.add(CheckVersion, Fail, "%s %s is too old: %s or newer is needed", name, version, oldestVersion)
		return
	}
	r.add(CheckVersion, Pass, "%s %s", name, version)
}

// atLeast compares dotted version numbers, part by part.
func atLeast(version, least string) bool {
	have, want := strings.Split(version, "."), strings.Split(least, ".")
	for i, w := range want {
		h, err := 0, error(nil)
		if i < len(have) {
			h, err = strconv.Atoi(have[i])
		}
		n, _ := strconv.Atoi(w)
		if err != nil || h != n {
			return err == nil && h > n
		}
	}
	return true
}

func (r *Report) standalone(info Info) {
	switch {
	case info["redis_mode"] == "sentinel":
		r.add(CheckStandalone, Fail, "it is a Sentinel, not a data server")
	case info["cluster_enabled"] == "1" || info["redis_mode"] == "cluster":
		r.add(CheckStandalone, Fail, "it runs in cluster mode: start it with cluster-enabled no")
	default:
		r.add(CheckStandalone, Pass, "it runs on its own")
	}
}

func (r *Report) role(ctx context.Context, a *Admin) {
	role, err := a.Role(ctx)
	if err != nil {
		r.add(CheckRole, Fail, "its role can not be read: %v", err)
		return
	}
	r.Replicas = role.Replicas
	switch {
	case role.Role == topo.Master:
		r.add(CheckRole, Pass, "a master with %d replicas", len(role.Replicas))
	case role.InSync():
		r.add(CheckRole, Pass, "a replica of %s, in sync", role.MasterAddr)
	default:
		r.add(CheckRole, Warn, "a replica of %s, not in sync (%s)", role.MasterAddr, role.Link)
	}
}

func (r *Report) empty() {
	keys := r.Status.KeyCount()
	switch {
	case r.Status.Loading:
		r.add(CheckEmpty, Fail, "it is still loading its data: wait until it is done")
	case keys == 0:
		r.add(CheckEmpty, Pass, "it holds no keys")
	case r.Status.Role == topo.Replica:
		r.add(CheckEmpty, Warn, "it holds %d keys, copies of those of %s", keys, r.Status.MasterAddr)
	default:
		r.add(CheckEmpty, Fail, "it holds %d keys: empty it with FLUSHALL if nobody needs them", keys)
	}
}

func (r *Report) modules(ctx context.Context, a *Admin) {
	list, err := a.Do(ctx, "MODULE", "LIST").Slice()
	if err != nil {
		r.add(CheckModules, Warn, "its modules can not be listed: %v", err)
		return
	}
	var names []string
	for _, entry := range list {
		fields, _ := entry.([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "name" {
				names = append(names, fmt.Sprint(fields[i+1]))
			}
		}
	}
	if len(names) > 0 {
		r.add(CheckModules, Warn, "it has modules (%s): every node that may get these keys needs them, too", strings.Join(names, ", "))
		return
	}
	r.add(CheckModules, Pass, "it has no modules")
}

func (r *Report) policy() {
	switch s := r.Status; {
	case s.MaxMemory == 0:
		r.add(CheckPolicy, Pass, "its memory is not bounded")
	case s.Policy != "noeviction":
		r.add(CheckPolicy, Warn, "it removes keys by itself when its memory is full (maxmemory-policy %s): right for a cache only", s.Policy)
	default:
		r.add(CheckPolicy, Pass, "it refuses writes when its memory is full, and removes nothing")
	}
}

func (r *Report) users(ctx context.Context, a *Admin) {
	user, err := a.Do(ctx, "ACL", "GETUSER", "default").Slice()
	var flags []any
	for i := 0; i+1 < len(user); i += 2 {
		if user[i] == "flags" {
			flags, _ = user[i+1].([]any)
		}
	}
	switch {
	case err != nil:
		r.add(CheckDefaultUser, Warn, "its users can not be read: %v", err)
	case slices.Contains(flags, any("on")) && slices.Contains(flags, any("nopass")):
		r.add(CheckDefaultUser, Warn, "its default user needs no password: whoever reaches the port can read and change everything; set requirepass")
	default:
		r.add(CheckDefaultUser, Pass, "its default user is protected")
	}
	names, err := a.Users(ctx)
	if err != nil {
		return // CheckPermissions said so.
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, UserPrefix) })
	if len(names) > 0 {
		r.add(CheckUsers, Warn, "it has users that Shardis made (%s): it may belong to another cluster, or its users were saved; "+
			"one node must never be in two clusters", strings.Join(names, ", "))
		return
	}
	r.add(CheckUsers, Pass, "no cluster uses it")
}
