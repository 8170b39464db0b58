package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newHealth() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:       "health [live|ready]",
		Short:     "Check a process's health; exit code 0 or 1, for keepalived and containers",
		Example:   "  shardis health ready --url http://127.0.0.1:7080",
		ValidArgs: []string{"live", "ready"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := "ready"
			if len(args) == 1 {
				what = args[0]
			}
			client := &http.Client{Timeout: 2 * time.Second}
			reply, err := client.Get(strings.TrimRight(url, "/") + "/" + what + "z")
			if err != nil {
				return exitError{exitFailed, unwrapURL(err)}
			}
			defer func() { _ = reply.Body.Close() }()
			body, _ := io.ReadAll(io.LimitReader(reply.Body, 4096))
			if reply.StatusCode != http.StatusOK {
				return exitError{exitFailed, fmt.Errorf("not %s: %s", what, strings.TrimSpace(string(body)))}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), what)
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8080", "admin address of the process")
	return cmd
}
