package migrate

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/topo"
)

// The pace of a copy. Three things slow it down: a person's pause, a person's
// limit in bytes a second, and the nodes themselves: each tenth of a second
// their masters are asked for ROLE, and when the answer takes long or replicas
// fall behind, the copier rests for a multiple of the time it worked.

const (
	probeEvery = 100 * time.Millisecond
	slowAnswer = 5 * time.Millisecond // an answer above it counts as slow
	replicaLag = 32 << 20             // bytes; more counts as slow
	restMost   = 16.0
	burst      = 256 << 10 // bytes a limit lets through at once
)

// pacer is called by the one goroutine that copies.
type pacer struct {
	op      *operation
	limiter *rate.Limiter
	worked  time.Time // since when the copier works

	mu   sync.Mutex
	rest float64 // rest for so many times the time worked
}

func newPacer(op *operation) *pacer {
	return &pacer{op: op, limiter: rate.NewLimiter(rate.Inf, burst), worked: time.Now()}
}

// wait blocks as long as is due after bytes were copied.
func (p *pacer) wait(ctx context.Context, bytes int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if p.op.wish() == topo.WishPause {
		if err := p.op.paused(ctx); err != nil {
			return err
		}
		p.worked = time.Now()
	}
	p.mu.Lock()
	rest := p.rest
	p.mu.Unlock()
	if rest > 0 {
		if err := sleep(ctx, time.Duration(rest*float64(time.Since(p.worked)))); err != nil {
			return err
		}
	}
	limit := rate.Inf
	if n := p.op.limits().BytesPerSecond; n > 0 {
		limit = rate.Limit(n)
	}
	if p.limiter.Limit() != limit {
		p.limiter.SetLimit(limit)
	}
	for limit != rate.Inf && bytes > 0 {
		n := min(bytes, burst)
		if err := p.limiter.WaitN(ctx, n); err != nil {
			return err
		}
		bytes -= n
	}
	p.worked = time.Now()
	return nil
}

// watch asks the nodes how they fare until ctx ends.
func (p *pacer) watch(ctx context.Context, pool *node.Pool, addrs []string) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		slow := false
		for _, addr := range addrs {
			slow = slow || strained(ctx, pool, addr)
		}
		p.mu.Lock()
		if slow {
			p.rest = min(2*p.rest+0.1, restMost)
		} else if p.rest = 0.7 * p.rest; p.rest < 0.05 {
			p.rest = 0
		}
		p.mu.Unlock()
	}
}

func strained(ctx context.Context, pool *node.Pool, addr string) bool {
	admin, err := pool.Get(ctx, addr)
	if err != nil {
		return false // who needs the node will say so
	}
	asked := time.Now()
	role, err := admin.Role(ctx)
	if err != nil {
		return false
	}
	slow := time.Since(asked) > slowAnswer
	for _, r := range role.Replicas {
		// A tail acknowledges nothing; it and a syncing replica stand at 0.
		slow = slow || r.Offset > 0 && role.Offset-r.Offset > replicaLag
	}
	return slow
}

// paused shows the operation as paused until people want something else.
func (o *operation) paused(ctx context.Context) error {
	err := o.update(ctx, func(op *topo.Operation) {
		op.State = topo.OpPaused
		addNote(op, "paused by "+o.by())
	}, nil)
	for err == nil && o.wish() == topo.WishPause {
		changes := o.changes()
		if o.wish() != topo.WishPause {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changes:
		}
	}
	if err != nil {
		return err
	}
	return o.update(ctx, func(op *topo.Operation) {
		op.State = topo.OpRunning
		addNote(op, "resumed")
	}, nil)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
