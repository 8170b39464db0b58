package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

type proxyView struct {
	ID           string  `json:"id"`
	Addr         string  `json:"addr"`
	Admin        string  `json:"admin"`
	State        string  `json:"state"`
	Version      string  `json:"version"`
	AppliedEpoch uint64  `json:"appliedEpoch"`
	EpochLag     int64   `json:"epochLag"`
	OpsPerSecond float64 `json:"opsPerSecond"`
	Clients      int64   `json:"clients"`
	P50Ms        float64 `json:"p50Ms"`
	P99Ms        float64 `json:"p99Ms"`
	MemoryBytes  int64   `json:"memoryBytes"`
}

type proxyList struct {
	Items []proxyView `json:"items"`
}

func newProxies() *cobra.Command {
	cmd := &cobra.Command{Use: "proxies", Short: "Show the proxies"}
	addServerFlags(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the proxies and how they are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[proxyList](cmd, "/proxies")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]any
				for _, p := range list.Items {
					rows = append(rows, []any{p.ID, p.State, p.Addr, countText(p.Clients), rateText(p.OpsPerSecond),
						fmt.Sprintf("%.2f ms", p.P50Ms), fmt.Sprintf("%.2f ms", p.P99Ms), bytesText(p.MemoryBytes),
						fmt.Sprintf("%d (%d behind)", p.AppliedEpoch, p.EpochLag), p.Version})
				}
				printTable(w, []any{"proxy", "state", "address", "clients", "ops/s", "p50", "p99", "memory", "epoch", "version"}, rows)
			})
		},
	})
	return cmd
}
