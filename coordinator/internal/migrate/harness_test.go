package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"shardis/coordinator/internal/handover"
	"shardis/coordinator/internal/node"
	"shardis/coordinator/localredis"
	"shardis/coordinator/store"
	"shardis/coordinator/store/embedded"
	"shardis/coordinator/topo"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("go.etcd.io/etcd/server/v3/embed.(*Etcd).errHandler"),
		goleak.IgnoreAnyFunction("go.etcd.io/bbolt.(*DB).freepages.func2"),
	)
}

const adminPassword = "admin-secret"

// world is an etcd, some groups of real servers, and one stand-in for proxies.
type world struct {
	t      testing.TB
	ctx    context.Context
	st     *store.Store
	log    *slog.Logger
	groups map[string][]*localredis.Process // master first
	extra  []string
	term   int
}

// newWorld starts masters g1, g2, …, with so many replicas each, and gives all
// slots to g1.
func newWorld(t testing.TB, masters, replicas int, extra ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "shardis-migrate-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	etcd, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(dir, "etcd"), Client: "127.0.0.1:0", Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	st, err := store.Open(store.Config{Endpoints: []string{etcd.Endpoint()}, Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w := &world{t: t, ctx: t.Context(), st: st, groups: map[string][]*localredis.Process{}, log: slog.New(slog.DiscardHandler), extra: extra}
	if testing.Verbose() {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	topology := topo.Topology{Format: topo.Format, Cluster: "test", History: "h", Scheme: topo.CRC16, Databases: 16, Epoch: 1}
	for i := range masters {
		id := fmt.Sprintf("g%d", i+1)
		group := topo.Group{ID: id}
		for n := range replicas + 1 {
			cfg := localredis.Config{
				Dir: filepath.Join(dir, fmt.Sprintf("%s-%d", id, n)), Password: adminPassword, MasterAuth: adminPassword,
				Extra: append([]string{"enable-debug-command local", "repl-diskless-sync-delay 0", "repl-diskless-sync yes"}, extra...),
			}
			role := topo.Master
			if n > 0 {
				cfg.ReplicaOf, role = w.groups[id][0].Addr, topo.Replica
			}
			p := localredis.StartTest(t, cfg)
			w.groups[id] = append(w.groups[id], p)
			group.Nodes = append(group.Nodes, topo.Node{Addr: p.Addr, Role: role})
		}
		topology.Groups = append(topology.Groups, group)
	}
	topology.Slots = []topo.Run{{First: 0, Last: 16383, Group: "g1"}}
	if _, err := st.Begin().Put(store.KeyTopology, &topology).Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	for _, nodes := range w.groups {
		for _, replica := range nodes[1:] {
			w.eventually("replica in sync", func() bool {
				return strings.Contains(w.admin(replica.Addr, 0).Info(w.ctx, "replication").Val(), "master_link_status:up")
			})
		}
	}
	return w
}

func (w *world) master(group string) string { return w.groups[group][0].Addr }

// admin is a client of one node that may do everything.
func (w *world) admin(addr string, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Password: adminPassword, DB: db, Protocol: 2, DisableIdentity: true})
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	w.within(30*time.Second, what, cond)
}

func (w *world) within(d time.Duration, what string, cond func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(d)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", d, what)
		}
		<-tick.C
	}
}

