package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

type checkView struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

type shareView struct {
	Group string `json:"group"`
	Slots int    `json:"slots"`
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
}

type planView struct {
	ID        string      `json:"id"`
	Goal      string      `json:"goal"`
	Summary   string      `json:"summary"`
	BaseEpoch uint64      `json:"baseEpoch"`
	Moves     []moveView  `json:"moves"`
	Before    []shareView `json:"before"`
	After     []shareView `json:"after"`
	Checks    []checkView `json:"checks"`
	Estimate  struct {
		Slots   int     `json:"slots"`
		Keys    int64   `json:"keys"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	} `json:"estimate"`
}

type moveView struct {
	Slots     string  `json:"slots"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	SlotCount int     `json:"slotCount"`
	State     string  `json:"state,omitempty"`
	KeysDone  int64   `json:"keysDone,omitempty"`
	KeysTotal int64   `json:"keysTotal,omitempty"`
	HoldMs    float64 `json:"holdMs,omitempty"`
	Reason    string  `json:"reason,omitempty"`
}

func newRebalance() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Spread the slots evenly over the groups",
		Example: `  shardis rebalance plan             # what would move
  shardis rebalance run plan-…       # exactly that
  shardis rebalance auto --yes       # plan, then run`,
	}
	addServerFlags(cmd)
	var groups []string
	plan := &cobra.Command{
		Use:   "plan",
		Short: "Make and print a plan, without running it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, _, err := makePlan(cmd, rebalanceGoal(groups))
			if err != nil {
				return err
			}
			return show(cmd, p, func(w io.Writer) {
				printPlan(w, p)
				fmt.Fprintf(w, "\nNext: shardis rebalance run %s\n", p.ID)
			})
		},
	}
	run := &cobra.Command{
		Use:   "run PLAN",
		Short: "Run a plan made before",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return startAndWatch(cmd, "POST", "/operations", map[string]any{"plan": args[0]})
		},
	}
	auto := &cobra.Command{
		Use:   "auto",
		Short: "Make a plan, ask, run it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return planAndRun(cmd, rebalanceGoal(groups))
		},
	}
	for _, c := range []*cobra.Command{plan, auto} {
		c.Flags().StringSliceVar(&groups, "groups", nil, "only over these groups (default: all)")
	}
	addWaitFlags(run)
	addWaitFlags(auto)
	addYesFlag(auto)
	cmd.AddCommand(plan, run, auto)
	return cmd
}

func rebalanceGoal(groups []string) map[string]any {
	body := map[string]any{"goal": "slots"}
	if len(groups) > 0 {
		body["groups"] = groups
	}
	return body
}

func newMigrate() *cobra.Command {
	var slots, to string
	cmd := &cobra.Command{
		Use:     "migrate --slots RANGES --to GROUP",
		Short:   "Move slots to a group",
		Example: "  shardis migrate --slots 0-99,512 --to g2",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if slots == "" || to == "" {
				return exitError{exitUsage, errors.New("say which slots go where: --slots 0-99 --to g2")}
			}
			return planAndRun(cmd, map[string]any{"goal": "move", "slots": slots, "toGroup": to})
		},
	}
	cmd.Flags().StringVar(&slots, "slots", "", "slots to move, e.g. 0-99,512")
	cmd.Flags().StringVar(&to, "to", "", "group to move them to")
	addServerFlags(cmd)
	addWaitFlags(cmd)
	addYesFlag(cmd)
	return cmd
}

func makePlan(cmd *cobra.Command, body map[string]any) (planView, *rest, error) {
	var p planView
	r, err := newRest(cmd)
	if err != nil {
		return p, nil, err
	}
	return p, r, r.call(cmd.Context(), "POST", "/plans", body, &p)
}

// planAndRun makes a plan, shows it, asks, and runs exactly that plan.
func planAndRun(cmd *cobra.Command, body map[string]any) error {
	p, _, err := makePlan(cmd, body)
	if err != nil {
		return err
	}
	if len(p.Moves) == 0 {
		return show(cmd, p, func(w io.Writer) { fmt.Fprintln(w, "Nothing to do: the slots are where they should be.") })
	}
	printPlan(cmd.ErrOrStderr(), p)
	if err := confirm(cmd, fmt.Sprintf("Move %d slots?", p.Estimate.Slots)); err != nil {
		return err
	}
	return startAndWatch(cmd, "POST", "/operations", map[string]any{"plan": p.ID})
}

func printPlan(w io.Writer, p planView) {
	if p.Summary != "" {
		fmt.Fprintf(w, "%s\n\n", p.Summary)
	}
	before := map[string]int{}
	for _, s := range p.Before {
		before[s.Group] = s.Slots
	}
	var rows [][]any
	for _, s := range p.After {
		rows = append(rows, []any{s.Group, before[s.Group], s.Slots, fmt.Sprintf("%+d", s.Slots-before[s.Group])})
	}
	printTable(w, []any{"group", "slots before", "slots after", "change"}, rows)
	fmt.Fprintln(w)
	rows = rows[:0]
	for _, m := range p.Moves {
		rows = append(rows, []any{m.From, m.To, m.SlotCount, shorten(m.Slots, 60)})
	}
	printTable(w, []any{"from", "to", "count", "slots"}, rows)
	for _, c := range p.Checks {
		if c.Result != "pass" {
			fmt.Fprintf(w, "\n%s: %s: %s\n", c.Result, c.Name, c.Detail)
		}
	}
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-1] + "…"
}

func addYesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

// confirm asks on a terminal; elsewhere --yes is needed.
func confirm(cmd *cobra.Command, question string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return exitError{exitUsage, fmt.Errorf("%s This needs an answer and there is no terminal: add --yes", question)}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s [y/N] ", question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return exitError{exitFailed, errors.New("not confirmed, nothing was changed")}
	}
	return nil
}
