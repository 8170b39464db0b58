package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

type statusView struct {
	Summary      string           `json:"summary"`
	Health       string           `json:"health"`
	Leader       *string          `json:"leader"`
	OpsPerSecond float64          `json:"opsPerSecond"`
	Keys         int64            `json:"keys"`
	MemoryBytes  int64            `json:"memoryBytes"`
	Clients      int64            `json:"clients"`
	Slots        slotTotals       `json:"slots"`
	Attention    []attentionView  `json:"attention"`
	Running      []map[string]any `json:"running"`
}

type slotTotals struct {
	Total  int `json:"total"`
	Served int `json:"served"`
	Held   int `json:"held"`
}

type attentionView struct {
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Detail   string `json:"detail"`
}

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Say in a sentence how the cluster is",
		Example: "  shardis status\n  shardis status -o json | jq .health",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := fetch[statusView](cmd, "/status")
			if err != nil {
				return err
			}
			return show(cmd, s, func(w io.Writer) { printStatus(w, s) })
		},
	}
	addServerFlags(cmd)
	return cmd
}

func printStatus(w io.Writer, s statusView) {
	leader := "none: changes wait for a coordinator"
	if s.Leader != nil && *s.Leader != "" {
		leader = *s.Leader
	}
	fmt.Fprintf(w, "%s\n\n", s.Summary)
	fmt.Fprintf(w, "slots served   %d of %d\n", s.Slots.Served, s.Slots.Total)
	fmt.Fprintf(w, "throughput     %s commands/s from %s clients\n", rateText(s.OpsPerSecond), countText(s.Clients))
	fmt.Fprintf(w, "keys           %s in %s\n", countText(s.Keys), bytesText(s.MemoryBytes))
	fmt.Fprintf(w, "leader         %s\n", leader)
	for _, a := range s.Attention {
		fmt.Fprintf(w, "\n%s: %s\n  %s\n", a.Severity, a.Title, a.Detail)
	}
}
