package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
)

const (
	valueSize = 100
	handovers = 30 // moves of P11
	probers   = 4
)

// measureMigration measures P10, the rate of copying and what it does to
// clients.
func measureMigration(ctx context.Context, o options, rep *report) error {
	dir, err := os.MkdirTemp("", "shardis-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bare, err := bareRate(ctx, dir, o.keys)
	if err != nil {
		return err
	}
	progress("bare SCAN + DUMP + RESTORE loop: %.0f keys/s", bare)
	return wholeGroup(ctx, o, rep, bare)
}

// bareRate copies keys from one Redis to another by the simplest fast loop.
func bareRate(ctx context.Context, dir string, keys int) (float64, error) {
	nodes, err := startRedis(ctx, dir, "bare", 2)
	if err != nil {
		return 0, err
	}
	defer stopAll(nodes)
	source := redis.NewClient(&redis.Options{Addr: nodes[0].Addr})
	target := redis.NewClient(&redis.Options{Addr: nodes[1].Addr})
	defer func() { _, _ = source.Close(), target.Close() }()
	progress("filling %d keys", keys)
	if err := fill(ctx, source, keys); err != nil {
		return 0, err
	}
	type batch struct {
		keys    []string
		dumps   []*redis.StringCmd
		expires []*redis.DurationCmd
	}
	batches := make(chan batch, 4)
	failed := make(chan error, 1)
	start := time.Now()
	go func() {
		defer close(batches)
		var cursor uint64
		for {
			names, next, err := source.Scan(ctx, cursor, "", 300).Result()
			if err != nil {
				failed <- err
				return
			}
			b := batch{keys: names}
			pipe := source.Pipeline()
			for _, key := range names {
				b.expires = append(b.expires, pipe.PExpireTime(ctx, key))
				b.dumps = append(b.dumps, pipe.Dump(ctx, key))
			}
			if _, err := pipe.Exec(ctx); err != nil && len(names) > 0 {
				failed <- err
				return
			}
			batches <- b
			if cursor = next; cursor == 0 {
				return
			}
		}
	}()
	copied := 0
	for b := range batches {
		pipe := target.Pipeline()
		for i, key := range b.keys {
			pipe.Do(ctx, "restore", key, 0, b.dumps[i].Val(), "replace", "absttl")
		}
		if _, err := pipe.Exec(ctx); err != nil && len(b.keys) > 0 {
			return 0, err
		}
		copied += len(b.keys)
	}
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	return float64(copied) / time.Since(start).Seconds(), nil
}

// fill SETs keys of valueSize bytes.
func fill(ctx context.Context, client *redis.Client, keys int) error {
	value := bytes.Repeat([]byte("x"), valueSize)
	for first := 0; first < keys; first += 2000 {
		pipe := client.Pipeline()
		for i := first; i < min(first+2000, keys); i++ {
			pipe.Set(ctx, fmt.Sprintf("key:%012d", i), value, 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wholeGroup moves every slot of a group, read from its replica.
func wholeGroup(ctx context.Context, o options, rep *report, bare float64) error {
	c, err := startCluster(ctx, o, benchPort, "--groups", "1", "--spares", "1", "--replicas", "1", "--purge-delay", "1h")
	if err != nil {
		return err
	}
	defer c.stop()
	client := redis.NewClient(&redis.Options{Addr: c.Proxies[0], ReadTimeout: time.Minute})
	defer func() { _ = client.Close() }()
	progress("filling %d keys", o.keys)
	if err := fill(ctx, client, o.keys); err != nil {
		return err
	}
	if err := c.replicasInSync(ctx); err != nil {
		return err
	}
	master := c.nodePIDs()[0]
	cpu := cpuOf(master)
	seconds, err := c.move(ctx, map[string]any{"goal": "move", "slots": "0-16383", "toGroup": "g2"})
	if err != nil {
		return err
	}
	cpu = cpuOf(master) - cpu
	rate := float64(o.keys) / seconds
	rep.row("P10", "copy rate, whole group, no load", rate/bare, "× a bare loop", -0.8, fmt.Sprintf("%.0f against %.0f keys/s", rate, bare))
	rep.row("P10", "master's CPU a key, read from a replica", cpu/float64(o.keys), "µs", 0.5, "everything the master did meanwhile")
	return c.latencyDuringMove(ctx, o, rep)
}

// latencyDuringMove starts afresh and compares a client's p99 before and while
// the same keys move at default speed.
func (c *cluster) latencyDuringMove(ctx context.Context, o options, rep *report) error {
	c.stop()
	again, err := startCluster(ctx, o, benchPort, "--groups", "1", "--spares", "1", "--replicas", "1", "--purge-delay", "1h")
	if err != nil {
		return err
	}
	defer again.stop()
	client := redis.NewClient(&redis.Options{Addr: again.Proxies[0], ReadTimeout: time.Minute})
	defer func() { _ = client.Close() }()
	if err := fill(ctx, client, o.keys); err != nil {
		return err
	}
	if err := again.replicasInSync(ctx); err != nil {
		return err
	}
	idle, stop := context.WithTimeout(ctx, 5*time.Second)
	before := probe(idle, client, func() string { return fmt.Sprintf("key:%012d", rand.IntN(o.keys)) })
	stop()
	moving, stop := context.WithCancel(ctx)
	results := make(chan []float64, 1)
	go func() {
		results <- probe(moving, client, func() string { return fmt.Sprintf("key:%012d", rand.IntN(o.keys)) })
	}()
	seconds, err := again.move(ctx, map[string]any{"goal": "move", "slots": "0-16383", "toGroup": "g2"})
	stop()
	during := <-results
	if err != nil {
		return err
	}
	b, d := percentile(before, 0.99), percentile(during, 0.99)
	rep.row("P10", "a client's p99 while everything moves", d/b, "× before", 2,
		fmt.Sprintf("%.2f against %.2f ms, at %.0f keys/s", d, b, float64(o.keys)/seconds))
	return nil
}

// probe SETs and GETs random keys, about 1,000 commands a second, and gives the
// latencies in milliseconds.
func probe(ctx context.Context, client *redis.Client, key func() string) []float64 {
	var all []float64
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		start := time.Now()
		if err := client.Set(context.WithoutCancel(ctx), key(), "v", 0).Err(); err != nil {
			progress("probe: %v", err)
		}
		all = append(all, float64(time.Since(start).Microseconds())/1000)
	}
}

// measureHandOver measures P11, how long a hand-over makes a command wait: many
// small moves while clients write to the moving slots.
func measureHandOver(ctx context.Context, o options, rep *report) error {
	c, err := startCluster(ctx, o, benchPort, "--groups", "1", "--spares", "1", "--replicas", "1", "--scheme", "crc32/1024")
	if err != nil {
		return err
	}
	defer c.stop()
	client := redis.NewClient(&redis.Options{Addr: c.Proxies[0], ReadTimeout: time.Minute, PoolSize: probers + 2})
	defer func() { _ = client.Close() }()
	if err := fill(ctx, client, min(o.keys, 100_000)); err != nil {
		return err
	}
	progress("%d hand-overs", handovers)
	var waits []float64
	for i := range handovers {
		first := topo.Slot(i * 10)
		keys := keysIn(topo.SlotRange{First: first, Last: first + 9})
		moving, stop := context.WithCancel(ctx)
		longest := make([]float64, probers)
		var wait sync.WaitGroup
		for p := range probers {
			wait.Go(func() {
				for _, ms := range probe(moving, client, func() string { return keys[rand.IntN(len(keys))] }) {
					longest[p] = max(longest[p], ms)
				}
			})
		}
		_, err := c.move(ctx, map[string]any{"goal": "move", "slots": topo.SlotRange{First: first, Last: first + 9}.String(), "toGroup": "g2"})
		stop()
		wait.Wait()
		if err != nil {
			return err
		}
		waits = append(waits, longest...)
	}
	rep.row("P11", "hand-over: longest wait of a command to a moving slot, p99 over moves and clients", percentile(waits, 0.99), "ms", 50,
		fmt.Sprintf("p50 %.1f ms, %d moves × %d clients", percentile(waits, 0.5), handovers, probers))
	return nil
}

// keysIn finds some keys of these slots.
func keysIn(slots topo.SlotRange) []string {
	var keys []string
	for i := 0; len(keys) < 50; i++ {
		if key := fmt.Sprintf("probe:%d", i); slots.Contains(topo.CRC32.SlotOf([]byte(key))) {
			keys = append(keys, key)
		}
	}
	return keys
}

// replicasInSync waits until each replica has its master's offset.
func (c *cluster) replicasInSync(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); ; {
		offsets := map[string]map[string]bool{}
		for _, n := range c.Nodes {
			client := redis.NewClient(&redis.Options{Addr: n.Addr, Password: n.Password})
			info, err := client.InfoMap(ctx, "replication").Result()
			_ = client.Close()
			if err != nil {
				return err
			}
			offset := info["Replication"]["master_repl_offset"]
			if offsets[n.Group] == nil {
				offsets[n.Group] = map[string]bool{}
			}
			offsets[n.Group][offset] = true
		}
		same := true
		for _, seen := range offsets {
			same = same && len(seen) == 1
		}
		if same {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("replicas do not catch up")
		}
		<-time.After(50 * time.Millisecond)
	}
}

// move runs a plan and gives the seconds until every slot had changed hands.
func (c *cluster) move(ctx context.Context, goal map[string]any) (float64, error) {
	var plan, op struct {
		ID     string `json:"id"`
		State  string `json:"state"`
		Reason string `json:"reason"`
		Moves  []struct {
			State string `json:"state"`
		} `json:"moves"`
	}
	if err := c.call(ctx, http.MethodPost, "/plans", goal, &plan); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := c.call(ctx, http.MethodPost, "/operations", map[string]any{"plan": plan.ID}, &op); err != nil {
		return 0, err
	}
	for {
		moved := len(op.Moves) > 0
		for _, m := range op.Moves {
			moved = moved && (m.State == "purging" || m.State == "done")
		}
		if moved || op.State == "succeeded" {
			return time.Since(start).Seconds(), nil
		}
		if op.State == "failed" || op.State == "cancelled" {
			return 0, fmt.Errorf("operation %s: %s", op.State, op.Reason)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if err := c.call(ctx, http.MethodGet, "/operations/"+op.ID, nil, &op); err != nil {
			return 0, err
		}
	}
}

// call speaks REST to the demo's dashboard.
func (c *cluster) call(ctx context.Context, method, path string, body, out any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.API+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, reply.Status, data)
	}
	return json.Unmarshal(data, out)
}
