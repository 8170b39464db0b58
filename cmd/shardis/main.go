// Command shardis is every part of Shardis in one binary: proxy, coordinator,
// dashboard, an etcd for one machine, a demo cluster, and the operator's verbs
// over the dashboard's REST API. Each sub-command has a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker; a plain `go build` takes it from the checkout.
var version = ""

func main() {
	ctx, cancel := notifyContext()
	defer cancel()
	err := newRoot().ExecuteContext(ctx)
	if err == nil {
		return
	}
	var exit exitError
	if !errors.As(err, &exit) {
		exit = exitError{code: exitFailed, err: err}
	}
	if exit.err != nil {
		fmt.Fprintf(os.Stderr, "shardis: %v\n", exit.err)
	}
	os.Exit(exit.code)
}

// notifyContext ends with the first SIGINT or SIGTERM, which asks for an
// orderly stop. The second one ends the process at once.
func notifyContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "shardis: second signal, stopping at once")
		os.Exit(exitInterrupted)
	}()
	return ctx, cancel
}

// Exit codes, the same for every sub-command.
const (
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitConflict     = 4
	exitForbidden    = 5
	exitUnreachable  = 6
	exitUnsuccessful = 7 // an operation finished, not well
	exitTimeout      = 8
	exitInterrupted  = 130
)

// exitError carries the exit code an error leads to.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shardis",
		Short: "A sharding proxy for Redis with live slot migration",
		Long: `Shardis makes many Redis groups look like one big Redis, and moves slots between
them while they are in use.

Try it on this machine:       shardis demo --load
Look at a running cluster:    shardis status --server http://127.0.0.1:8080
Spread slots evenly:          shardis rebalance auto`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildVersion(),
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exitError{exitUsage, fmt.Errorf("%w\nSee: %s --help", err, cmd.CommandPath())}
	})
	root.AddGroup(&cobra.Group{ID: "roles", Title: "Roles:"}, &cobra.Group{ID: "verbs", Title: "Operate a cluster:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("roles", newDemo(), newInit(), newProxy(), newCoordinator(), newDashboard(), newEtcd())
	add("verbs", newStatus(), newSlots(), newGroups(), newNodes(), newProxies(), newRebalance(), newMigrate(), newSwitchover(), newFailover(), newMaintenance(), newSettings(), newOps(), newTokens(), newHealth())
	root.AddCommand(newVersion())
	return root
}

// buildVersion is the linker's version, else the checkout's.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = "-modified"
			}
		}
	}
	if revision == "" {
		return "dev"
	}
	return revision + modified
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "shardis", buildVersion())
			return err
		},
	}
}
