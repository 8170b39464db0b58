package proxy

import (
	"context"
	"log/slog"
	"net"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/loop"
	"shardis/proxy/internal/replicas"
	"shardis/proxy/internal/router"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
	"shardis/proxy/rights"
)

// engine is what the server needs of the event loops. The tests of the
// server's own logic put a scripted one in its place.
type engine interface {
	Listen() error
	Addrs() []net.Addr
	Run(ctx context.Context) error
	// Apply gives all loops a topology to run, of no lower epoch than the one
	// before; nil: commands for slots wait, on every slot. It returns at once.
	Apply(t *topo.Topology)
	// Applied is the lowest epoch all loops run.
	Applied() topo.Epoch
	// Drained is the id of the applied topology's hold once every earlier
	// request to held slots was answered, else "".
	Drained() string
	// Changed is poked when Applied or Drained may have changed.
	Changed() <-chan struct{}
	// SetCredentials is what new connections to nodes log in with.
	SetCredentials(user, password string)
	// SetUsers is who clients may log in as, soon, on all loops.
	SetUsers(book *rights.Book)
	Drain(ctx context.Context) error
	Tick() bool // every loop answers
	Stats() stats.Snapshot
	Clients() []report.Client
	Backends() []report.Backend
}

// loops is the engine: it runs topologies as tables.
type loops struct {
	*loop.Engine
	last *topo.Topology // given to Apply, nil before the first; guarded by control's lock
}

func (l *loops) Apply(t *topo.Topology) {
	switch {
	case t != nil:
		l.last = t
		l.Engine.Apply(router.Build(t))
	case l.last != nil:
		// A hold without an id on every slot: nothing is reported for it.
		waiting := *l.last
		waiting.Hold = &topo.Hold{Phase: topo.Holding, Slots: waiting.Scheme.All()}
		l.Engine.Apply(router.Build(&waiting))
	}
	// Without a table from the start, commands wait anyway.
}

// newEngine makes the event loops from the configuration.
func newEngine(cfg Config, users *rights.Book, id identity, log *slog.Logger) (engine, error) {
	var c loop.Config
	c.Listen, c.Loops = cfg.Listen, cfg.Loops
	c.MaxClients, c.IdleTimeout, c.KeepAlive = cfg.Limits.MaxClients, cfg.Timeouts.Idle, orOff(cfg.Timeouts.KeepAlive)

	// Validate has checked the modes.
	c.Reads, _ = replicas.ParseMode(cfg.Reads.Mode)
	c.ReadListen = cfg.Reads.Listen
	c.ReadMode, _ = replicas.ParseMode(cfg.Reads.ListenMode)
	c.Session.Zone, c.Session.MaxLag, c.Session.ReadYourWrites = cfg.Zone, cfg.Reads.MaxLag, cfg.Reads.ReadYourWrites

	c.Host.ID, c.Host.Version, c.Host.Started = id.ID, cfg.Version, time.Now()
	c.Session.Users = users
	c.Session.Limits.MaxBulk, c.Session.Limits.MaxArgs = int(cfg.Limits.MaxBulkBytes), cfg.Limits.MaxArguments
	c.Session.HoldTimeout, c.Session.MaxInflight = cfg.Timeouts.Hold, cfg.Limits.MaxPipeline
	c.Session.MaxBlocked = cfg.Limits.MaxBlocked
	c.Session.OutputSoft, c.Session.OutputHard = int(cfg.Limits.OutputSoftBytes), int(cfg.Limits.OutputHardBytes)
	c.Session.SubscriberSoft, c.Session.SubscriberHard = int(cfg.Limits.SubscriberSoftBytes), int(cfg.Limits.SubscriberHardBytes)
	c.Session.SubscriberTime = cfg.Limits.SubscriberSoftTime

	c.Backend.User, c.Backend.Password = id.user(), id.Password
	c.Backend.Wait, c.Backend.ConnectTimeout, c.Backend.CommandTimeout = cfg.Timeouts.BackendWait, cfg.Timeouts.Connect, cfg.Timeouts.Command
	e, err := loop.New(c, log)
	if err != nil {
		return nil, err
	}
	return &loops{Engine: e}, nil
}

// orOff turns our 0 for "off" into the loops' negative.
func orOff(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
