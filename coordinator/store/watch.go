package store

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Batch is one step of a watch. Changes of one etcd revision come together; a
// batch may span several revisions and then says how each key ended, once.
type Batch struct {
	Rev int64
	// Reset: Puts is the complete state, and what is not in it does not exist.
	// The first batch is one, and each after continuity was lost.
	Reset   bool
	Puts    []Item
	Deletes []string
}

const (
	rereadEvery = 60 * time.Second // watchers re-read all the same: etcd had bugs that lost events
	retryFirst  = 100 * time.Millisecond
	retryMost   = 2 * time.Second
	calm        = 5 * time.Second // a watch that lived this long was no failure
)

// Watch follows all keys below prefix until ctx ends; then the channel is
// closed. While etcd is away nothing is sent; when it is back a Reset follows.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan Batch {
	out := make(chan Batch)
	go func() {
		defer close(out)
		delay := retryFirst
		for ctx.Err() == nil {
			began := time.Now()
			s.follow(ctx, prefix, out)
			if time.Since(began) >= calm {
				delay = retryFirst
				continue // At once: a hold may come while nobody looks.
			}
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
			delay = min(2*delay, retryMost)
		}
	}()
	return out
}

// follow reads the state and passes on changes until continuity is lost, or it
// is time to re-read.
func (s *Store) follow(ctx context.Context, prefix string, out chan<- Batch) {
	readCtx, cancelRead := context.WithTimeout(ctx, 5*time.Second)
	items, rev, err := s.List(readCtx, prefix)
	cancelRead()
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("watch can not read its state, trying again", "prefix", prefix, "err", err)
		}
		return
	}
	select {
	case out <- Batch{Rev: rev, Reset: true, Puts: items}:
	case <-ctx.Done():
		return
	}
	span := rereadEvery + time.Duration(rand.Int64N(int64(rereadEvery/4)))
	watchCtx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), span)
	defer cancel()
	for reply := range s.client.Watch(watchCtx, s.prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)) {
		if err := reply.Err(); err != nil {
			if ctx.Err() == nil {
				s.log.Warn("watch lost continuity, reading again", "prefix", prefix, "err", err)
			}
			return
		}
		if len(reply.Events) == 0 {
			continue
		}
		select {
		case out <- s.batch(reply):
		case <-ctx.Done():
			return
		}
	}
}

// batch keeps the last of several changes of one key: Puts and Deletes have no
// order among them.
func (s *Store) batch(reply clientv3.WatchResponse) Batch {
	b := Batch{Rev: reply.Header.Revision}
	last := make(map[string]int, len(reply.Events))
	for i, e := range reply.Events {
		last[string(e.Kv.Key)] = i
	}
	for i, e := range reply.Events {
		if last[string(e.Kv.Key)] != i {
			continue
		}
		item := s.item(e.Kv.Key, e.Kv.Value, e.Kv.ModRevision, e.Kv.Lease)
		if e.Type == clientv3.EventTypeDelete {
			b.Deletes = append(b.Deletes, item.Key)
		} else {
			b.Puts = append(b.Puts, item)
		}
	}
	return b
}
