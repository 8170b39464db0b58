package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "secret"

func start(t *testing.T, extra ...string) *localredis.Process {
	t.Helper()
	return localredis.StartTest(t, localredis.Config{Password: password, MasterAuth: password, Extra: extra})
}

func open(t *testing.T, addr string, secret topo.Secret, opts ...Option) *Admin {
	t.Helper()
	a, err := Open(t.Context(), addr, secret, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func admin(t *testing.T, p *localredis.Process) *Admin {
	t.Helper()
	return open(t, p.Addr, topo.Secret{Password: password})
}

// eventually waits for a condition, looking every few milliseconds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	p := start(t)
	for name, secret := range map[string]topo.Secret{
		"wrong password": {Password: "wrong"},
		"no password":    {},
		"unknown user":   {User: "nobody", Password: password},
	} {
		if _, err := Open(t.Context(), p.Addr, secret); !errors.Is(err, ErrAuth) {
			t.Errorf("%s: got %v, want ErrAuth", name, err)
		}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, err := Open(t.Context(), closed.Addr().String(), topo.Secret{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody listens: got %v, want ErrUnreachable", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if _, err := Open(t.Context(), silent.Addr().String(), topo.Secret{}, Timeout(50*time.Millisecond)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody answers: got %v, want ErrUnreachable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, p.Addr, topo.Secret{}); errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want only context.Canceled", err)
	}
}

func TestOpenSendsNothingBehindARefusedLogin(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{}) // The default user is open.
	if _, err := Open(t.Context(), p.Addr, topo.Secret{User: "gone", Password: "x"}); !errors.Is(err, ErrAuth) {
		t.Fatalf("got %v, want ErrAuth", err)
	}
	a := open(t, p.Addr, topo.Secret{})
	info, err := a.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	if s := info["cmdstat_client|setname"]; !strings.HasPrefix(s, "calls=1,") { // a's own
		t.Errorf("CLIENT SETNAME ran behind a refused AUTH: %s", s)
	}
}

func TestAdminNeverReconnects(t *testing.T) {
	p := start(t)
	a, other := admin(t, p), admin(t, p)
	if _, err := other.KillOthersNamed(t.Context(), "shardis"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := a.Do(t.Context(), "PING").Err(); !errors.Is(err, ErrUnreachable) {
			t.Fatalf("got %v, want ErrUnreachable", err)
		}
		if a.Alive() {
			t.Fatal("a broken connection counts as alive")
		}
	}
	if err := other.Do(t.Context(), "PING").Err(); err != nil {
		t.Fatalf("its own connection was closed, too: %v", err)
	}
}

func TestAdminTimeoutBreaksTheConnection(t *testing.T) {
	p := start(t)
	a := open(t, p.Addr, topo.Secret{Password: password}, Timeout(50*time.Millisecond))
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := a.Do(t.Context(), "PING").Err(); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := a.Do(t.Context(), "PING").Err(); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("after an answer came too late: got %v, want ErrUnreachable", err)
	}
}

func TestStatusAndRoles(t *testing.T) {
	ctx := t.Context()
	mp, rp := start(t, "maxmemory 100mb"), start(t)
	m, r := admin(t, mp), admin(t, rp)
	if err := r.ReplicaOf(ctx, mp.Addr, topo.Secret{Password: password}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is in sync", func() bool {
		role, err := r.Role(ctx)
		return err == nil && role.InSync()
	})
	if err := m.Do(ctx, "SET", "k", "v").Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := m.Wait(ctx, 1, 10*time.Second); err != nil || n != 1 {
		t.Fatalf("wait: %d, %v", n, err)
	}
	ms, err := m.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !ms.Reachable || ms.Role != topo.Master || len(ms.RunID) != 40 || ms.MaxMemory != 100<<20 || ms.Policy != "noeviction" ||
		ms.KeyCount() != 1 || ms.UsedMemory == 0 || ms.Version == "" || ms.Offset == 0 {
		t.Errorf("master: %+v", ms)
	}
	rs, err := r.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if rs.Role != topo.Replica || rs.MasterAddr != mp.Addr || !rs.LinkUp || rs.ReplID != ms.ReplID || rs.KeyCount() != 1 {
		t.Errorf("replica: %+v", rs)
	}
	role, err := m.Role(ctx)
	if err != nil || len(role.Replicas) != 1 || role.Replicas[0].Addr != rp.Addr {
		t.Errorf("master's role: %+v, %v", role, err)
	}
	if err := r.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if role, err := r.Role(ctx); err != nil || role.Role != topo.Master {
		t.Errorf("after promotion: %+v, %v", role, err)
	}
	if v, err := m.ConfigGet(ctx, "maxmemory"); err != nil || v != "104857600" {
		t.Errorf("maxmemory: %q, %v", v, err)
	}
	if _, err := m.ConfigGet(ctx, "no-such-setting"); err == nil {
		t.Error("a setting that does not exist was read")
	}
	if err := m.Do(ctx, "GET", "none").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("absent value: %v", err)
	}
}

