package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"shardis/coordinator/localredis"
)

const (
	benchPort = 23000
	direct    = "direct"
	twem      = "twemproxy"
	shardis   = "Shardis"
)

// measurePath measures the route of a command: P1–P5, P7 and P8.
func measurePath(ctx context.Context, o options, rep *report) error {
	dir, err := os.MkdirTemp("", "shardis-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := onOneNode(ctx, o, dir, rep); err != nil {
		return err
	}
	if err := onThreeNodes(ctx, o, dir, rep); err != nil {
		return err
	}
	return allocations(ctx, rep)
}

// onOneNode compares direct Redis, twemproxy before one Redis and Shardis
// before one group.
func onOneNode(ctx context.Context, o options, dir string, rep *report) error {
	redis, err := startRedis(ctx, dir, "one", 2)
	if err != nil {
		return err
	}
	defer stopAll(redis)
	tw, err := startTwemproxy(dir, benchPort+300, redis[1:])
	if err != nil {
		return err
	}
	defer tw.stop()
	c, err := startCluster(ctx, o, benchPort, "--groups", "1", "--spares", "0", "--replicas", "0")
	if err != nil {
		return err
	}
	defer c.stop()
	subjects := []subject{
		{direct, redis[0].Addr, 0, pidsOf(redis[:1])},
		{twem, tw.addr, tw.cmd.Process.Pid, pidsOf(redis[1:])},
		{shardis, c.Proxies[0], c.pid("proxy-1"), c.nodePIDs()},
	}
	for _, test := range []string{"set", "get"} {
		plain, err := rounds(ctx, o, load{test, 50, 1, o.commands}, subjects...)
		if err != nil {
			return err
		}
		rep.detail(test+", no pipeline", plain)
		rep.row("P1", test+": proxy CPU a command, no pipeline", ratio(plain[shardis], plain[twem], proxyCPU), "× twemproxy", 1.0,
			fmt.Sprintf("%.2f against %.2f µs", mid(plain[shardis], proxyCPU), mid(plain[twem], proxyCPU)))
		rep.row("P4", test+": Redis's CPU a command behind the proxy", ratio(plain[shardis], plain[direct], nodeCPU), "× direct", 0.5,
			fmt.Sprintf("%.2f against %.2f µs", mid(plain[shardis], nodeCPU), mid(plain[direct], nodeCPU)))
		piped, err := rounds(ctx, o, load{test, 50, 20, 5 * o.commands}, subjects...)
		if err != nil {
			return err
		}
		rep.detail(test+", pipeline 20", piped)
		rep.row("P2", test+": proxy CPU a command, pipeline 20", ratio(piped[shardis], piped[twem], proxyCPU), "× twemproxy", 0.6,
			fmt.Sprintf("%.2f against %.2f µs", mid(piped[shardis], proxyCPU), mid(piped[twem], proxyCPU)))
		rep.row("P3", test+": throughput, pipeline 20, one loop", ratio(piped[shardis], piped[direct], perSecond), "× direct", -0.7,
			fmt.Sprintf("%.0f, twemproxy %.0f, direct %.0f k/s", mid(piped[shardis], perSecond)/1000, mid(piped[twem], perSecond)/1000, mid(piped[direct], perSecond)/1000))
	}
	single, err := rounds(ctx, o, load{"get", 1, 1, max(20_000, o.commands/6)}, subjects...)
	if err != nil {
		return err
	}
	rep.detail("get, one connection", single)
	rep.row("P5", "get: one connection, p50", ratio(single[shardis], single[twem], p50), "× twemproxy", 1.05,
		fmt.Sprintf("%.3f against %.3f ms", mid(single[shardis], p50), mid(single[twem], p50)))
	return nil
}

// onThreeNodes measures commands that are split over groups.
func onThreeNodes(ctx context.Context, o options, dir string, rep *report) error {
	redis, err := startRedis(ctx, dir, "three", 3)
	if err != nil {
		return err
	}
	defer stopAll(redis)
	tw, err := startTwemproxy(dir, benchPort+310, redis)
	if err != nil {
		return err
	}
	defer tw.stop()
	c, err := startCluster(ctx, o, benchPort, "--groups", "3", "--spares", "0", "--replicas", "0")
	if err != nil {
		return err
	}
	defer c.stop()
	subjects := []subject{
		{twem, tw.addr, tw.cmd.Process.Pid, pidsOf(redis)},
		{shardis, c.Proxies[0], c.pid("proxy-1"), c.nodePIDs()},
	}
	results, err := rounds(ctx, o, load{"mset", 50, 1, o.commands / 3}, subjects...)
	if err != nil {
		return err
	}
	rep.detail("mset of 10 over 3 nodes", results)
	rep.row("P8", "mset of 10 over 3 groups: proxy CPU a command", ratio(results[shardis], results[twem], proxyCPU), "× twemproxy", noGoal,
		fmt.Sprintf("%.1f against %.1f µs; the goal is 0.6 × predixy", mid(results[shardis], proxyCPU), mid(results[twem], proxyCPU)))
	mget, err := measureMGet(ctx, o, subjects)
	if err != nil {
		return err
	}
	rep.row("P8", "mget of 10 over 3 groups: proxy CPU a command", ratio(mget[shardis], mget[twem], proxyCPU), "× twemproxy", noGoal,
		fmt.Sprintf("%.1f against %.1f µs; the goal is 0.6 × predixy", mid(mget[shardis], proxyCPU), mid(mget[twem], proxyCPU)))
	return nil
}

// allocations runs the tests that count heap allocations of a command.
func allocations(ctx context.Context, rep *report) error {
	progress("allocations")
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "Alloc", "./proxy/...").CombinedOutput()
	passed, failed := strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- FAIL")
	if err != nil || passed == 0 {
		failed++
	}
	rep.row("P7", "heap allocations: GET, SET 0; MGET of 10 over 3 groups ≤ 2", float64(failed), "tests failed", 0, fmt.Sprintf("%d tests passed", passed))
	return nil
}

func stopAll(nodes []*localredis.Process) {
	for _, n := range nodes {
		n.Stop()
	}
}
