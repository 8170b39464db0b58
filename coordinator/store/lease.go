package store

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Lease keeps keys alive as long as this process renews it. It says who is
// probably there, never who may write.
type Lease struct {
	id      clientv3.LeaseID
	session *concurrency.Session
}

// NewLease makes a lease that is renewed until Close, or until ctx ends.
func (s *Store) NewLease(ctx context.Context, ttl time.Duration) (*Lease, error) {
	session, err := concurrency.NewSession(s.client, concurrency.WithTTL(max(1, int(ttl/time.Second))), concurrency.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("make lease: %w", err)
	}
	return &Lease{session.Lease(), session}, nil
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

// Close ends the lease at once, and its keys with it.
func (l *Lease) Close() error {
	if l.session == nil {
		return nil
	}
	return l.session.Close()
}
