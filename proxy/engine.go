package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/stats"
	"shardis/proxy/report"
)

// engine is what the server needs of the event loops. The tests of the
// server's own logic put a scripted one in its place.
type engine interface {
	Listen() error
	Addrs() []net.Addr
	Run(ctx context.Context) error
	// Apply gives all loops a new topology to run; nil: none, commands that
	// need a slot wait. It returns at once.
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
	Drain(ctx context.Context) error
	Stats() stats.Snapshot
	Clients() []report.Client
	Backends() []report.Backend
}

func newEngine(cfg Config, password string, id identity, log *slog.Logger) (engine, error) {
	return nil, errors.New("not yet")
}