func (w *world) topology() *topo.Topology {
	w.t.Helper()
	item, err := w.st.Get(w.ctx, store.KeyTopology)
	if err != nil {
		w.t.Fatal(err)
	}
	t, err := topo.DecodeTopology(item.Value)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// leader is one coordinator that leads.
type leader struct {
	w      *world
	lead   *store.Leadership
	pool   *node.Pool
	hand   *handover.Manager
	runner *Runner
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// newLeader waits until nobody else leads.
func (w *world) newLeader(prepare func(*Runner)) *leader {
	w.t.Helper()
	w.term++
	lead, err := w.st.Campaign(w.ctx, fmt.Sprintf("c%d", w.term), 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	l := &leader{w: w, lead: lead}
	l.ctx, l.cancel = context.WithCancel(w.ctx)
	l.pool = node.NewPool(node.PoolConfig{
		Term: lead.Term(), Check: lead.Check, Log: w.log,
		Secret: func(context.Context, string) (topo.Secret, error) { return topo.Secret{Password: adminPassword}, nil },
	})
	l.hand = handover.New(w.st, lead, l.pool, w.log)
	l.runner = New(w.st, lead, l.hand, l.pool, w.log)
	l.runner.PurgeDelay = time.Hour
	if prepare != nil {
		prepare(l.runner)
	}
	l.done.Go(func() { _ = l.hand.Run(l.ctx) })
	l.done.Go(func() { _ = l.runner.RunPurges(l.ctx) })
	if err := l.hand.Wait(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.stop)
	return l
}

// stop ends the leader as a crash would: nothing is tidied up; its lease ends
// at once only to save the test's time.
func (l *leader) stop() {
	l.cancel()
	l.done.Wait()
	l.pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.lead.Resign(ctx)
}

// submit stores an operation.
func (w *world) submit(id string, moves ...topo.Move) {
	w.t.Helper()
	op := topo.Operation{Format: topo.Format, ID: id, Kind: topo.OpMigrate, Goal: topo.GoalMove, State: topo.OpQueued, CreatedAt: time.Now()}
	for _, m := range moves {
		op.Moves = append(op.Moves, topo.MoveProgress{Move: m, State: topo.MovePending})
	}
	if _, err := w.st.Begin().Put(store.PrefixOperations+id, op).Commit(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) operation(id string) topo.Operation {
	w.t.Helper()
	op, _, err := store.Load[topo.Operation](w.ctx, w.st, store.PrefixOperations+id)
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

func (w *world) control(id string, c topo.Control) {
	w.t.Helper()
	c.Format, c.By = topo.Format, "tester"
	if _, err := w.st.Begin().Put(store.PrefixControls+id, c).Commit(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// start runs an operation; the channel gives what Run returned.
func (l *leader) start(id string) <-chan error {
	out := make(chan error, 1)
	l.done.Go(func() { out <- l.runner.Run(l.ctx, id) })
	return out
}

func slots(first, last topo.Slot) topo.SlotSet { return topo.SlotSet{{First: first, Last: last}} }

// wire dials as the administrator, for tests of the lower layers.
func (w *world) secret() topo.Secret { return topo.Secret{Password: adminPassword} }

// door stands in for a proxy: it is admitted under its own user, applies each
// topology, keeps commands for held slots waiting, and reports what it drained.
type door struct {
	w        *world
	id, inc  string
	password string
	user     string

	mu       sync.Mutex
	changed  chan struct{}
	topology *topo.Topology
	inflight map[string]map[topo.Epoch]int // requests by node address and the epoch they began in
	clients  map[string]*redis.Client
	closed   bool

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (w *world) newDoor(id string) *door {
	w.t.Helper()
	d := &door{w: w, id: id, inc: "i1", password: rand.Text(), changed: make(chan struct{}), inflight: map[string]map[topo.Epoch]int{}, clients: map[string]*redis.Client{}}
	d.user = topo.ProxyUser(d.id, d.inc)
	cred := topo.Credential{Format: topo.Format, ID: id, Incarnation: d.inc, PasswordHash: node.HashPassword(d.password)}
	if _, err := w.st.Begin().Put(store.PrefixCredentials+id, cred).Commit(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(w.ctx)
	lease, err := w.st.NewLease(ctx, 10*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.st.Begin().PutLease(store.PrefixProxies+id, d.record(), lease).Commit(ctx); err != nil {
		w.t.Fatal(err)
	}
	d.done.Go(func() { d.follow(ctx) })
	d.done.Go(func() { d.tell(ctx, lease) })
	w.t.Cleanup(d.close)
	w.eventually("proxy admitted", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.topology != nil && d.topology.Member(id) != nil
	})
	return d
}

func (d *door) close() {
	d.cancel()
	d.mu.Lock()
	d.closed = true
	d.poke()
	clients := d.clients
	d.clients = map[string]*redis.Client{}
	d.mu.Unlock()
	d.done.Wait()
	for _, c := range clients {
		_ = c.Close()
	}
}

func (d *door) poke() { close(d.changed); d.changed = make(chan struct{}) }

func (d *door) follow(ctx context.Context) {
	for batch := range d.w.st.Watch(ctx, store.KeyTopology) {
		for _, item := range batch.Puts {
			t, err := topo.DecodeTopology(item.Value)
			if err != nil {
				continue
			}
			d.mu.Lock()
			if d.topology == nil || t.Epoch > d.topology.Epoch {
				d.topology = t
				d.poke()
			}
			d.mu.Unlock()
		}
	}
}

// record is what the door says of itself; mu is held or nobody knows it yet.
func (d *door) record() topo.ProxyRecord {
	r := topo.ProxyRecord{Format: topo.Format, ID: d.id, Incarnation: d.inc}
	if t := d.topology; t != nil {
		r.AppliedEpoch = t.Epoch
		if t.Hold != nil {
			r.AppliedHold = t.Hold.ID
			busy := 0
			for _, run := range t.Slots {
				if t.Hold.Slots.Overlaps(topo.SlotSet{{First: run.First, Last: run.Last}}) {
					for began, n := range d.inflight[t.Group(run.Group).Master()] {
						if began < t.Epoch {
							busy += n
						}
					}
				}
			}
			if busy == 0 {
				r.DrainedHold = t.Hold.ID
			}
		}
	}
	return r
}

// tell keeps the record current.
func (d *door) tell(ctx context.Context, lease *store.Lease) {
	var last topo.ProxyRecord
	for ctx.Err() == nil {
		d.mu.Lock()
		changed, rec := d.changed, d.record()
		d.mu.Unlock()
		if rec.AppliedEpoch != last.AppliedEpoch || rec.DrainedHold != last.DrainedHold || rec.AppliedHold != last.AppliedHold {
			if _, err := d.w.st.Begin().PutLease(store.PrefixProxies+d.id, rec, lease).Commit(ctx); err == nil {
				last = rec
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

var errMoved = errors.New("the slot has another owner now")

// do runs f with a client of the node that owns key's slot, as a proxy would:
// not while the slot is held. With only set it fails once the owner is another.
func (d *door) do(key string, db int, only string, f func(c *redis.Client) error) error {
	slot := topo.CRC16.SlotOf([]byte(key))
	d.mu.Lock()
	for !d.closed && d.topology.Hold != nil && d.topology.Hold.Slots.Contains(slot) {
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-d.w.ctx.Done():
			return d.w.ctx.Err()
		}
		d.mu.Lock()
	}
	owner := d.topology.Owner(slot)
	if d.closed || only != "" && owner != only {
		d.mu.Unlock()
		return errMoved
	}
	addr := d.topology.Group(owner).Master()
	id := fmt.Sprintf("%s/%d", addr, db)
	c := d.clients[id]
	if c == nil {
		c = redis.NewClient(&redis.Options{
			Addr: addr, Username: d.user, Password: d.password, DB: db, Protocol: 2, DisableIdentity: true,
			MaxRetries: -1, ReadTimeout: 20 * time.Second, PoolSize: 64,
		})
		d.clients[id] = c
	}
	if d.inflight[addr] == nil {
		d.inflight[addr] = map[topo.Epoch]int{}
	}
	epoch := d.topology.Epoch
	d.inflight[addr][epoch]++
	d.mu.Unlock()
	err := f(c)
	d.mu.Lock()
	d.inflight[addr][epoch]--
	if epoch < d.topology.Epoch && d.inflight[addr][epoch] == 0 {
		d.poke()
	}
	d.mu.Unlock()
	return err
}

// keysIn lists the keys of some slots on a node.
func (w *world) keysIn(addr string, db int, set topo.SlotSet) []string {
	w.t.Helper()
	all, err := w.admin(addr, db).Keys(w.ctx, "*").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(k string) bool { return !set.Contains(topo.CRC16.SlotOf([]byte(k))) })
}
