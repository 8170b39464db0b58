package main

import (
	"fmt"
	"io"
	"math"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func newSwitchover() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "switchover GROUP",
		Short: "Let a replica take over from a master that is well, losing nothing",
		Example: `  shardis switchover g1
  shardis switchover g1 --to 10.0.1.1:6379`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return takeOver(cmd, "switchover", args[0], to)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "which replica (default: the one that has most)")
	addServerFlags(cmd)
	addWaitFlags(cmd)
	return cmd
}

func newFailover() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "failover GROUP",
		Short: "Let a replica take over from a master that does not answer; writes may be lost",
		Long: `Let a replica take over from a master that does not answer, whatever stands against an
automatic failover: maintenance, one that was just made, a replica too far behind.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd, fmt.Sprintf("Give group %s another master? What its replicas did not get yet is lost.", args[0])); err != nil {
				return err
			}
			return takeOver(cmd, "failover", args[0], to)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "which replica (default: the one that has most)")
	addServerFlags(cmd)
	addWaitFlags(cmd)
	addYesFlag(cmd)
	return cmd
}

func takeOver(cmd *cobra.Command, action, group, to string) error {
	body := map[string]any{}
	if to != "" {
		body["to"] = to
	}
	return startAndWatch(cmd, "POST", "/groups/"+url.PathEscape(group)+"/actions/"+action, body)
}

type settingsView struct {
	Durability        string     `json:"durability"`
	DownAfterSeconds  float64    `json:"downAfterSeconds"`
	MaxLossBytes      int64      `json:"maxLossBytes"`
	MaintenanceUntil  *time.Time `json:"maintenanceUntil,omitempty"`
	MaintenanceReason string     `json:"maintenanceReason,omitempty"`
}

func (s settingsView) print(w io.Writer) {
	fmt.Fprintf(w, "durability     %s\n", s.Durability)
	after := "3 s"
	if s.DownAfterSeconds > 0 {
		after = fmt.Sprintf("%g s", s.DownAfterSeconds)
	}
	fmt.Fprintf(w, "down after     %s\n", after)
	loss := "no bound"
	if s.MaxLossBytes > 0 {
		loss = bytesText(s.MaxLossBytes)
	}
	fmt.Fprintf(w, "known loss     %s\n", loss)
	if s.MaintenanceUntil == nil {
		fmt.Fprintln(w, "maintenance    off: replicas take over by themselves")
		return
	}
	fmt.Fprintf(w, "maintenance    until %s: no replica takes over by itself (%s)\n", s.MaintenanceUntil.Local().Format(time.DateTime), s.MaintenanceReason)
}

func newSettings() *cobra.Command {
	cmd := &cobra.Command{Use: "settings", Short: "Show and change the cluster's settings"}
	addServerFlags(cmd)
	get := &cobra.Command{
		Use:   "get",
		Short: "Show the settings",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := fetch[settingsView](cmd, "/settings")
			if err != nil {
				return err
			}
			return show(cmd, s, s.print)
		},
	}
	var durability string
	var downAfter time.Duration
	var maxLoss int64
	set := &cobra.Command{
		Use:     "set",
		Short:   "Change settings; what is not named stays",
		Example: "  shardis settings set --durability strict --down-after 5s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := map[string]any{}
			if cmd.Flags().Changed("durability") {
				body["durability"] = durability
			}
			if cmd.Flags().Changed("down-after") {
				body["downAfterSeconds"] = downAfter.Seconds()
			}
			if cmd.Flags().Changed("max-loss-bytes") {
				body["maxLossBytes"] = maxLoss
			}
			return changeSettings(cmd, "PATCH", "/settings", body)
		},
	}
	set.Flags().StringVar(&durability, "durability", "", "relaxed or strict")
	set.Flags().DurationVar(&downAfter, "down-after", 0, "silence of a master before a replica takes over, 0 for the default")
	set.Flags().Int64Var(&maxLoss, "max-loss-bytes", 0, "a replica known to be further behind does not take over by itself, 0 for no bound")
	cmd.AddCommand(get, set)
	return cmd
}

func newMaintenance() *cobra.Command {
	cmd := &cobra.Command{Use: "maintenance", Short: "Keep replicas from taking over by themselves for a while"}
	addServerFlags(cmd)
	var span time.Duration
	var reason string
	on := &cobra.Command{
		Use:     "on",
		Short:   "Begin a maintenance; it ends by itself",
		Example: "  shardis maintenance on --for 30m --reason 'kernel update'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return changeSettings(cmd, "PUT", "/maintenance", map[string]any{"minutes": int(math.Ceil(span.Minutes())), "reason": reason})
		},
	}
	on.Flags().DurationVar(&span, "for", time.Hour, "for how long, in whole minutes")
	on.Flags().StringVar(&reason, "reason", "", "why, for others to see")
	off := &cobra.Command{
		Use:   "off",
		Short: "End the maintenance",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return changeSettings(cmd, "DELETE", "/maintenance", nil)
		},
	}
	cmd.AddCommand(on, off)
	return cmd
}

func changeSettings(cmd *cobra.Command, method, path string, body any) error {
	r, err := newRest(cmd)
	if err != nil {
		return err
	}
	var s settingsView
	if err := r.call(cmd.Context(), method, path, body, &s); err != nil {
		return err
	}
	return show(cmd, s, s.print)
}
