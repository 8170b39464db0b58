package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Lease keeps keys alive as long as this process renews it. It says who is
// probably there, never who may write.
type Lease struct {
	id      clientv3.LeaseID
	session *concurrency.Session // nil for a Timed lease
	client  *clientv3.Client
	ctx     context.Context // of NewLease, without its end
}

const revokeWithin = 2 * time.Second

// NewLease makes a lease that is renewed until Close, or until ctx ends.
func (s *Store) NewLease(ctx context.Context, ttl time.Duration) (*Lease, error) {
	session, err := concurrency.NewSession(s.client, concurrency.WithTTL(max(1, int(ttl/time.Second))), concurrency.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("make lease: %w", err)
	}
	return &Lease{session.Lease(), session, s.client, context.WithoutCancel(ctx)}, nil
}

// Timed makes a lease that ends by itself after ttl and is not renewed.
func (s *Store) Timed(ctx context.Context, ttl time.Duration) (*Lease, error) {
	reply, err := s.client.Grant(ctx, max(1, int64(ttl/time.Second)))
	if err != nil {
		return nil, fmt.Errorf("make lease: %w", err)
	}
	return &Lease{id: reply.ID}, nil
}

// Done is closed when the lease ended or can no longer be renewed. It must not
// be called on a Timed lease.
func (l *Lease) Done() <-chan struct{} { return l.session.Done() }

// Close ends the lease at once, and its keys with it, also when the context it
// was made with has ended: that is when most owners close it.
func (l *Lease) Close() error {
	if l.session == nil {
		return nil
	}
	l.session.Orphan()
	ctx, cancel := context.WithTimeout(l.ctx, revokeWithin)
	defer cancel()
	if _, err := l.client.Revoke(ctx, l.id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("end lease: %w", err)
	}
	return nil
}
