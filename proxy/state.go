package proxy

// The state folder: what a proxy must remember over restarts.
//
//	lock           held (flock) while a proxy runs: two can not share a folder
//	identity.json  id, incarnation, the password for the nodes, whether this
//	               incarnation was ever admitted
//	topology.json  the newest topology seen: served while etcd is away
//	users.json     the newest client users seen, for the same case
//
// Files are replaced atomically and synced, folder included, before anything
// is said that relies on them: after a restart the proxy can not fall back
// behind an epoch that it reported as applied.
//
// A copied folder must not make two proxies of one. The lock sees it on one
// machine; over machines the identity carries a mark of where it was made
// (machine id, host name, inode of the folder), and one that was moved is
// renewed: the new incarnation needs to be admitted, nothing else is lost.
// What escapes both (two running clones of one virtual machine) is seen when
// one finds its record overwritten by the other: see register.go.

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"shardis/coordinator/topo"
)

const (
	lockFile     = "lock"
	identityFile = "identity.json"
	topologyFile = "topology.json"
)

// identity is who a proxy is to the cluster and to the nodes.
type identity struct {
	Format      int    `json:"format"`
	ID          string `json:"id"`
	Incarnation string `json:"incarnation"` // new whenever the nodes must not let the former one in
	Password    string `json:"password"`    // of topo.ProxyUser(ID, Incarnation)
	Admitted    bool   `json:"admitted"`    // a topology admitted this incarnation once
	Place       string `json:"place"`       // where it was made
}

func (i identity) user() string { return topo.ProxyUser(i.ID, i.Incarnation) }

func (i identity) passwordHash() string {
	sum := sha256.Sum256([]byte(i.Password))
	return hex.EncodeToString(sum[:])
}

// cache is the stored topology.
type cache struct {
	Format   int             `json:"format"`
	Name     string          `json:"name"` // of the cluster
	SavedAt  time.Time       `json:"saved_at"`
	Topology json.RawMessage `json:"topology"`
}

// folder is an open, locked state folder.
type folder struct {
	dir   string
	lock  *os.File
	place string
}

// openFolder makes and locks the state folder.
func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder %s can not be made: %w: set state_dir to a folder this user may write", dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("state folder %s is open to other users (mode %04o) but holds the password for the nodes: run `chmod 700 %s`", dir, mode, dir)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder %s can not be written: %w: make this user its owner, or set state_dir to another", dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("state folder %s is used by another running proxy: give each proxy a state_dir of its own", dir)
		}
		return nil, fmt.Errorf("state folder %s can not be locked: %w: set state_dir to a local file system", dir, err)
	}
	return &folder{dir: dir, lock: lock, place: placeOf(info)}, nil
}

func (f *folder) close() { _ = f.lock.Close() }

// placeOf marks the machine and folder an identity belongs to.
func placeOf(info fs.FileInfo) string {
	machine, _ := os.ReadFile("/etc/machine-id")
	host, _ := os.Hostname()
	var inode uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d", strings.TrimSpace(string(machine)), host, inode))
	return hex.EncodeToString(sum[:8])
}

// identity reads who this proxy is, or makes it up: configured is the id from
// the configuration, "" to keep the stored one or make one. renewed says why a
// stored identity could not be kept, "" when it was or when there was none.
func (f *folder) identity(configured string) (id identity, renewed string, err error) {
	data, err := os.ReadFile(filepath.Join(f.dir, identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id, err = f.renew(configured)
		return id, "", err
	case err != nil:
		return identity{}, "", fmt.Errorf("read identity: %w: make this user the owner of %s", err, f.dir)
	}
	if err := json.Unmarshal(data, &id); err != nil || id.Format != topo.Format || topo.CheckID(id.ID) != nil || id.Incarnation == "" || id.Password == "" {
		id, err := f.renew(configured)
		return id, "the stored identity is damaged", err
	}
	switch {
	case configured != "" && configured != id.ID:
		id, err := f.renew(configured)
		return id, "the configured id changed", err
	case id.Place != f.place:
		id, err := f.renew(configured)
		return id, "the state folder was copied or moved", err
	}
	return id, "", nil
}

// renew makes and stores a fresh incarnation and password. An empty id makes a
// fresh id too.
func (f *folder) renew(id string) (identity, error) {
	if id == "" {
		id = "proxy-" + strings.ToLower(rand.Text()[:4])
	}
	fresh := identity{
		Format:      topo.Format,
		ID:          id,
		Incarnation: strings.ToLower(rand.Text()[:10]),
		Password:    rand.Text() + rand.Text(),
		Place:       f.place,
	}
	return fresh, f.saveIdentity(fresh)
}

func (f *folder) saveIdentity(id identity) error { return f.write(identityFile, id) }

// topology reads the cached topology of the named cluster, nil if there is none.
func (f *folder) topology(cluster string) (*topo.Topology, error) {
	path := filepath.Join(f.dir, topologyFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cached topology: %w: make this user the owner of %s", err, f.dir)
	}
	var c cache
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read cached topology %s: %w: remove the file to start from etcd alone", path, err)
	}
	if c.Name != cluster {
		return nil, fmt.Errorf("state folder %s belongs to cluster %q, not %q: set state_dir to another folder", f.dir, c.Name, cluster)
	}
	t, err := topo.DecodeTopology(c.Topology)
	if err != nil {
		return nil, fmt.Errorf("read cached topology %s: %w: remove the file to start from etcd alone", path, err)
	}
	return t, nil
}

// saveTopology stores t; when it returns nil the topology survives a crash of
// the machine.
func (f *folder) saveTopology(cluster string, t *topo.Topology, now time.Time) error {
	data, err := t.Encode()
	if err != nil {
		return fmt.Errorf("encode topology: %w", err)
	}
	return f.write(topologyFile, cache{Format: topo.Format, Name: cluster, SavedAt: now.UTC(), Topology: data})
}

// write replaces a file by value as JSON: written and synced beside it,
// renamed over it, then the folder synced, for the rename to last.
func (f *folder) write(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	path := filepath.Join(f.dir, name)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(f.dir)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	dir, err := os.Open(f.dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", f.dir, err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.dir, err)
	}
	return nil
}
