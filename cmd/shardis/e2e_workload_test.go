package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// workload is writers whose every reply is checked against a model. Each writer
// has keys of its own and knows what they hold; counters shared by all must
// never repeat a value. With allowErrors an error reply is not a violation: the
// keys it concerns become unknown (the command may have been applied or not).
type workload struct {
	t           *testing.T
	d           *demo
	writers     []*writer
	allowErrors bool

	ops    atomic.Int64
	errs   atomic.Int64
	mu     sync.Mutex
	faults []string // violations, first ones
	count  int
	firstE string
}

type writer struct {
	w        *workload
	id       int
	client   *redis.Client
	rng      *rand.Rand
	values   map[string]string // plain keys
	counters map[string]int64
	logs     map[string]int // next sequence number
	sets     map[string]int // members so far
	unknown  map[string]bool
	expiring map[string]expiring
	shared   []int64 // values that INCR of the shared counter gave
	keys     int
}

type expiring struct {
	value    string
	deadline time.Time
}

const (
	expirySlack = 3 * time.Second // a busy machine may answer late
	sharedKey   = "shared:counter"
)

func newWorkload(t *testing.T, d *demo, writers, keys int, seed uint64) *workload {
	w := &workload{t: t, d: d}
	t.Logf("seed %d", seed)
	for i := range writers {
		w.writers = append(w.writers, &writer{
			w: w, id: i, client: d.client(i), rng: rand.New(rand.NewPCG(seed, uint64(i))), keys: keys / writers,
			values: map[string]string{}, counters: map[string]int64{}, logs: map[string]int{}, sets: map[string]int{},
			unknown: map[string]bool{}, expiring: map[string]expiring{},
		})
	}
	return w
}

func (w *workload) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// fill writes every plain key once.
func (w *workload) fill(ctx context.Context) {
	w.t.Helper()
	w.each(func(x *writer) {
		for first := 0; first < x.keys; first += 1000 {
			pipe := x.client.Pipeline()
			for i := first; i < min(first+1000, x.keys); i++ {
				key, value := x.key("k", i), x.value()
				pipe.Set(ctx, key, value, 0)
				x.values[key] = value
			}
			if _, err := pipe.Exec(ctx); err != nil {
				w.violation("fill: %v", err)
				return
			}
		}
	})
	w.check("after filling")
}

func (w *workload) each(f func(*writer)) {
	var group sync.WaitGroup
	for _, x := range w.writers {
		group.Go(func() { f(x) })
	}
	group.Wait()
}

// run starts the writers; the returned function stops them and waits.
func (w *workload) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, x := range w.writers {
		group.Go(func() {
			for ctx.Err() == nil {
				x.step(context.WithoutCancel(ctx))
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// check fails the test if anything was wrong so far.
func (w *workload) check(when string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count > 0 {
		w.t.Fatalf("%s: %d violations in %d commands; the first: %v", when, w.count, w.ops.Load(), w.faults)
	}
	if n := w.errs.Load(); n > 0 && !w.allowErrors {
		w.t.Fatalf("%s: %d error replies in %d commands; the first: %s", when, n, w.ops.Load(), w.firstE)
	}
}

func (x *writer) key(kind string, i int) string {
	return "w" + strconv.Itoa(x.id) + ":" + kind + strconv.Itoa(i)
}

func (x *writer) anyKey() string { return x.key("k", x.rng.IntN(x.keys)) }

func (x *writer) value() string { return strconv.FormatUint(x.rng.Uint64(), 36) }

// failed notes an error reply; keys are those it leaves unknown.
func (x *writer) failed(err error, keys ...string) {
	x.w.errs.Add(1)
	x.w.mu.Lock()
	if x.w.firstE == "" {
		x.w.firstE = err.Error()
	}
	x.w.mu.Unlock()
	for _, key := range keys {
		x.unknown[key] = true
	}
}

func (x *writer) step(ctx context.Context) {
	switch x.rng.IntN(9) {
	case 0:
		x.increment(ctx)
	case 1:
		x.push(ctx)
	case 2:
		x.add(ctx)
	case 3:
		x.setExpiring(ctx)
	case 4:
		x.checkExpiring(ctx)
	case 5:
		x.mset(ctx)
	case 6:
		x.mget(ctx)
	case 7:
		x.pipeline(ctx)
	case 8:
		x.incrementShared(ctx)
	}
}

func (x *writer) increment(ctx context.Context) {
	key := x.key("c", x.rng.IntN(500))
	got, err := x.client.Incr(ctx, key).Result()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err, key)
		return
	}
	x.checkCounter(key, got)
}

func (x *writer) checkCounter(key string, got int64) {
	if want := x.counters[key] + 1; got != want && (!x.unknown[key] || got < want) {
		x.w.violation("INCR %s gave %d, want %d", key, got, want)
	}
	delete(x.unknown, key)
	x.counters[key] = got
}

func (x *writer) incrementShared(ctx context.Context) {
	got, err := x.client.Incr(ctx, sharedKey).Result()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err)
		return
	}
	x.shared = append(x.shared, got)
}

