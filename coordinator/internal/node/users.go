package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Every writer logs in to the nodes as its own ACL user and is fenced by
// removing it: once ACL DELUSER answered, nothing of that user executes any
// more (docs/adr/0009-leader-users.md). Users are never persisted.
//
// A rule that starts with "?" is left out on servers that do not know the
// command.

// UserPrefix starts the name of each user Shardis makes on a node, and of none
// that people make.
const UserPrefix = "shardis-"

var (
	// ProxyRules: everything clients may do with data, scripts, functions and
	// pub/sub, and what a proxy needs to look after its connections; nothing
	// that changes roles, settings or users, copies the data set elsewhere, or
	// stops the server.
	ProxyRules = []string{
		"~*", "&*",
		"+@all", "-@admin", "-@dangerous",
		"+flushall", "+flushdb", "+keys", "+sort", "+sort_ro", "+restore", "+info", "+role", "+lastsave",
		"+client|kill", "+client|list", "+client|unblock",
	}

	// MoverRules: what writing copies to a target and purging needs.
	MoverRules = []string{
		"~*", "resetchannels", "-@all",
		"+ping", "+hello", "+select", "+client|setname", "+client|id", "+info", "+role", "+wait", "+multi", "+exec", "+discard",
		"+scan", "+exists", "+type", "+dbsize", "+dump", "+restore", "+unlink", "+del",
		"+pttl", "+pexpiretime", "+pexpireat", "+persist", "+memory|usage", "+object|encoding",
		"+set", "+append", "+setrange", "+strlen",
		"+hset", "+hscan", "+hlen", "+hdel", "?+hpexpireat", "?+hpersist", "?+hpexpiretime",
		"+sadd", "+sscan", "+scard", "+srem", "+zadd", "+zscan", "+zcard", "+zrem",
		"+rpush", "+lrange", "+llen", "+ltrim",
	}

	// LeaderRules: what looking after nodes and reading the source of a move
	// needs. It writes no data. Who may change users may do everything in the
	// end; that the rest is not given guards against mistakes of our own:
	// CONFIG REWRITE and ACL SAVE would persist users.
	LeaderRules = []string{
		"~*", "&*", "-@all",
		"+ping", "+hello", "+select", "+command", "+time", "+multi", "+exec", "+discard", "+wait",
		"+info", "+role", "+replicaof", "+psync", "+replconf", "+client",
		"+config|get", "+config|set",
		"+acl|setuser", "+acl|deluser", "+acl|getuser", "+acl|users", "+acl|list", "+acl|whoami",
		"+module|list", "+lastsave", "+latency", "+slowlog|get", "+slowlog|len",
		"+dbsize", "+scan", "+exists", "+type", "+dump", "+pttl", "+pexpiretime", "+memory|usage", "+memory|stats", "+object",
		"+strlen", "+getrange", "+hscan", "+hlen", "?+hpexpiretime", "+sscan", "+scard", "+zscan", "+zcard", "+lrange", "+llen", "+xlen",
	}
)

// Users lists the names of the node's ACL users.
func (a *Admin) Users(ctx context.Context) ([]string, error) {
	names, err := a.Do(ctx, "ACL", "USERS").StringSlice()
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return names, nil
}

// SetUser makes a user, or makes it anew, with the SHA-256 of its password in
// lower-case hex and with these rules. Connections it has stay.
func (a *Admin) SetUser(ctx context.Context, name, passwordHash string, rules ...string) error {
	if !strings.HasPrefix(name, UserPrefix) {
		return fmt.Errorf("make user %s: its name does not start with %s", name, UserPrefix)
	}
	rules = slices.Clone(rules)
	for {
		args := []any{"ACL", "SETUSER", name, "reset", "on", "#" + passwordHash}
		for _, r := range rules {
			args = append(args, strings.TrimPrefix(r, "?"))
		}
		err := a.Do(ctx, args...).Err()
		if err == nil {
			return nil
		}
		unknown := slices.IndexFunc(rules, func(r string) bool {
			return r[0] == '?' && strings.Contains(err.Error(), "'"+r[1:]+"'")
		})
		if unknown < 0 {
			return fmt.Errorf("make user %s: %w", name, err)
		}
		rules = slices.Delete(rules, unknown, unknown+1)
	}
}

// DeleteUser removes users and says how many there were. When it returned
// without an error nothing of them is executed any more.
func (a *Admin) DeleteUser(ctx context.Context, names ...string) (int, error) {
	if len(names) == 0 {
		return 0, nil
	}
	args := []any{"ACL", "DELUSER"}
	for _, n := range names {
		if !strings.HasPrefix(n, UserPrefix) {
			return 0, fmt.Errorf("remove user %s: its name does not start with %s", n, UserPrefix)
		}
		args = append(args, n)
	}
	n, err := a.Do(ctx, args...).Int()
	if err != nil {
		return 0, fmt.Errorf("remove users %s: %w", strings.Join(names, ", "), err)
	}
	return n, nil
}

// KillClientsOf closes the connections of a user, other than this one, and
// says how many there were.
func (a *Admin) KillClientsOf(ctx context.Context, user string) (int, error) {
	n, err := a.Do(ctx, "CLIENT", "KILL", "USER", user, "SKIPME", "yes").Int()
	if err != nil {
		return 0, fmt.Errorf("close connections of %s: %w", user, err)
	}
	return n, nil
}

// Client is one line of CLIENT LIST.
type Client struct {
	ID   int64
	Addr string
	Name string
	User string
}

// Clients lists the node's ordinary connections.
func (a *Admin) Clients(ctx context.Context) ([]Client, error) {
	text, err := a.Do(ctx, "CLIENT", "LIST", "TYPE", "normal").Text()
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	var all []Client
	for line := range strings.Lines(text) {
		fields := Info{}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		all = append(all, Client{ID: fields.Int("id"), Addr: fields["addr"], Name: fields["name"], User: fields["user"]})
	}
	return all, nil
}

// KillOthersNamed closes the connections with this name, other than this one.
func (a *Admin) KillOthersNamed(ctx context.Context, name string) (int, error) {
	own, err := a.Do(ctx, "CLIENT", "ID").Int64()
	if err != nil {
		return 0, fmt.Errorf("close connections named %s: %w", name, err)
	}
	clients, err := a.Clients(ctx)
	if err != nil {
		return 0, err
	}
	killed := 0
	for _, c := range clients {
		if c.Name != name || c.ID == own {
			continue
		}
		n, err := a.Do(ctx, "CLIENT", "KILL", "ID", c.ID).Int()
		if err != nil {
			return killed, fmt.Errorf("close connections named %s: %w", name, err)
		}
		killed += n
	}
	return killed, nil
}
