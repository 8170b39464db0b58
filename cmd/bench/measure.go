package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// load is one call of redis-benchmark.
type load struct {
	test     string // -t
	clients  int
	pipeline int
	commands int
}

// subject is something redis-benchmark can be pointed at.
type subject struct {
	name  string
	addr  string
	proxy int   // pid, 0 for direct Redis
	nodes []int // pids of the redis-servers behind it
}

// result is what one measurement gave. CPU times are microseconds a command.
type result struct {
	proxyCPU, nodeCPU float64
	perSecond         float64
	p50               float64 // milliseconds
}

// tick is the unit of /proc/PID/stat, USER_HZ, which Linux fixes at 100.
const tick = 10_000 // microseconds

// cpuOf sums user and system time of processes, in microseconds.
func cpuOf(pids ...int) float64 {
	sum := 0.0
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// Fields after the name, which may hold spaces: state is 3, utime 14, stime 15.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		sum += (user + system) * tick
	}
	return sum
}

// measure runs one load against a subject.
func measure(ctx context.Context, s subject, l load) (result, error) {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return result{}, err
	}
	args := []string{"-h", host, "-p", port, "-t", l.test, "-n", strconv.Itoa(l.commands), "-c", strconv.Itoa(l.clients),
		"-P", strconv.Itoa(l.pipeline), "-r", "3000", "-d", "2", "--csv"}
	proxy, nodes := cpuOf(s.proxy), cpuOf(s.nodes...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return result{}, fmt.Errorf("redis-benchmark %s against %s: %w", strings.Join(args, " "), s.name, err)
	}
	n := float64(l.commands)
	r := result{proxyCPU: (cpuOf(s.proxy) - proxy) / n, nodeCPU: (cpuOf(s.nodes...) - nodes) / n}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 2 {
		return result{}, fmt.Errorf("redis-benchmark printed %q", out)
	}
	for i, name := range rows[0] {
		value, _ := strconv.ParseFloat(rows[len(rows)-1][i], 64)
		switch name {
		case "rps":
			r.perSecond = value
		case "p50_latency_ms":
			r.p50 = value
		}
	}
	return r, nil
}

// rounds measures every subject in turn, some rounds over, and gives each one's
// results. Interleaving makes a drift of the machine fall on all alike.
func rounds(ctx context.Context, o options, l load, subjects ...subject) (map[string][]result, error) {
	progress("%s, %d clients, pipeline %d: %d rounds of %d commands", l.test, l.clients, l.pipeline, o.rounds, l.commands)
	all := map[string][]result{}
	for round := range o.rounds + 1 {
		for _, s := range subjects {
			r, err := measure(ctx, s, l)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one warms up
				all[s.name] = append(all[s.name], r)
			}
		}
	}
	return all, nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// mid is the median of one figure over the rounds.
func mid(results []result, figure func(result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = figure(r)
	}
	return median(values)
}

// ratio is the median over the rounds of a's figure over b's.
func ratio(a, b []result, figure func(result) float64) float64 {
	values := make([]float64, 0, len(a))
	for i := range a {
		if d := figure(b[i]); d > 0 {
			values = append(values, figure(a[i])/d)
		}
	}
	return median(values)
}

func proxyCPU(r result) float64  { return r.proxyCPU }
func nodeCPU(r result) float64   { return r.nodeCPU }
func perSecond(r result) float64 { return r.perSecond }
func p50(r result) float64       { return r.p50 }

func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
