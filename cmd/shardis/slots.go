package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
)

type slotRunView struct {
	Slots string `json:"slots"`
	Group string `json:"group"`
	State string `json:"state"`
	To    string `json:"to,omitempty"`
}

type slotList struct {
	Epoch uint64        `json:"epoch"`
	Items []slotRunView `json:"items"`
}

type keyView struct {
	Key    string `json:"key"`
	Tag    string `json:"tag"`
	Slot   int    `json:"slot"`
	Group  string `json:"group"`
	Master string `json:"master"`
}

func newSlots() *cobra.Command {
	cmd := &cobra.Command{Use: "slots", Short: "Show which group owns which slots, or where a key lives"}
	addServerFlags(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the runs of slots and their owners",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[slotList](cmd, "/slots")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				rows := make([][]any, len(list.Items))
				for i, run := range list.Items {
					rows[i] = []any{run.Slots, run.Group, run.State, run.To}
				}
				printTable(w, []any{"slots", "group", "state", "to"}, rows)
			})
		},
	}, &cobra.Command{
		Use:     "find KEY",
		Short:   "Say which slot, group and master a key belongs to",
		Example: "  shardis slots find 'user:{42}:cart'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := fetch[keyView](cmd, "/slots/lookup?key="+url.QueryEscape(args[0]))
			if err != nil {
				return err
			}
			return show(cmd, found, func(w io.Writer) {
				fmt.Fprintf(w, "slot    %d\ngroup   %s\nmaster  %s\n", found.Slot, found.Group, found.Master)
			})
		},
	})
	return cmd
}