func (x *writer) push(ctx context.Context) {
	key := x.key("l", x.rng.IntN(200))
	next := x.logs[key]
	got, err := x.client.RPush(ctx, key, next).Result()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err, key)
		x.logs[key] = next + 1 // never push the same number twice
		return
	}
	if !x.unknown[key] && got != int64(next)+1 {
		x.w.violation("RPUSH %s gave length %d, want %d", key, got, next+1)
	}
	x.logs[key] = next + 1
}

func (x *writer) add(ctx context.Context) {
	key := x.key("s", x.rng.IntN(200))
	got, err := x.client.SAdd(ctx, key, x.sets[key]).Result()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err, key)
	} else if got != 1 {
		x.w.violation("SADD %s of a new member gave %d", key, got)
	}
	x.sets[key]++
}

func (x *writer) setExpiring(ctx context.Context) {
	key, value := x.key("t", x.rng.IntN(1000)), x.value()
	ttl := time.Duration(1+x.rng.IntN(60)) * time.Second
	err := x.client.Set(ctx, key, value, ttl).Err()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err, key)
		delete(x.expiring, key)
		return
	}
	x.expiring[key] = expiring{value, time.Now().Add(ttl)}
}

func (x *writer) checkExpiring(ctx context.Context) {
	key := x.key("t", x.rng.IntN(1000))
	want, known := x.expiring[key]
	if !known {
		return
	}
	before := time.Now()
	got, err := x.client.Get(ctx, key).Result()
	x.w.ops.Add(1)
	switch {
	case errors.Is(err, redis.Nil):
		if time.Now().Before(want.deadline.Add(-expirySlack)) {
			x.w.violation("GET %s gave nil %s before it expires", key, time.Until(want.deadline))
		}
	case err != nil:
		x.failed(err)
	case before.After(want.deadline.Add(expirySlack)):
		x.w.violation("GET %s gave a value %s after it expired", key, time.Since(want.deadline))
	case got != want.value:
		x.w.violation("GET %s gave %q, want %q", key, got, want.value)
	}
}

func (x *writer) mset(ctx context.Context) {
	set := map[string]string{}
	for range 8 {
		set[x.anyKey()] = x.value()
	}
	err := x.client.MSet(ctx, set).Err()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err, slices.Collect(maps.Keys(set))...)
		return
	}
	for key, value := range set {
		x.wrote(key, value)
	}
}

func (x *writer) wrote(key, value string) {
	x.values[key] = value
	delete(x.unknown, key)
}

func (x *writer) mget(ctx context.Context) {
	keys := make([]string, 8)
	for i := range keys {
		keys[i] = x.anyKey()
	}
	got, err := x.client.MGet(ctx, keys...).Result()
	x.w.ops.Add(1)
	if err != nil {
		x.failed(err)
		return
	}
	for i, key := range keys {
		x.checkValue("MGET", key, got[i])
	}
}

func (x *writer) checkValue(command, key string, got any) {
	if got != x.values[key] && !x.unknown[key] {
		x.w.violation("%s %s gave %v, want %q", command, key, got, x.values[key])
	}
}

