// Command bench compares Shardis with direct Redis and with twemproxy, side by
// side in one run, and writes the table of docs/BENCHMARKS.md. It is what
// `make bench` runs; it is not a test and fails nothing.
//
// Machines are noisy, so every figure is a ratio of things measured in turn
// (direct, twemproxy, Shardis, again …), the median over some rounds. The truest
// one is CPU time per command: user and system time of the process, from
// /proc/PID/stat, over a fixed number of commands by redis-benchmark.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

type options struct {
	shardis  string
	rounds   int
	commands int
	keys     int
	write    string
	only     string
}

func main() {
	var o options
	flag.StringVar(&o.shardis, "shardis", "bin/shardis", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measurement; the median is reported")
	flag.IntVar(&o.commands, "commands", 300_000, "commands of one measurement without pipeline; five times as many with")
	flag.IntVar(&o.keys, "keys", 1_000_000, "keys of the migration measurement")
	flag.StringVar(&o.write, "write", "", "write the result to this Markdown file, too")
	flag.StringVar(&o.only, "only", "", "path, migration or hand-over: only this part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	for _, tool := range []string{"redis-server", "redis-benchmark", "nutcracker"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: run deploy/setup.sh bench", tool)
		}
	}
	if _, err := os.Stat(o.shardis); err != nil {
		return errors.New("no binary to measure: run make build, or name one with -shardis")
	}
	report := &report{}
	if o.only == "" || o.only == "path" {
		if err := measurePath(ctx, o, report); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == "migration" {
		if err := measureMigration(ctx, o, report); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == "hand-over" {
		if err := measureHandOver(ctx, o, report); err != nil {
			return err
		}
	}
	return report.finish(o)
}

// progress tells what is being measured.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
