package store

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Leadership is the right to write the topology. Transactions begun from it
// compare the create-revision of its election key, which no other leadership
// ever has, so that a deposed leader's late write fails whatever it believes.
type Leadership struct {
	store    *Store
	lease    *Lease
	election *concurrency.Election
	key      string // of the election; kept here because the election forgets it when it resigns
	rev      int64  // create-revision of that key
}

// guard compares what no other leadership has.
func (l *Leadership) guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.rev)
}

// Campaign waits until this process leads. id names it to people.
func (s *Store) Campaign(ctx context.Context, id string, ttl time.Duration) (*Leadership, error) {
	lease, err := s.NewLease(ctx, ttl)
	if err != nil {
		return nil, err
	}
	election := concurrency.NewElection(lease.session, s.prefix+PrefixElection+"coordinator")
	campaign, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // A campaign outlives its lease; end it with the lease.
		select {
		case <-lease.Done():
			cancel()
		case <-campaign.Done():
		}
	}()
	if err := election.Campaign(campaign, id); err != nil {
		_ = lease.Close()
		return nil, fmt.Errorf("campaign for leadership: %w", err)
	}
	return &Leadership{s, lease, election, election.Key(), election.Rev()}, nil
}

// Done is closed when the lease behind the leadership ended.
func (l *Leadership) Done() <-chan struct{} { return l.lease.Done() }

// Term is the create-revision of the election key: it rises with each leader.
func (l *Leadership) Term() int64 { return l.rev }

// Begin starts a transaction that fails with ErrNotLeader once somebody else
// could lead.
func (l *Leadership) Begin() *Txn {
	txn := l.store.Begin()
	txn.leader = l
	return txn
}

// Check makes sure, by a linearizable read, that this is still the leader.
func (l *Leadership) Check(ctx context.Context) error {
	_, err := l.Begin().Commit(ctx)
	return err
}

// Resign ends the leadership at once, so that a successor need not wait.
func (l *Leadership) Resign(ctx context.Context) error {
	err := l.election.Resign(ctx)
	if closeErr := l.lease.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Leader is the id of the coordinator that leads, ErrNotFound if none does.
func (s *Store) Leader(ctx context.Context) (string, error) {
	reply, err := s.client.Get(ctx, s.prefix+PrefixElection+"coordinator/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", fmt.Errorf("read leader: %w", err)
	}
	if len(reply.Kvs) == 0 {
		return "", fmt.Errorf("read leader: %w", ErrNotFound)
	}
	return string(reply.Kvs[0].Value), nil
}