func TestSetUserRules(t *testing.T) {
	p := start(t, "enable-debug-command yes")
	a := admin(t, p)
	mayNot := func(u *Admin, args ...any) {
		t.Helper()
		if err := u.Do(t.Context(), args...).Err(); !errors.Is(err, ErrAuth) {
			t.Errorf("%v: got %v, want ErrAuth", args, err)
		}
	}
	may := func(u *Admin, args ...any) {
		t.Helper()
		if err := u.Do(t.Context(), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Errorf("%v: %v", args, err)
		}
	}
	as := func(name string, rules []string) *Admin {
		t.Helper()
		if err := a.SetUser(t.Context(), name, HashPassword("pw"), rules...); err != nil {
			t.Fatal(err)
		}
		return open(t, p.Addr, topo.Secret{User: name, Password: "pw"})
	}
	proxy, mover, leader := as("shardis-p1-i1", ProxyRules), as("shardis-mover-a", MoverRules), as("shardis-leader-9", LeaderRules)
	for _, u := range []*Admin{proxy, mover, leader} {
		mayNot(u, "CONFIG", "REWRITE")
		mayNot(u, "ACL", "SAVE")
		mayNot(u, "ACL", "LOAD")
		mayNot(u, "SHUTDOWN", "NOSAVE")
		mayNot(u, "DEBUG", "SLEEP", "0")
		mayNot(u, "FAILOVER")
		mayNot(u, "MIGRATE", "h", "1", "k", "0", "1")
		mayNot(u, "SYNC")
		may(u, "PING")
		may(u, "INFO")
		may(u, "ROLE")
		may(u, "SELECT", "1")
	}
	for _, u := range []*Admin{proxy, mover} {
		mayNot(u, "CONFIG", "SET", "maxmemory", "1")
		mayNot(u, "ACL", "SETUSER", "x")
		mayNot(u, "REPLICAOF", "NO", "ONE")
		mayNot(u, "PSYNC", "?", "-1")
		mayNot(u, "MODULE", "LIST")
		mayNot(u, "MONITOR")
		mayNot(u, "CLIENT", "PAUSE", "1")
	}
	mayNot(mover, "FLUSHALL")
	mayNot(mover, "EVAL", "return 1", "0")
	mayNot(leader, "SET", "k", "v")
	mayNot(leader, "FLUSHALL")
	mayNot(leader, "EVAL", "return 1", "0")
	for _, c := range []string{"SET k v", "EVAL return{redis.call('get',KEYS[1])} 1 k", "KEYS *", "FLUSHALL", "SORT k", "PUBLISH c m", "MULTI",
		"EXEC", "OBJECT FREQ k", "SCRIPT FLUSH", "FUNCTION LIST", "CLIENT LIST", "CLIENT ID", "RANDOMKEY", "DBSIZE", "WAIT 0 0", "MEMORY USAGE k"} {
		err := proxy.Do(t.Context(), fields(c)...).Err()
		if errors.Is(err, ErrAuth) || errors.Is(err, ErrUnreachable) {
			t.Errorf("proxy %s: %v", c, err)
		}
	}
	if err := a.SetUser(t.Context(), "default", HashPassword("x")); err == nil {
		t.Error("a user that is not Shardis's was changed")
	}
	if err := a.SetUser(t.Context(), "shardis-x", HashPassword("x"), "+no-such-command"); err == nil {
		t.Error("an unknown command that is not optional was accepted")
	}
}

func fields(text string) []any {
	var all []any
	for f := range strings.FieldsSeq(text) {
		all = append(all, f)
	}
	return all
}