// pipeline sends 16 commands at once and checks each reply.
func (x *writer) pipeline(ctx context.Context) {
	pipe := x.client.Pipeline()
	checks := make([]func(error), 0, 16)
	model := map[string]string{} // what this pipeline wrote so far
	for range 16 {
		key := x.anyKey()
		switch x.rng.IntN(3) {
		case 0:
			value := x.value()
			cmd := pipe.Set(ctx, key, value, 0)
			model[key] = value
			checks = append(checks, func(error) {
				if cmd.Err() != nil {
					x.failed(cmd.Err(), key)
				} else {
					x.wrote(key, value)
				}
			})
		case 1:
			cmd := pipe.Get(ctx, key)
			checks = append(checks, func(error) {
				if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
					x.failed(cmd.Err())
				} else {
					x.checkValue("GET", key, cmd.Val())
				}
			})
		case 2:
			counter := x.key("c", x.rng.IntN(500))
			cmd := pipe.Incr(ctx, counter)
			checks = append(checks, func(error) {
				if cmd.Err() != nil {
					x.failed(cmd.Err(), counter)
				} else {
					x.checkCounter(counter, cmd.Val())
				}
			})
		}
	}
	_, err := pipe.Exec(ctx)
	x.w.ops.Add(16)
	for _, check := range checks {
		check(err)
	}
}

// verify reads everything back through the i-th proxy's client and compares.
// The writers must have stopped.
func (w *workload) verify(ctx context.Context) {
	w.t.Helper()
	w.each(func(x *writer) {
		// A new client: after dials that failed the old one repeats their error
		// for a while without trying.
		x.client = w.d.client(x.id)
		x.verify(ctx)
	})
	var all []int64
	for _, x := range w.writers {
		all = append(all, x.shared...)
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			w.violation("INCR %s gave %d twice", sharedKey, all[i])
		}
	}
	last, err := w.writers[0].client.Get(ctx, sharedKey).Int64()
	if err != nil {
		w.violation("GET %s: %v", sharedKey, err)
	}
	if n := int64(len(all)); last < n || last > n+w.errs.Load() {
		w.violation("%s is %d after %d acknowledged increments and %d errors", sharedKey, last, n, w.errs.Load())
	}
	w.check("after reading everything back")
	w.t.Logf("%d commands, %d error replies, 0 lost, 0 doubled, 0 wrong", w.ops.Load(), w.errs.Load())
}

func (x *writer) verify(ctx context.Context) {
	keys := slices.Collect(maps.Keys(x.values))
	for batch := range slices.Chunk(keys, 500) {
		got, err := x.client.MGet(ctx, batch...).Result()
		if err != nil {
			x.w.violation("read back: %v", err)
			return
		}
		for i, key := range batch {
			x.checkValue("MGET", key, got[i])
		}
	}
	for key, want := range x.counters {
		got, err := x.client.Get(ctx, key).Int64()
		if err != nil || got != want && (!x.unknown[key] || got < want) {
			x.w.violation("counter %s is %d (%v), want %d", key, got, err, want)
		}
	}
	for key, n := range x.logs {
		got, err := x.client.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			x.w.violation("LRANGE %s: %v", key, err)
			continue
		}
		if !x.unknown[key] && len(got) != n {
			x.w.violation("log %s has %d entries, want %d", key, len(got), n)
		}
		last := -1
		for _, text := range got {
			if seq, _ := strconv.Atoi(text); seq <= last || (!x.unknown[key] && seq != last+1) {
				x.w.violation("log %s has %d after %d", key, seq, last)
				break
			} else {
				last = seq
			}
		}
	}
	for key, n := range x.sets {
		got, err := x.client.SCard(ctx, key).Result()
		if err != nil || (!x.unknown[key] && got != int64(n)) || got > int64(n) {
			x.w.violation("set %s has %d members (%v), want %d", key, got, err, n)
		}
	}
}

// liveKeys is the number of keys that must exist, and how many more may.
func (w *workload) liveKeys() (sure, maybe int) {
	for _, x := range w.writers {
		all := map[string]bool{} // false: perhaps it is there
		for key := range x.expiring {
			all[key] = false
		}
		for _, keys := range []iter.Seq[string]{maps.Keys(x.values), maps.Keys(x.counters), maps.Keys(x.logs), maps.Keys(x.sets)} {
			for key := range keys {
				all[key] = true
			}
		}
		for key := range x.unknown {
			// A plain key was filled before. Of others the first write may have failed.
			if _, filled := x.values[key]; !filled {
				all[key] = false
			}
		}
		for _, there := range all {
			if there {
				sure++
			} else {
				maybe++
			}
		}
	}
	return sure + 1, maybe // + the shared counter
}
