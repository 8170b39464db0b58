package main

import (
	"errors"

	"github.com/spf13/cobra"

	"shardis/proxy"
)

func newProxy() *cobra.Command {
	cfg := proxy.Default()
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run a proxy: what applications connect to",
		Long: `Runs a proxy. It needs only etcd's address and the cluster's name: it registers itself, and
serves once the coordinator admitted it. SIGTERM drains: it takes no new clients, finishes what
is in flight, then ends; a second SIGTERM ends it at once.`,
		Example: `  shardis proxy --cluster main --etcd 10.0.0.1:2379 --listen 127.0.0.1:6379 --state-dir /var/lib/shardis/proxy
  shardis proxy --print-config > proxy.yaml; shardis proxy --config proxy.yaml`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.String("cluster", "", "name of the cluster")
	flags.String("etcd", "", "addresses of etcd, with commas between them")
	flags.String("listen", "", "addresses for clients, with commas between them")
	flags.String("admin", "", "address for health, metrics and views")
	flags.String("id", "", "name of this proxy (default: made up once and kept)")
	flags.String("state-dir", "", "folder for its identity and its copy of the topology")
	f := addRoleFlags(cmd, map[string]string{
		"cluster": "cluster", "etcd": "etcd.endpoints", "listen": "listen", "admin": "admin.listen", "id": "id", "state-dir": "state_dir",
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.load(cmd, &cfg); err != nil {
			return ignoreDone(err)
		}
		log, err := f.logger("proxy")
		if err != nil {
			return err
		}
		cfg.Version = buildVersion()
		server, err := proxy.New(cfg, log)
		if err != nil {
			return err
		}
		return server.Run(cmd.Context())
	}
	return cmd
}

func ignoreDone(err error) error {
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}
