package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Txn collects comparisons and writes that happen all together or not at all.
// At most 128 operations fit one transaction (etcd's limit).
type Txn struct {
	store  *Store
	leader *Leadership // set: the transaction is guarded by it
	ifs    []clientv3.Cmp
	thens  []clientv3.Op
	failed error
}

// Begin starts a transaction.
func (s *Store) Begin() *Txn { return &Txn{store: s} }

// Unchanged requires that key was last written at rev; 0 requires that it does
// not exist.
func (t *Txn) Unchanged(key string, rev int64) *Txn {
	t.ifs = append(t.ifs, clientv3.Compare(clientv3.ModRevision(t.store.prefix+key), "=", rev))
	return t
}

// Exists requires that key exists.
func (t *Txn) Exists(key string) *Txn {
	t.ifs = append(t.ifs, clientv3.Compare(clientv3.CreateRevision(t.store.prefix+key), ">", 0))
	return t
}

// Put writes value as JSON.
func (t *Txn) Put(key string, value any) *Txn { return t.put(key, value) }

// PutLease writes value as JSON; it goes when the lease ends.
func (t *Txn) PutLease(key string, value any, lease *Lease) *Txn {
	return t.put(key, value, clientv3.WithLease(lease.id))
}

func (t *Txn) put(key string, value any, opts ...clientv3.OpOption) *Txn {
	data, err := json.Marshal(value)
	if err != nil {
		t.failed = errors.Join(t.failed, fmt.Errorf("encode %s: %w", key, err))
		return t
	}
	t.thens = append(t.thens, clientv3.OpPut(t.store.prefix+key, string(data), opts...))
	return t
}

// Delete removes key; it need not exist.
func (t *Txn) Delete(key string) *Txn {
	t.thens = append(t.thens, clientv3.OpDelete(t.store.prefix+key))
	return t
}

// DeletePrefix removes every key below prefix.
func (t *Txn) DeletePrefix(prefix string) *Txn {
	t.thens = append(t.thens, clientv3.OpDelete(t.store.prefix+prefix, clientv3.WithPrefix()))
	return t
}

// Commit runs the transaction and gives its revision. ErrConflict when a
// comparison did not hold, ErrNotLeader when the leader's did not, ErrRefused
// when etcd can not take it as it is. Any other error leaves the outcome
// unknown: read again.
func (t *Txn) Commit(ctx context.Context) (int64, error) {
	if t.failed != nil {
		return 0, t.failed
	}
	ifs := t.ifs
	if t.leader != nil {
		ifs = append([]clientv3.Cmp{t.leader.guard()}, ifs...)
	}
	txn := t.store.client.Txn(ctx).If(ifs...).Then(t.thens...)
	if t.leader != nil {
		txn = txn.Else(clientv3.OpGet(t.leader.key))
	}
	reply, err := txn.Commit()
	if refused(err) {
		return 0, fmt.Errorf("commit: %w: %w", ErrRefused, err)
	}
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if reply.Succeeded {
		return reply.Header.Revision, nil
	}
	if t.leader != nil {
		kvs := reply.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 || kvs[0].CreateRevision != t.leader.rev {
			return 0, fmt.Errorf("commit: %w", ErrNotLeader)
		}
	}
	return 0, fmt.Errorf("commit: %w", ErrConflict)
}

// refused reports whether etcd answered that it did not and will not run a
// request: it is too large, may not be made, or there is no space left.
func refused(err error) bool {
	if err == nil {
		return false
	}
	code := status.Code(err)
	var known rpctypes.EtcdError
	if errors.As(err, &known) { // what the client makes of an answer of the server
		code = known.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.ResourceExhausted:
		return true
	}
	return false
}
