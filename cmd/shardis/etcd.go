package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"shardis/coordinator/store/embedded"
)

func newEtcd() *cobra.Command {
	var cfg embedded.Config
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run an etcd on this machine",
		Long: `Runs one etcd member in this process: enough for one machine and for trying things.
In production run an etcd cluster of three and name it with --etcd.`,
		Example: "  shardis etcd --data-dir /var/lib/shardis/etcd --listen 127.0.0.1:2379",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := embedded.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer server.Close()
			fmt.Fprintf(cmd.ErrOrStderr(), "etcd serves at %s\n", server.Endpoint())
			return waitEtcd(cmd.Context(), server)
		},
	}
	cmd.Flags().StringVar(&cfg.Dir, "data-dir", "data/etcd", "folder for its data")
	cmd.Flags().StringVar(&cfg.Client, "listen", "127.0.0.1:2379", "host:port for clients")
	cmd.Flags().StringVar(&cfg.Peer, "peer", "", "host:port for peers (default: a free port on loopback)")
	return cmd
}

// waitEtcd returns when ctx ends or the server fails.
func waitEtcd(ctx context.Context, server *embedded.Server) error {
	select {
	case <-ctx.Done():
		return nil
	case err, open := <-server.Err():
		if !open {
			return errors.New("etcd stopped")
		}
		return fmt.Errorf("etcd: %w", err)
	}
}
