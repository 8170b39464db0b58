// Package store keeps the state of a cluster in etcd: values as JSON under
// /shardis/<cluster>/, read and changed by transactions that say what they
// were derived from.
//
// Design. There is one store, etcd; tests run its embedded server, so there is
// no interface and no imitation in memory. Every write is a transaction (Txn)
// comparing what it relies on: the mod-revisions it read and, for a leader,
// the create-revision of its election key. A lease or lock alone is no mutual
// exclusion: a frozen process wakes up believing it still leads. Watches
// (watch.go) give the complete state first, changes after, and the complete
// state again whenever continuity was lost.
//
// Rejected: one key per slot (1,000 proxies would watch 16,384 keys), and a
// lock around changes (see above).
package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

var (
	// ErrNotFound: the key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: something the transaction was derived from changed.
	// Nothing was written; read again and decide again.
	ErrConflict = errors.New("changed meanwhile")
	// ErrNotLeader: the leadership the transaction was guarded by is gone.
	ErrNotLeader = errors.New("no longer the leader")
	// ErrRefused: etcd answered that it will not run the transaction. Nothing
	// was written, and trying the same again does not help.
	ErrRefused = errors.New("refused by etcd")
)

// Config says how to reach etcd and which cluster's keys to use.
type Config struct {
	Endpoints []string // host:port or URL; at least one
	Cluster   string   // name of the cluster, part of every key
	Username  string
	Password  string
	TLS       *tls.Config
	// DialTimeout bounds the first connection. 0 means 5 s.
	DialTimeout time.Duration
	Log         *slog.Logger // nil: discard
}

// Store is a client of one cluster's state. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	prefix string
	log    *slog.Logger
}

// Open makes a client. It does not wait for etcd to answer: see Ping.
func Open(cfg Config) (*Store, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("open store: no etcd address given: set etcd.endpoints, for example 127.0.0.1:2379")
	}
	if cfg.Cluster == "" || strings.ContainsAny(cfg.Cluster, "/ ") {
		return nil, fmt.Errorf("open store: cluster name %q must not be empty or contain '/' or spaces", cfg.Cluster)
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          cfg.DialTimeout,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Username:             cfg.Username,
		Password:             cfg.Password,
		TLS:                  cfg.TLS,
		Logger:               zap.NewNop(),
		DialOptions:          []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20))},
	})
	if err != nil {
		return nil, fmt.Errorf("open store at %s: %w", strings.Join(cfg.Endpoints, ","), err)
	}
	return &Store{client: client, prefix: "/shardis/" + cfg.Cluster + "/", log: cfg.Log}, nil
}

// Close ends the client and every watch and lease made from it.
func (s *Store) Close() error { return s.client.Close() }

// Ping makes sure that etcd answers, by a linearizable read.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.client.Get(ctx, s.prefix+KeyMeta, clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("etcd at %s does not answer: %w: is it running, and is etcd.endpoints right?",
			strings.Join(s.client.Endpoints(), ","), err)
	}
	return nil
}

// Item is one stored value.
type Item struct {
	Key   string // relative to the cluster's prefix
	Value []byte
	Rev   int64 // revision it was last written at
	Lease bool  // it goes when its lease ends
}

// Decode reads the JSON value into out.
func (i Item) Decode(out any) error {
	if err := json.Unmarshal(i.Value, out); err != nil {
		return fmt.Errorf("decode %s: %w", i.Key, err)
	}
	return nil
}

// Get reads one key, linearizably. ErrNotFound if it does not exist.
func (s *Store) Get(ctx context.Context, key string) (Item, error) {
	reply, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return Item{}, fmt.Errorf("read %s: %w", key, err)
	}
	if len(reply.Kvs) == 0 {
		return Item{}, fmt.Errorf("read %s: %w", key, ErrNotFound)
	}
	return s.item(reply.Kvs[0].Key, reply.Kvs[0].Value, reply.Kvs[0].ModRevision, reply.Kvs[0].Lease), nil
}

// List reads all keys below a prefix in key order, at one revision, which is
// returned also when there are none.
func (s *Store) List(ctx context.Context, prefix string) ([]Item, int64, error) {
	reply, err := s.client.Get(ctx, s.prefix+prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", prefix, err)
	}
	items := make([]Item, len(reply.Kvs))
	for i, kv := range reply.Kvs {
		items[i] = s.item(kv.Key, kv.Value, kv.ModRevision, kv.Lease)
	}
	return items, reply.Header.Revision, nil
}

func (s *Store) item(key, value []byte, rev, lease int64) Item {
	return Item{Key: strings.TrimPrefix(string(key), s.prefix), Value: value, Rev: rev, Lease: lease != 0}
}

// Load reads and decodes one key, and says at which revision it was written.
func Load[T any](ctx context.Context, s *Store, key string) (T, int64, error) {
	var out T
	item, err := s.Get(ctx, key)
	if err != nil {
		return out, 0, err
	}
	if err := item.Decode(&out); err != nil {
		return out, 0, err
	}
	return out, item.Rev, nil
}

// LoadAll reads and decodes all keys below a prefix, in key order.
func LoadAll[T any](ctx context.Context, s *Store, prefix string) ([]T, error) {
	items, _, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(items))
	for i, item := range items {
		if err := item.Decode(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
