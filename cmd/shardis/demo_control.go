package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// controlPath is the socket on which the demo of this port takes orders.
func controlPath(port int) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("shardis-demo-%d.sock", port))
}

// serveControl takes `shardis demo restart` orders until ctx ends.
func (d *demoCluster) serveControl(ctx context.Context, port int) error {
	path := controlPath(port)
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another demo runs with --port %d: choose another port", port)
	}
	_ = os.Remove(path) // left over by a crash
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /restart/{name}", func(w http.ResponseWriter, r *http.Request) {
		process, err := d.restart(r.Context(), r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(process)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	d.closers = append(d.closers, func() { _ = server.Close() })
	return ctx.Err()
}

func newDemoRestart(f *demoFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "restart NAME",
		Short:   "Start a process of a running demo again (ending it first if it runs)",
		Example: "  shardis demo restart proxy-1\n  shardis demo restart g1-2      # the second node of g1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "unix", controlPath(f.Port))
				},
			}}
			reply, err := client.Post("http://demo/restart/"+args[0], "", nil)
			if err != nil {
				return exitError{exitUnreachable, fmt.Errorf("no demo runs with --port %d: %w", f.Port, unwrapURL(err))}
			}
			defer func() { _ = reply.Body.Close() }()
			body, err := io.ReadAll(reply.Body)
			if err != nil {
				return err
			}
			if reply.StatusCode != http.StatusOK {
				return errors.New(string(body))
			}
			var process demoProcess
			if err := json.Unmarshal(body, &process); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s runs, pid %d\n", process.Name, process.PID)
			return err
		},
	}
}
