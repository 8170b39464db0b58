package migrate

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/topo"
)

// The pace of a copy. Three things slow it down: a person's pause, a person's
// limit in bytes a second, and the nodes' clients. While the source's master
// serves clients the copier works in turns with rests between them, so that it never
// keeps several nodes busy at a time, and the rests get longer when the slowest
// tenth of a master's answers to ROLE takes twice as long as before the copy, or
// replicas fall behind. Without clients nobody is kept waiting, and it runs as
// fast as it can. It never stops by itself: a machine that is busy with
// something else must not keep slots from moving off it.

const (
	probes     = 20 // for one look at the nodes
	probeFirst = 2 * time.Millisecond
	probeEvery = 10 * time.Millisecond
	slowAnswer = 500 * time.Microsecond // when a tenth of the answers takes longer, and
	slowTimes  = 2                      // so many times the usual, the node counts as slow
	lateAnswer = 20 * time.Millisecond  // so slow is too slow even without clients
	replicaLag = 32 << 20               // bytes; more counts as slow
	busyRate   = 100                    // commands of clients a second from where on they matter
	restLeast  = 1.0                    // beside clients; works half of the time at most
	restMost   = 3.0                    // works a quarter of the time at least
	burstLeast = 16 << 10               // bytes a limit lets through at once: a tenth of a second's, but
	burstMost  = 1 << 20                // within these
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

// look is what was seen of the masters in a moment.
type look struct {
	tenth  []time.Duration // the ninth tenth of each one's answers
	behind bool            // a replica is far behind
	at     time.Time
	served int64 // commands the source's master, the first, has executed
}

// look asks all masters some times over, every so often.
func (a *attempt) look(ctx context.Context, every time.Duration) look {
	addrs := a.addrs()
	took := make([][]time.Duration, len(addrs))
	var l look
	for range probes {
		for i, addr := range addrs {
			t, lags := askRole(ctx, a.r.pool, addr)
			took[i] = append(took[i], t)
			l.behind = l.behind || lags
		}
		if sleep(ctx, every) != nil {
			break
		}
	}
	for _, all := range took {
		slices.Sort(all)
		l.tenth = append(l.tenth, all[len(all)*9/10])
	}
	l.at = time.Now()
	if admin, err := a.r.pool.Get(ctx, addrs[0]); err == nil {
		if info, err := admin.Info(ctx, "stats"); err == nil {
			l.served = info.Int("total_commands_processed")
		}
	}
	return l
}

// busy reports whether clients kept the source busy since an earlier look.
func (l *look) busy(before *look) bool {
	ours := int64(probes + 1)
	return float64(l.served-before.served-ours)/l.at.Sub(before.at).Seconds() > busyRate
}

// watchNodes sets the pace until ctx ends. Usual is how the nodes were before
// the copy.
func (a *attempt) watchNodes(ctx context.Context, usual look) {
	p, before := a.pace, usual
	for ctx.Err() == nil {
		now := a.look(ctx, probeEvery)
		busy, slow := now.busy(&before), now.behind
		for i, t := range now.tenth {
			slow = slow || t > max(slowAnswer, slowTimes*usual.tenth[i]) && (busy || t > lateAnswer)
		}
		before = now
		p.mu.Lock()
		least := 0.0
		if busy {
			least = restLeast
		}
		if slow {
			p.rest = min(1.5*p.rest+0.1, restMost)
		} else if p.rest = 0.8 * p.rest; p.rest < 0.05 {
			p.rest = 0
		}
		p.rest = max(p.rest, least)
		p.mu.Unlock()
	}
}

// paced waits as long as is due after bytes were copied.
func (a *attempt) paced(ctx context.Context, bytes int) error {
	if a.pace.resting() {
		for _, t := range a.targets {
			if err := t.barrier(); err != nil {
				return err
			}
		}
	}
	return a.pace.wait(ctx, bytes)
}

// resting reports whether the copier works in turns.
func (p *pacer) resting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rest >= restLeast/2
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
