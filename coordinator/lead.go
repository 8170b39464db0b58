package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"shardis/coordinator/internal/handover"
	"shardis/coordinator/internal/migrate"
	"shardis/coordinator/internal/node"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// leading is what lives as long as one leadership.
//
//	hand        topology, proxies, users of nodes    (internal/handover)
//	observe     what the nodes report                (observe.go)
//	schedule    operations, one goroutine each       (operate.go)
//	runner      moves and purges                     (internal/migrate)
//	masters     who is judged, and replaced          (masters.go, failover.go)
//	guards      strict durability                    (guard.go)
//
// Each runs in a goroutine of its own; the first that can not go on ends all.
type leading struct {
	st     *store.Store
	lease  *store.Leadership
	pool   *node.Pool
	hand   *handover.Manager
	runner *migrate.Runner
	log    *slog.Logger
	counts *counts

	mu       sync.Mutex
	changed  chan struct{}   // room for one: look at the operations again
	heard    map[string]bool // prefixes of which the complete state was seen
	ops      map[string]topo.Operation
	controls map[string]topo.Control
	running  map[string]context.CancelFunc // operations with a goroutine
	joining  map[string]string             // nodes of running operations that are not in the topology yet → group
	watchers map[string]*watcher           // by node address
	written  map[string]written            // by group: what observed/<group> holds
	masters  map[string]*masterView        // by group
	settings topo.Settings
	inSync   map[string]topo.InSync // by group: what insync/<group> holds

	failstep func(step string, after bool) // of changes of master, in tests
}

func newLeading(st *store.Store, lease *store.Leadership, cfg Config, log *slog.Logger, counts *counts) *leading {
	l := &leading{
		st: st, lease: lease, log: log, counts: counts,
		changed:  make(chan struct{}, 1),
		heard:    map[string]bool{},
		ops:      map[string]topo.Operation{},
		controls: map[string]topo.Control{},
		running:  map[string]context.CancelFunc{},
		joining:  map[string]string{},
		watchers: map[string]*watcher{},
		written:  map[string]written{},
		masters:  map[string]*masterView{},
		inSync:   map[string]topo.InSync{},
		failstep: cfg.failstep,
	}
	l.pool = node.NewPool(node.PoolConfig{Term: lease.Term(), Check: lease.Check, Secret: l.secret, Log: log})
	l.hand = handover.New(st, lease, l.pool, log)
	l.runner = migrate.New(st, lease, l.hand, l.pool, log)
	if cfg.PurgeDelay > 0 {
		l.runner.PurgeDelay = cfg.PurgeDelay
	}
	l.runner.Failpoint = cfg.failpoint
	return l
}

// run leads until ctx ends or the leadership is gone.
func (l *leading) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.pool.Close()
	var running sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		running.Go(func() {
			err := run(ctx)
			if ctx.Err() == nil {
				if err == nil {
					err = errors.New("ended without a reason")
				}
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	part("topology", l.hand.Run)
	part("observe nodes", l.observe)
	part("watch operations", l.watchOperations)
	part("run operations", l.schedule)
	part("purge", l.runner.RunPurges)
	part("judge masters", l.tendMasters)
	part("guard masters", l.tendGuards)
	select {
	case <-ctx.Done():
	case <-l.lease.Done():
		cancel(store.ErrNotLeader)
	}
	l.pool.Close() // what waits for a node ends now
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// secret finds the administrator's login for a node: that of its group.
func (l *leading) secret(ctx context.Context, addr string) (topo.Secret, error) {
	id := ""
	if t, _ := l.hand.Topology(); t != nil {
		if g := t.GroupOfNode(addr); g != nil {
			id = g.ID
		}
	}
	if id == "" {
		l.mu.Lock()
		id = l.joining[addr]
		l.mu.Unlock()
	}
	if id == "" {
		return topo.Secret{}, fmt.Errorf("node %s is in no group", addr)
	}
	return l.groupSecret(ctx, id)
}

func (l *leading) groupSecret(ctx context.Context, group string) (topo.Secret, error) {
	secret, _, err := store.Load[topo.Secret](ctx, l.st, store.PrefixSecrets+group)
	if err != nil {
		return topo.Secret{}, fmt.Errorf("login of group %s: %w", group, err)
	}
	return secret, nil
}
