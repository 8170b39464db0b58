package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	defaultLease = 5 * time.Second
	campaignWait = time.Second // after a failure, before the next try
	resignWithin = 2 * time.Second
)

// Config of a coordinator process.
type Config struct {
	Etcd   store.Config
	ID     string // names it to people, in the election and in logs; "" = host name and process id
	Listen string // admin port for /livez, /readyz, /metrics; "" = none
	// Version is shown by /version and in shardis_build_info.
	Version string
	// LeaseTTL is how long after its death a leader still stands in the way of
	// a successor. 0 means 5 s; etcd rounds to whole seconds.
	LeaseTTL time.Duration
	// PurgeDelay is how long a group keeps its copy of slots that moved away.
	// 0 means 60 s.
	PurgeDelay time.Duration

	failpoint func(state topo.MoveState, after bool) // of the runner, in tests
	failstep  func(step string, after bool)          // of changes of master, in tests
}

func (c *Config) complete() {
	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "coordinator"
		}
		c.ID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLease
	}
}

// Run takes part in the election until ctx ends, and leads while elected. It
// returns nil when ctx ended, else why it could not begin.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg.complete()
	st, err := store.Open(cfg.Etcd)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &candidate{st: st, cfg: cfg, log: log.With("coordinator", cfg.ID), counts: newCounts(cfg.Version)}
	c.counts.leading = c.current
	var running sync.WaitGroup
	defer running.Wait()
	if cfg.Listen != "" {
		serve, err := c.listen(cfg.Listen)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := serve(ctx); err != nil {
				cancel(err)
			}
		})
	}
	c.campaign(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// candidate is a coordinator process, leading or standing by.
type candidate struct {
	st     *store.Store
	cfg    Config
	log    *slog.Logger
	counts *counts

	mu      sync.Mutex
	leading *leading // nil while standing by
}

// current is the present leadership, nil if there is none.
func (c *candidate) current() *leading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading
}

func (c *candidate) set(l *leading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = l
}

// campaign stands for election again and again until ctx ends.
func (c *candidate) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.term(ctx)
		if ctx.Err() != nil {
			return
		}
		c.log.Warn("leadership is over, standing again", "err", err)
		select {
		case <-time.After(campaignWait):
		case <-ctx.Done():
		}
	}
}

// term waits until this process is elected, and leads until that is over.
func (c *candidate) term(ctx context.Context) error {
	lease, err := c.st.Campaign(ctx, c.cfg.ID, c.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	c.log.Info("elected", "term", lease.Term())
	l := newLeading(c.st, lease, c.cfg, c.log, c.counts)
	c.set(l)
	c.counts.elected(true)
	err = l.run(ctx)
	c.counts.elected(false)
	c.set(nil)
	resign, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	if failed := lease.Resign(resign); failed != nil {
		c.log.Debug("could not resign, the lease runs out by itself", "err", failed)
	}
	if err == nil {
		c.log.Info("leadership handed back", "term", lease.Term())
	}
	return err
}
