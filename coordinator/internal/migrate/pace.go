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
// their masters are asked for ROLE, and when the answer takes much longer than
// before the copy, or replicas fall behind, the copier rests for a multiple of
// the time it worked. It never stops for that: a machine that is busy with
// something else must not keep slots from moving off it.

const (
	probeEvery = 100 * time.Millisecond
	slowAnswer = 5 * time.Millisecond // an answer that takes longer, and
	slowTimes  = 4                    // so many times the usual, counts as slow
	replicaLag = 32 << 20             // bytes; more counts as slow
	restMost   = 2.0                  // works a third of the time at least
	burstLeast = 16 << 10             // bytes a limit lets through at once: a tenth of a second's, but
	burstMost  = 1 << 20              // within these
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
	return &pacer{op: op, limiter: rate.NewLimiter(rate.Inf, burstMost), worked: time.Now()}
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
		p.limiter.SetBurst(burstMost)
		if limit != rate.Inf {
			p.limiter.SetBurst(max(burstLeast, min(int(limit/10), burstMost)))
		}
	}
	for limit != rate.Inf && bytes > 0 {
		n := min(bytes, p.limiter.Burst())
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
	usual := map[string]time.Duration{}
	for _, addr := range addrs {
		for range 5 { // the longest of a few: what the node's clients are used to
			took, _ := askRole(ctx, pool, addr)
			usual[addr] = max(usual[addr], took)
		}
	}
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for before := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		slow := false
		for _, addr := range addrs {
			took, behind := askRole(ctx, pool, addr)
			slow = slow || behind || took > max(slowAnswer, slowTimes*usual[addr])
		}
		twice := slow && before // once may be chance
		before = slow
		p.mu.Lock()
		if twice {
			p.rest = min(2*p.rest+0.1, restMost)
		} else if p.rest = 0.7 * p.rest; p.rest < 0.05 {
			p.rest = 0
		}
		p.mu.Unlock()
	}
}

// askRole says how long a master takes to answer, and whether a replica of it
// is far behind. A master out of reach is not slow: who needs it will say so.
func askRole(ctx context.Context, pool *node.Pool, addr string) (took time.Duration, behind bool) {
	admin, err := pool.Get(ctx, addr)
	if err != nil {
		return 0, false
	}
	asked := time.Now()
	role, err := admin.Role(ctx)
	if err != nil {
		return 0, false
	}
	took = time.Since(asked)
	for _, r := range role.Replicas {
		// A tail acknowledges nothing; it and a syncing replica stand at 0.
		behind = behind || r.Offset > 0 && role.Offset-r.Offset > replicaLag
	}
	return took, behind
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
