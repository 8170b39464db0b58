package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
)

// coordinatorConfig is everything an operator can set on a coordinator.
type coordinatorConfig struct {
	Cluster    string         `mapstructure:"cluster"`
	ID         string         `mapstructure:"id"`
	Admin      string         `mapstructure:"admin"`
	PurgeDelay time.Duration  `mapstructure:"purge_delay"`
	Etcd       store.Access   `mapstructure:"etcd"`
	Embedded   embeddedConfig `mapstructure:"embedded_etcd"`
}

type embeddedConfig struct {
	Enabled bool   `mapstructure:"enabled"`
	DataDir string `mapstructure:"data_dir"`
	Listen  string `mapstructure:"listen"`
}

func defaultCoordinator() coordinatorConfig {
	return coordinatorConfig{
		Admin:      "127.0.0.1:7400",
		PurgeDelay: time.Minute,
		Etcd:       store.DefaultAccess(),
		Embedded:   embeddedConfig{DataDir: "/var/lib/shardis/etcd", Listen: "127.0.0.1:2379"},
	}
}

// WriteDefault prints the commented default configuration.
func (c *coordinatorConfig) WriteDefault(w io.Writer) error {
	_, err := io.WriteString(w, `# Configuration of a Shardis coordinator. These are the defaults.

# Name of the cluster, as given to shardis init.
cluster: ""
# Name of this coordinator to people (default: host name and process id).
id: ""
# Address for /livez, /readyz and /metrics; "" for none.
admin: 127.0.0.1:7400
# How long a group keeps its copy of slots that moved away.
purge_delay: 1m

`+store.AccessText+`
# An etcd inside this coordinator: for one machine. Then etcd.endpoints is not
# needed. In production use an etcd cluster of three and several coordinators.
embedded_etcd:
  enabled: false
  data_dir: /var/lib/shardis/etcd
  listen: 127.0.0.1:2379
`)
	return err
}

// Validate says what can not work and what to do.
func (c *coordinatorConfig) Validate() error {
	if c.Cluster == "" || strings.ContainsAny(c.Cluster, "/ ") {
		return fmt.Errorf("cluster: %q is not a cluster's name: set it to the name given to shardis init", c.Cluster)
	}
	if c.PurgeDelay < 0 {
		return fmt.Errorf("purge_delay: %s is negative", c.PurgeDelay)
	}
	if c.Admin != "" {
		if _, _, err := net.SplitHostPort(c.Admin); err != nil {
			return fmt.Errorf("admin: %q is not an address such as 127.0.0.1:7400", c.Admin)
		}
	}
	if c.Embedded.Enabled {
		if _, _, err := net.SplitHostPort(c.Embedded.Listen); err != nil {
			return fmt.Errorf("embedded_etcd.listen: %q is not an address such as 127.0.0.1:2379", c.Embedded.Listen)
		}
		if c.Embedded.DataDir == "" {
			return errors.New("embedded_etcd.data_dir: is empty: name a folder for etcd's data")
		}
		return nil
	}
	return c.Etcd.Validate()
}

func newCoordinator() *cobra.Command {
	cfg := defaultCoordinator()
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run a coordinator: it moves slots and looks after the nodes",
		Long: `Runs a coordinator. Several may run: one leads, the others stand by. All state is in etcd, so
it can be stopped and started at any time; what it was doing goes on.`,
		Example: `  shardis coordinator --cluster main --etcd 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
  shardis coordinator --cluster main --embedded-etcd --set embedded_etcd.data_dir=/var/lib/shardis/etcd`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.String("cluster", "", "name of the cluster")
	flags.String("etcd", "", "addresses of etcd, with commas between them")
	flags.String("admin", "", "address for health and metrics")
	flags.String("id", "", "name of this coordinator")
	flags.Bool("embedded-etcd", false, "run an etcd inside, for one machine")
	flags.Duration("purge-delay", time.Minute, "how long a group keeps its copy of slots that moved away")
	f := addRoleFlags(cmd, map[string]string{
		"cluster": "cluster", "etcd": "etcd.endpoints", "admin": "admin", "id": "id",
		"embedded-etcd": "embedded_etcd.enabled", "purge-delay": "purge_delay",
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.load(cmd, &cfg); err != nil {
			return ignoreDone(err)
		}
		return runCoordinator(cmd.Context(), cfg, f)
	}
	return cmd
}

func runCoordinator(ctx context.Context, cfg coordinatorConfig, f *roleFlags) error {
	log, err := f.logger("coordinator")
	if err != nil {
		return err
	}
	if cfg.Embedded.Enabled {
		server, err := embedded.Start(ctx, embedded.Config{Dir: cfg.Embedded.DataDir, Client: cfg.Embedded.Listen})
		if err != nil {
			return err
		}
		defer server.Close()
		log.Info("embedded etcd serves", "addr", server.Endpoint())
		cfg.Etcd = store.Access{Endpoints: []string{server.Endpoint()}}
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		go func() { cancel(waitEtcd(ctx, server)) }()
	}
	st, err := cfg.Etcd.Config(cfg.Cluster, log)
	if err != nil {
		return err
	}
	return coordinator.Run(ctx, coordinator.Config{
		Etcd:       st,
		ID:         cfg.ID,
		Listen:     cfg.Admin,
		PurgeDelay: cfg.PurgeDelay,
		Version:    buildVersion(),
	}, log)
}
