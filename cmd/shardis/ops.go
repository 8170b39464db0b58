package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type operationView struct {
	ID       string     `json:"id"`
	Kind     string     `json:"kind"`
	Goal     string     `json:"goal,omitempty"`
	State    string     `json:"state"`
	Summary  string     `json:"summary"`
	Reason   string     `json:"reason,omitempty"`
	Moves    []moveView `json:"moves,omitempty"`
	Progress struct {
		Fraction       float64  `json:"fraction"`
		SlotsDone      int      `json:"slotsDone"`
		SlotsTotal     int      `json:"slotsTotal"`
		KeysDone       int64    `json:"keysDone"`
		KeysTotal      int64    `json:"keysTotal"`
		BytesDone      int64    `json:"bytesDone"`
		BytesTotal     int64    `json:"bytesTotal"`
		KeysPerSecond  float64  `json:"keysPerSecond"`
		BytesPerSecond float64  `json:"bytesPerSecond"`
		ETASeconds     *float64 `json:"etaSeconds"`
	} `json:"progress"`
	Log []struct {
		At   time.Time `json:"at"`
		Text string    `json:"text"`
	} `json:"log,omitempty"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

type operationList struct {
	Items []operationView `json:"items"`
}

func (o *operationView) finished() bool {
	return o.State == "succeeded" || o.State == "failed" || o.State == "cancelled"
}

func newOps() *cobra.Command {
	cmd := &cobra.Command{Use: "ops", Short: "List, watch, pause, resume and cancel operations"}
	addServerFlags(cmd)
	list := &cobra.Command{
		Use:   "list",
		Short: "List operations, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[operationList](cmd, "/operations")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]any
				for _, o := range list.Items {
					rows = append(rows, []any{o.ID, o.Kind, o.State, fmt.Sprintf("%.0f %%", o.Progress.Fraction*100), o.CreatedBy, o.CreatedAt.Local().Format(time.DateTime), o.Summary})
				}
				printTable(w, []any{"operation", "kind", "state", "done", "by", "created", "what"}, rows)
			})
		},
	}
	get := &cobra.Command{
		Use:   "get ID",
		Short: "Show one operation with its moves and log",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := fetch[operationView](cmd, "/operations/"+url.PathEscape(args[0]))
			if err != nil {
				return err
			}
			return show(cmd, o, func(w io.Writer) { printOperation(w, &o) })
		},
	}
	watch := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow an operation to its end; Ctrl-C only stops watching",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := newRest(cmd)
			if err != nil {
				return err
			}
			return watchOperation(cmd, r, args[0])
		},
	}
	addTimeoutFlag(watch)
	cmd.AddCommand(list, get, watch)
	for _, verb := range []struct{ name, short string }{
		{"pause", "Pause an operation; slots already moved stay, the rest waits"},
		{"resume", "Go on with a paused operation"},
		{"cancel", "Cancel an operation; slots already moved stay, nothing is lost"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   verb.name + " ID",
			Short: verb.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				r, err := newRest(cmd)
				if err != nil {
					return err
				}
				var o operationView
				if err := r.call(cmd.Context(), "POST", "/operations/"+url.PathEscape(args[0])+"/actions/"+verb.name, nil, &o); err != nil {
					return err
				}
				return show(cmd, o, func(w io.Writer) { fmt.Fprintf(w, "%s is %s\n", o.ID, o.State) })
			},
		})
	}
	return cmd
}

func printOperation(w io.Writer, o *operationView) {
	fmt.Fprintf(w, "%s  %s\n%s\n", o.ID, o.State, o.Summary)
	if o.Reason != "" {
		fmt.Fprintf(w, "%s\n", o.Reason)
	}
	if len(o.Moves) > 0 {
		fmt.Fprintln(w)
		var rows [][]any
		for _, m := range o.Moves {
			rows = append(rows, []any{m.From, m.To, m.SlotCount, m.State, fmt.Sprintf("%d/%d", m.KeysDone, m.KeysTotal), shorten(m.Slots, 40), m.Reason})
		}
		printTable(w, []any{"from", "to", "count", "state", "keys", "slots", "reason"}, rows)
	}
	for _, note := range o.Log {
		fmt.Fprintf(w, "\n%s  %s", note.At.Local().Format(time.TimeOnly), note.Text)
	}
	fmt.Fprintln(w)
}

// addWaitFlags adds --no-wait and --timeout.
func addWaitFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("no-wait", false, "start it and return")
	addTimeoutFlag(cmd)
}

func addTimeoutFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("timeout", 0, "stop waiting after this long; the operation goes on (0: wait to the end)")
}

// startAndWatch starts an operation and follows it to its end.
func startAndWatch(cmd *cobra.Command, method, path string, body any) error {
	r, err := newRest(cmd)
	if err != nil {
		return err
	}
	var o operationView
	if err := r.call(cmd.Context(), method, path, body, &o); err != nil {
		return err
	}
	if noWait, _ := cmd.Flags().GetBool("no-wait"); noWait {
		return show(cmd, o, func(w io.Writer) {
			fmt.Fprintf(w, "%s is %s\nNext: shardis ops watch %s\n", o.ID, o.State, o.ID)
		})
	}
	return watchOperation(cmd, r, o.ID)
}

// watchOperation prints progress to stderr and the result to stdout.
func watchOperation(cmd *cobra.Command, r *rest, id string) error {
	ctx := cmd.Context()
	if timeout, _ := cmd.Flags().GetDuration("timeout"); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	redraw := isTerminal(os.Stderr)
	var last string
	var lastPrint time.Time
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		var o operationView
		if err := r.call(ctx, "GET", "/operations/"+url.PathEscape(id), nil, &o); err != nil {
			if ctx.Err() == nil {
				return err
			}
			return stillRunning(ctx, id)
		}
		line := progressLine(&o)
		switch {
		case redraw:
			fmt.Fprintf(os.Stderr, "\r\x1b[K%s", line)
		case o.State != last || time.Since(lastPrint) > 5*time.Second:
			fmt.Fprintln(os.Stderr, line)
			lastPrint = time.Now()
		}
		last = o.State
		if o.finished() {
			if redraw {
				fmt.Fprintln(os.Stderr)
			}
			return operationResult(cmd, &o)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return stillRunning(ctx, id)
		}
	}
}

var errTimeout = errors.New("timed out")

func stillRunning(ctx context.Context, id string) error {
	code := exitInterrupted
	if errors.Is(context.Cause(ctx), errTimeout) {
		code = exitTimeout
	}
	return exitError{code, fmt.Errorf("stopped watching; the operation goes on\n  watch it again: shardis ops watch %s", id)}
}

func operationResult(cmd *cobra.Command, o *operationView) error {
	err := show(cmd, o, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s\n", o.ID, o.State)
	})
	if err == nil && o.State != "succeeded" {
		reason := o.Reason
		if reason == "" {
			reason = o.Summary
		}
		return exitError{exitUnsuccessful, fmt.Errorf("operation %s %s: %s", o.ID, o.State, reason)}
	}
	return err
}

func progressLine(o *operationView) string {
	const width = 24
	done := int(o.Progress.Fraction*width + 0.5)
	bar := strings.Repeat("█", min(done, width)) + strings.Repeat("░", width-min(done, width))
	line := fmt.Sprintf("%s %3.0f %%  %s", bar, o.Progress.Fraction*100, o.State)
	if o.Progress.KeysTotal > 0 {
		line += fmt.Sprintf("  %s of %s keys", countText(o.Progress.KeysDone), countText(o.Progress.KeysTotal))
	}
	if o.Progress.KeysPerSecond > 0 {
		line += fmt.Sprintf("  %s keys/s", rateText(o.Progress.KeysPerSecond))
	}
	if o.Progress.ETASeconds != nil && *o.Progress.ETASeconds > 0 {
		line += "  about " + durationText(*o.Progress.ETASeconds) + " left"
	}
	if o.Reason != "" {
		line += "  " + o.Reason
	}
	return line
}
