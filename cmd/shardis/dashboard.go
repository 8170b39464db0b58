package main

import (
	"github.com/spf13/cobra"

	"shardis/dashboard"
)

func newDashboard() *cobra.Command {
	cfg := dashboard.Default()
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Run a dashboard: the web page and the REST API",
		Long: `Runs a dashboard. Any number may run: all state is in etcd. There is no default password: while
nobody can log in, it prints a one-time set-up token to make the first user with.`,
		Example: `  shardis dashboard --cluster main --etcd 10.0.0.1:2379
  shardis dashboard --cluster main --listen 10.0.0.1:8443 --set tls.cert_file=c.pem --set tls.key_file=k.pem`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.String("cluster", "", "name of the cluster")
	flags.String("etcd", "", "addresses of etcd, with commas between them")
	flags.String("listen", "", "address for browsers and tools")
	flags.String("bootstrap-token-file", "", "file with an administrator's token that works from the start")
	f := addRoleFlags(cmd, map[string]string{
		"cluster": "cluster", "etcd": "etcd.endpoints", "listen": "listen", "bootstrap-token-file": "bootstrap_token_file",
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.load(cmd, &cfg); err != nil {
			return ignoreDone(err)
		}
		log, err := f.logger("dashboard")
		if err != nil {
			return err
		}
		cfg.Version = buildVersion()
		server, err := dashboard.New(cfg, log)
		if err != nil {
			return err
		}
		return server.Run(cmd.Context())
	}
	return cmd
}
