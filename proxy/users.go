package proxy

// roster keeps the users that clients log in as.
//
//	etcd: client-users/… ──► records ──► book ──► engine, all loops
//	                            │
//	                            └──► users.json in the state folder
//
// They are read before the first client is accepted: from etcd, or, while that is
// away, from the file. After that a watch follows every change. A record that
// can not be read, from a newer version perhaps, leaves its user as it was; one
// nobody here ever read is nobody.
//
// The user "default", who a client is before it logs in, is the configuration's
// (password, require_user) as long as etcd has none of that name.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/rights"
)

const usersFile = "users.json"

// usersCache is the stored users.
type usersCache struct {
	Format  int               `json:"format"`
	Name    string            `json:"name"` // of the cluster
	SavedAt time.Time         `json:"saved_at"`
	Users   []topo.ClientUser `json:"users"`
}

type roster struct {
	cluster    string
	log        *slog.Logger
	folder     *folder
	store      *store.Store
	configured *rights.User

	engine  engine // set before follow
	records map[string]topo.ClientUser
	book    *rights.Book
	said    string // what was wrong with records when it was last logged
}

func newRoster(cfg *Config, password string, log *slog.Logger, folder *folder, st *store.Store) *roster {
	return &roster{
		cluster: cfg.Cluster, log: log, folder: folder, store: st,
		configured: rights.Configured(password, cfg.RequireUser), records: map[string]topo.ClientUser{},
	}
}

// recall gives the book to start with.
func (r *roster) recall(ctx context.Context) (*rights.Book, error) {
	cached, err := r.folder.users(r.cluster)
	if err != nil {
		return nil, err
	}
	for _, u := range cached {
		r.records[u.Name] = u
	}
	call, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	items, rev, err := r.store.List(call, store.PrefixClientUsers)
	if err != nil {
		r.log.Warn("client users can not be read from etcd, using those of the last run", "count", len(cached), "err", err)
		r.rebuild(nil)
		return r.book, nil
	}
	r.apply(store.Batch{Rev: rev, Reset: true, Puts: items})
	return r.book, nil
}

// follow watches the users until ctx ends.
func (r *roster) follow(ctx context.Context) {
	for batch := range r.store.Watch(ctx, store.PrefixClientUsers) {
		before := r.book
		if r.apply(batch); r.book != before {
			r.engine.SetUsers(r.book)
		}
	}
}

// apply takes changes over, and stores them.
func (r *roster) apply(batch store.Batch) {
	next := maps.Clone(r.records)
	if batch.Reset {
		clear(next)
	}
	for _, key := range batch.Deletes {
		delete(next, strings.TrimPrefix(key, store.PrefixClientUsers))
	}
	var problems []error
	for _, item := range batch.Puts {
		name := strings.TrimPrefix(item.Key, store.PrefixClientUsers)
		var u topo.ClientUser
		err := item.Decode(&u)
		if err == nil && u.Name != name {
			err = fmt.Errorf("%s is of a user named %q", item.Key, u.Name)
		}
		if err == nil {
			next[name] = u
			continue
		}
		problems = append(problems, err)
		if old, known := r.records[name]; known {
			next[name] = old
		}
	}
	if r.book != nil && reflect.DeepEqual(next, r.records) && len(problems) == 0 {
		return // a re-read
	}
	r.records = next
	r.rebuild(problems)
	r.log.Info("client users changed", "count", len(next), "rev", batch.Rev)
	if err := r.folder.saveUsers(r.cluster, r.sorted(), time.Now()); err != nil {
		r.log.Error("client users can not be stored: a restart while etcd is away will not know them", "err", err)
	}
}

// rebuild makes the book anew and says what is wrong with records, once.
func (r *roster) rebuild(problems []error) {
	book, more := rights.NewBook(r.sorted(), r.configured, r.book)
	r.book = book
	said := ""
	if err := errors.Join(append(problems, more...)...); err != nil {
		said = err.Error()
	}
	if said != "" && said != r.said {
		r.log.Error("client users that can not be read stay as they were", "err", said)
	}
	r.said = said
}

func (r *roster) sorted() []topo.ClientUser {
	list := make([]topo.ClientUser, 0, len(r.records))
	for _, name := range slices.Sorted(maps.Keys(r.records)) {
		list = append(list, r.records[name])
	}
	return list
}

// users reads the cached users of the named cluster, none if there is no file.
func (f *folder) users(cluster string) ([]topo.ClientUser, error) {
	path := filepath.Join(f.dir, usersFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cached users: %w: make this user the owner of %s", err, f.dir)
	}
	var c usersCache
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read cached users %s: %w: remove the file to start from etcd alone", path, err)
	}
	if c.Name != cluster {
		return nil, fmt.Errorf("state folder %s belongs to cluster %q, not %q: set state_dir to another folder", f.dir, c.Name, cluster)
	}
	return c.Users, nil
}

func (f *folder) saveUsers(cluster string, users []topo.ClientUser, now time.Time) error {
	return f.write(usersFile, usersCache{Format: topo.Format, Name: cluster, SavedAt: now.UTC(), Users: users})
}
