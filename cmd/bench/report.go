package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report collects rows while things are measured, and prints them.
type report struct {
	rows    []row
	details []string
}

type row struct {
	number, what string
	value        float64
	unit         string
	goal         float64 // at most; negative: at least its absolute value
	note         string
}

// noGoal marks a row that is only reported.
var noGoal = math.Inf(1)

// met reports whether the row reaches its goal.
func (r row) met() bool {
	if r.goal < 0 {
		return r.value >= -r.goal
	}
	return r.value <= r.goal
}

// row adds a line. goal is the most the value may be; negative, the least.
func (r *report) row(number, what string, value float64, unit string, goal float64, note string) {
	r.rows = append(r.rows, row{number, what, value, unit, goal, note})
	progress("%s %s: %.2f %s (%s)", number, what, value, unit, note)
}

// detail keeps the absolute figures of a measurement.
func (r *report) detail(what string, results map[string][]result) {
	for _, name := range []string{direct, twem, shardis} {
		rs, ok := results[name]
		if !ok {
			continue
		}
		cpu := "–"
		if name != direct {
			cpu = fmt.Sprintf("%.2f", mid(rs, proxyCPU))
		}
		r.details = append(r.details, fmt.Sprintf("| %s | %s | %s | %.2f | %.0f | %.3f |", what, name, cpu, mid(rs, nodeCPU), mid(rs, perSecond), mid(rs, p50)))
	}
}

func (r *report) finish(o options) error {
	slices.SortStableFunc(r.rows, func(a, b row) int {
		if len(a.number) != len(b.number) {
			return len(a.number) - len(b.number)
		}
		return strings.Compare(a.number, b.number)
	})
	r.print(os.Stdout, o)
	if o.write == "" {
		return nil
	}
	file, err := os.Create(o.write)
	if err != nil {
		return err
	}
	r.print(file, o)
	return file.Close()
}

func (r *report) print(w io.Writer, o options) {
	fmt.Fprintf(w, `# Benchmarks

Made by `+"`make bench`"+` on %s: %s, %d CPUs, Linux %s, %s, %s, %s, Shardis %s.
Each figure is the median of %d rounds measured in turn with what it is compared to; CPU is user and system time of the
process over a fixed number of commands. The machine is shared and noisy: read the ratios.

redis-benchmark -r 3000 -d 2 --csv, 50 clients, %d commands a round without pipeline (-P 1), %d with -P 20; one event loop in the
proxy, one thread in twemproxy; one Redis behind each for P1–P5, three for P8.

| # | What | Measured | Goal | Met | Figures |
|---|---|---|---|---|---|
`, time.Now().UTC().Format(time.DateOnly), cpuModel(), runtime.NumCPU(), first("uname", "-r"), runtime.Version(),
		first("redis-server", "--version"), first("nutcracker", "--version"), first(o.shardis, "version"), o.rounds, o.commands, 5*o.commands)
	for _, row := range r.rows {
		sign, goal := "≤", row.goal
		if goal < 0 {
			sign, goal = "≥", -goal
		}
		if math.IsInf(goal, 1) {
			fmt.Fprintf(w, "| %s | %s | %.2f %s | – | – | %s |\n", row.number, row.what, row.value, row.unit, row.note)
			continue
		}
		met := "yes"
		if !row.met() {
			met = "**no**"
		}
		fmt.Fprintf(w, "| %s | %s | %.2f %s | %s %g | %s | %s |\n", row.number, row.what, row.value, row.unit, sign, goal, met, row.note)
	}
	if len(r.details) > 0 {
		fmt.Fprintf(w, "\n## Absolute figures\n\n| Load | Subject | Proxy CPU µs | Redis CPU µs | Commands/s | p50 ms |\n|---|---|---|---|---|---|\n%s\n", strings.Join(r.details, "\n"))
	}
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

// first is the first line that a command prints, shortened to its version.
func first(command string, args ...string) string {
	out, _ := exec.Command(command, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if name, rest, found := strings.Cut(line, "v="); found {
		version, _, _ := strings.Cut(rest, " ")
		return strings.TrimSuffix(strings.TrimSpace(name), " server") + " " + version
	}
	return strings.TrimPrefix(line, "shardis ")
}