func TestDeleteUserEndsItsConnections(t *testing.T) {
	p := start(t)
	a := admin(t, p)
	if err := a.SetUser(t.Context(), "shardis-p1-i1", HashPassword("pw"), ProxyRules...); err != nil {
		t.Fatal(err)
	}
	u := open(t, p.Addr, topo.Secret{User: "shardis-p1-i1", Password: "pw"})
	if n, err := a.KillClientsOf(t.Context(), "shardis-p1-i1"); err != nil || n != 1 {
		t.Fatalf("killed %d, %v", n, err)
	}
	u = open(t, p.Addr, topo.Secret{User: "shardis-p1-i1", Password: "pw"})
	if n, err := a.DeleteUser(t.Context(), "shardis-p1-i1", "shardis-none"); err != nil || n != 1 {
		t.Fatalf("removed %d, %v", n, err)
	}
	if err := u.Do(t.Context(), "SET", "k", "v").Err(); err == nil {
		t.Fatal("a removed user could write")
	}
	if users, err := a.Users(t.Context()); err != nil || !slices.Equal(users, []string{"default"}) {
		t.Fatalf("users: %v, %v", users, err)
	}
	if _, err := a.DeleteUser(t.Context(), "somebody"); err == nil {
		t.Fatal("a user that is not Shardis's could be removed")
	}
}

func TestNotReadyWhileAReplicaHasNoMaster(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{ReplicaOf: "127.0.0.1:1", Extra: []string{"replica-serve-stale-data no"}})
	a := open(t, p.Addr, topo.Secret{})
	if err := a.Do(t.Context(), "GET", "k").Err(); !errors.Is(err, ErrNotReady) {
		t.Fatalf("got %v, want ErrNotReady", err)
	}
	if !a.Alive() {
		t.Fatal("an answer counts as a broken connection")
	}
}

func TestProbe(t *testing.T) {
	good := start(t)
	secret := topo.Secret{Password: password}
	want := func(r Report, name, result, detail string) {
		t.Helper()
		c := r.Check(name)
		if c == nil || c.Result != result || !strings.Contains(c.Detail, detail) {
			t.Errorf("check %s: got %+v, want %s … %s …", name, c, result, detail)
		}
	}
	r := Probe(t.Context(), good.Addr, secret)
	if f := r.Failed(); f != nil {
		t.Errorf("a good node fails %+v", f)
	}
	for _, c := range r.Checks {
		if c.Result != Pass {
			t.Errorf("a good node: %+v", c)
		}
	}
	if r.Databases != 16 || r.Status.RunID == "" {
		t.Errorf("report: %+v", r)
	}

	want(Probe(t.Context(), good.Addr, topo.Secret{Password: "no"}), CheckPassword, Fail, "user and password")
	want(Probe(t.Context(), "127.0.0.1:1", secret), CheckReachable, Fail, "can not be reached")

	a := admin(t, good)
	if err := a.Do(t.Context(), "SET", "k", "v").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.SetUser(t.Context(), "shardis-p1-i1", HashPassword("pw"), ProxyRules...); err != nil {
		t.Fatal(err)
	}
	if err := a.ConfigSet(t.Context(), "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"); err != nil {
		t.Fatal(err)
	}
	r = Probe(t.Context(), good.Addr, secret)
	want(r, CheckEmpty, Fail, "1 keys")
	want(r, CheckUsers, Warn, "shardis-p1-i1")
	want(r, CheckPolicy, Warn, "allkeys-lru")
	want(Probe(t.Context(), good.Addr, topo.Secret{User: "shardis-p1-i1", Password: "pw"}), CheckPermissions, Fail, "ACL, CONFIG")

	open := localredis.StartTest(t, localredis.Config{ReplicaOf: "127.0.0.1:1"})
	r = Probe(t.Context(), open.Addr, topo.Secret{})
	want(r, CheckDefaultUser, Warn, "requirepass")
	want(r, CheckRole, Warn, "not in sync")

	cluster := localredis.StartTest(t, localredis.Config{Extra: []string{"cluster-enabled yes"}})
	want(Probe(t.Context(), cluster.Addr, topo.Secret{}), CheckStandalone, Fail, "cluster mode")
}

func TestAtLeast(t *testing.T) {
	for version, ok := range map[string]bool{"7.0.15": true, "7.0": true, "8": true, "8.0.1": true, "6.2.9": false, "": false, "x.1": false, "10.0.0": true} {
		if atLeast(version, "7.0") != ok {
			t.Errorf("%q at least 7.0: want %t", version, ok)
		}
	}
}
