package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shardis/coordinator"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

func newInit() *cobra.Command {
	var name, scheme string
	var databases int
	var etcd store.Access
	cmd := &cobra.Command{
		Use:   "init --cluster NAME",
		Short: "Create a cluster in etcd; done once",
		Long: `Creates an empty cluster in etcd. The slot scheme can not be changed later:

  crc16/16384   Redis Cluster's hash; the default
  crc32/1024    Codis's hash, for data that comes from there`,
		Example: `  shardis init --cluster main --etcd 10.0.0.1:2379
  shardis init --cluster main --scheme crc32/1024 --databases 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := topo.ParseScheme(scheme)
			if err != nil {
				return exitError{exitUsage, fmt.Errorf("--scheme: %w", err)}
			}
			cfg, err := etcd.Config(name, nil)
			if err != nil {
				return exitError{exitUsage, err}
			}
			st, err := store.Open(cfg)
			if err != nil {
				return exitError{exitUsage, err}
			}
			defer func() { _ = st.Close() }()
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			if err := st.Ping(ctx); err != nil {
				return exitError{exitUnreachable, err}
			}
			meta, err := coordinator.NewClient(st, nil).Init(ctx, name, s, databases)
			if err != nil {
				return err
			}
			return show(cmd, meta, func(w io.Writer) {
				fmt.Fprintf(w, "cluster %s created: %s, %d databases\nNext: start a coordinator, a dashboard and proxies with --cluster %s, then add groups\n",
					name, meta.Scheme, meta.Databases, name)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "cluster", "", "name of the cluster")
	flags.StringVar(&scheme, "scheme", string(topo.CRC16), "slot scheme")
	flags.IntVar(&databases, "databases", 16, "databases that clients may SELECT")
	flags.StringSliceVar(&etcd.Endpoints, "etcd", []string{"127.0.0.1:2379"}, "addresses of etcd")
	flags.StringVar(&etcd.Username, "etcd-user", "", "user name for etcd")
	flags.StringVar(&etcd.PasswordFile, "etcd-password-file", "", "file with its password")
	flags.StringVar(&etcd.CAFile, "etcd-ca-file", "", "authority that signed etcd's certificate")
	flags.StringP("output", "o", "table", "table or json")
	_ = cmd.MarkFlagRequired("cluster")
	return cmd
}
