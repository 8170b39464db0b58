package proxy

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/report"
	"shardis/proxy/rights"
)

// clientUser is a record as the dashboard writes it.
func clientUser(t *testing.T, name, uid, rules, password string) topo.ClientUser {
	t.Helper()
	u := topo.ClientUser{Format: topo.Format, Name: name, UID: uid, Rules: rights.Split(rules)}
	if password != "" {
		hash, err := rights.Hash(password)
		if err != nil {
			t.Fatal(err)
		}
		u.Passwords = []string{hash}
	}
	return u
}

// becomes waits until the engine's user is as wanted.
func becomes(t *testing.T, e *fakeEngine, name, what string, wanted func(*rights.User) bool) {
	t.Helper()
	eventually(t, "user "+name+" "+what, func() bool { return wanted(e.clientUser(name)) })
}

func TestUsersFollowEtcd(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	key := store.PrefixClientUsers + "app"
	c.put(key, clientUser(t, "app", "1", "~a +get", ""))
	dir := stateDir(t)
	p := c.start(c.config(dir))
	if u := p.engine.clientUser("app"); u == nil || u.Rules.KeyWords()[0] != "~a" {
		t.Fatal("users are not known from the start")
	}
	keys := func(want string) func(*rights.User) bool {
		return func(u *rights.User) bool { return u != nil && strings.Join(u.Rules.KeyWords(), " ") == want }
	}
	c.put(key, clientUser(t, "app", "1", "~b +get", ""))
	becomes(t, p.engine, "app", "changed", keys("~b"))

	// What can not be read changes nothing, neither here nor in the file.
	c.put(key, "nonsense")
	c.put(store.PrefixClientUsers+"odd", clientUser(t, "other", "2", "", ""))
	c.put(store.PrefixClientUsers+"bad", clientUser(t, "bad", "3", "+nosuch", ""))
	c.put(store.PrefixClientUsers+"last", clientUser(t, "last", "4", "~c", ""))
	becomes(t, p.engine, "last", "known", keys("~c"))
	if !keys("~b")(p.engine.clientUser("app")) || p.engine.clientUser("odd") != nil || p.engine.clientUser("bad") != nil {
		t.Error("a record that can not be read had an effect")
	}
	if _, err := c.store.Begin().Delete(store.PrefixClientUsers + "last").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	becomes(t, p.engine, "last", "gone", func(u *rights.User) bool { return u == nil })
	p.end(t)

	file := filepath.Join(dir, usersFile)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var stored usersCache
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 || len(stored.Users) != 2 || stored.Users[0].Name != "app" || stored.Users[0].Rules[0] != "~b" {
		t.Errorf("mode %v, %+v", info.Mode(), stored.Users)
	}
}

// TestUsersWithEtcdAway: a restarted proxy knows the users of its last run.
func TestUsersWithEtcdAway(t *testing.T) {
	c := newCluster(t, sharedEtcd(t))
	dir := stateDir(t)
	c.put(store.PrefixClientUsers+"app", clientUser(t, "app", "1", "~a +get", ""))
	p := c.start(c.config(dir))
	c.admit(c.record("at all", anyRecord))
	becomesServing(t, p)
	p.end(t)
	cfg := c.config(dir)
	cfg.Etcd.Endpoints = []string{refusing(t)}
	again := c.start(cfg)
	if again.engine.clientUser("app") == nil {
		t.Error("the user is forgotten")
	}
}

// refusing is an address that nobody listens on.
func refusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// becomesServing waits until the topology is in the state folder.
func becomesServing(t *testing.T, p *proc) {
	t.Helper()
	eventually(t, "the topology in the state folder", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.serving && p.synced == p.topology.Epoch
	})
}

// TestRealProxyWithUsers: logins, rights and changes through real loops, nodes
// and etcd.
func TestRealProxyWithUsers(t *testing.T) {
	n := startNode(t)
	c := newRealCluster(t, n)
	c.put(store.PrefixClientUsers+"app", clientUser(t, "app", "1", "~app:* &* +@all -@dangerous", "correct horse"))
	cfg := c.config(stateDir(t))
	cfg.RequireUser = true
	p, err := startReal(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.letIn(c.record("at all", anyRecord), n)
	connect := func(user, password string, proto int) *redis.Client {
		client := redis.NewClient(&redis.Options{
			Addr: p.addr, Username: user, Password: password, Protocol: proto, MaxRetries: -1, ReadTimeout: patience, PoolSize: 1,
		})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	ctx := t.Context()
	eventually(t, "the proxy to know the user", func() bool {
		return connect("app", "correct horse", 2).Set(ctx, "app:k", "v", 0).Err() == nil
	})
	if err := connect("", "", 2).Set(ctx, "app:k", "v", 0).Err(); err == nil || err.Error() != "NOAUTH Authentication required." {
		t.Errorf("without a login: %v", err)
	}
	if err := connect("app", "wrong horse", 2).Get(ctx, "app:k").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS ") {
		t.Errorf("with a wrong password: %v", err)
	}
	for _, proto := range []int{2, 3} {
		client := connect("app", "correct horse", proto)
		if err := client.Set(ctx, "app:k", "v", 0).Err(); err != nil {
			t.Errorf("RESP%d: %v", proto, err)
		}
		if err := client.Get(ctx, "k").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
			t.Errorf("RESP%d, another key: %v", proto, err)
		}
		if err := client.FlushAll(ctx).Err(); err == nil || err.Error() != "NOPERM this user has no permissions to run the 'flushall' command" {
			t.Errorf("RESP%d, FLUSHALL: %v", proto, err)
		}
	}
	client := connect("app", "correct horse", 3)
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	c.put(store.PrefixClientUsers+"app", clientUser(t, "app", "1", "~* +@all", "correct horse"))
	eventually(t, "the new rights", func() bool { return client.Get(ctx, "k").Err() == redis.Nil })
	if _, err := c.store.Begin().Delete(store.PrefixClientUsers + "app").Commit(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the clients' end", func() bool { return client.Ping(ctx).Err() != nil })
	eventually(t, "the end of all clients of the removed user", func() bool {
		return !slices.ContainsFunc(p.running.engine.Clients(), func(row report.Client) bool { return row.User == "app" })
	})
}
