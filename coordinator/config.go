package coordinator

import (
	"context"
	"log/slog"
	"time"

	"shardis/coordinator/store"
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
}

// Run takes part in the election until ctx ends, and leads while elected. It
// returns nil when ctx ended, else why it could not go on.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error { return errTodo }
