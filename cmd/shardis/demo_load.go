package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The demo's workload: a few clients, some hundreds of commands a second each,
// every reply checked against what this client wrote before. Each worker has
// keys of its own, so that it knows what they must hold; an error leaves a key
// unknown until it is written again.
const (
	loadWorkers  = 4
	loadKeys     = 20_000 // written once, so that there is something to move
	loadPipeline = 10
	loadEvery    = 20 * time.Millisecond // one pipeline per worker
	loadReport   = 10 * time.Second
)

type loadCount struct {
	done, wrong, failed atomic.Int64
	mu                  sync.Mutex
	last                string // the last thing that was wrong or failed
}

func (c *loadCount) wrongf(format string, args ...any) {
	c.wrong.Add(1)
	c.note("wrong reply: " + fmt.Sprintf(format, args...))
}

func (c *loadCount) note(text string) {
	c.mu.Lock()
	c.last = text
	c.mu.Unlock()
}

// runLoad runs until ctx ends. It returns an error only when a reply was wrong.
func runLoad(ctx context.Context, proxies []string, out io.Writer) error {
	count := &loadCount{}
	var wait sync.WaitGroup
	for i := range loadWorkers {
		wait.Go(func() {
			client := redis.NewClient(&redis.Options{Addr: proxies[i%len(proxies)], MaxRetries: -1, PoolSize: 2})
			defer func() { _ = client.Close() }()
			w := &loadWorker{client: client, count: count, prefix: fmt.Sprintf("demo:%d:", i), known: map[string]string{}, counters: map[string]int64{}}
			w.run(ctx)
		})
	}
	tick := time.NewTicker(loadReport)
	defer tick.Stop()
	var before int64
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if bad := count.wrong.Load() + count.failed.Load(); bad != before {
				before = bad
				count.mu.Lock()
				_, _ = fmt.Fprintf(out, "load: %d wrong replies, %d errors so far; the last: %s\n", count.wrong.Load(), count.failed.Load(), count.last)
				count.mu.Unlock()
			}
		}
	}
	wait.Wait()
	_, _ = fmt.Fprintf(out, "load: %d commands, %d wrong replies, %d errors\n", count.done.Load(), count.wrong.Load(), count.failed.Load())
	if n := count.wrong.Load(); n > 0 {
		return fmt.Errorf("the workload got %d wrong replies; the last: %s", n, count.last)
	}
	return nil
}

type loadWorker struct {
	client   *redis.Client
	count    *loadCount
	prefix   string
	known    map[string]string // key → value it must hold
	counters map[string]int64
}

func (w *loadWorker) run(ctx context.Context) {
	filler := make([]byte, 60)
	for i := range filler {
		filler[i] = 'a' + byte(i%26)
	}
	for first := 0; first < loadKeys/loadWorkers && ctx.Err() == nil; first += 500 {
		w.batch(ctx, func(key func(int) string, i int) (string, string) {
			return key(first + i), fmt.Sprintf("%d-%s", first+i, filler)
		}, 500)
	}
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch rand.IntN(3) {
		case 0:
			w.read(ctx)
		case 1:
			w.batch(ctx, func(key func(int) string, _ int) (string, string) {
				return key(rand.IntN(loadKeys / loadWorkers)), strconv.FormatInt(rand.Int64(), 36)
			}, loadPipeline)
		case 2:
			w.increment(ctx)
		}
	}
}

// batch SETs n keys in one pipeline.
func (w *loadWorker) batch(ctx context.Context, pair func(key func(int) string, i int) (string, string), n int) {
	pipe := w.client.Pipeline()
	set := map[string]string{}
	for i := range n {
		key, value := pair(func(i int) string { return w.prefix + strconv.Itoa(i) }, i)
		pipe.Set(ctx, key, value, 0)
		set[key] = value
	}
	if _, err := pipe.Exec(ctx); err != nil {
		w.failed(ctx, err)
		for key := range set {
			delete(w.known, key)
		}
		return
	}
	w.count.done.Add(int64(n))
	for key, value := range set {
		w.known[key] = value
	}
}

// read GETs some keys with one MGET, which the proxy splits over the groups.
func (w *loadWorker) read(ctx context.Context) {
	keys := make([]string, loadPipeline)
	for i := range keys {
		keys[i] = w.prefix + strconv.Itoa(rand.IntN(loadKeys/loadWorkers))
	}
	values, err := w.client.MGet(ctx, keys...).Result()
	if err != nil {
		w.failed(ctx, err)
		return
	}
	w.count.done.Add(1)
	for i, key := range keys {
		if want, known := w.known[key]; known && values[i] != want {
			w.count.wrongf("GET %s gave %v, want %s", key, values[i], want)
			delete(w.known, key)
		}
	}
}

// increment INCRs a counter: each reply must be one more than the last.
func (w *loadWorker) increment(ctx context.Context) {
	key := w.prefix + "counter:" + strconv.Itoa(rand.IntN(20))
	got, err := w.client.Incr(ctx, key).Result()
	if err != nil {
		w.failed(ctx, err)
		delete(w.counters, key)
		return
	}
	w.count.done.Add(1)
	if last, known := w.counters[key]; known && got != last+1 {
		w.count.wrongf("INCR %s gave %d after %d", key, got, last)
	}
	w.counters[key] = got
}

func (w *loadWorker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	w.count.failed.Add(1)
	w.count.note(err.Error())
}
