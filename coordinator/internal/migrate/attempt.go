package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/internal/feed"
	"shardis/coordinator/internal/node"
	"shardis/coordinator/internal/wire"
	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	readyWithin   = 20 * time.Millisecond  // what remains to copy must take less before a hold
	acceptable    = 100 * time.Millisecond // or less than this, when writes keep it above for convergeFor
	convergeFor   = 5 * time.Second
	firstKeyCost  = 15 * time.Microsecond   // assumed until measured
	replicaBehind = 4 << 20                 // bytes the tail may be behind before it is waited for
	replicaWait   = 1500 * time.Millisecond // a replica that just came has to be acknowledged first
	replicaPoll   = 20 * time.Millisecond
	maxPages      = 2 // passes over a big key that keeps changing, before it counts as hot
)

// attempt is one try at the moves that leave one source. Its connections end
// with its context; so does everything it started.
type attempt struct {
	r    *Runner
	base context.Context // of the runner: not ended by a wish to cancel
	op   *operation
	w    *work
	id   string
	user string // mover's ACL user on the targets

	moves   []topo.MoveProgress // as they were; target i serves moves[i]
	route   *route
	targets []*target
	src     source
	names   *changed
	copier  *copier
	pace    *pacer

	keyCost time.Duration      // measured cost of copying one changed key
	pages   map[string]int     // how often a big key was copied in pages
	hot     map[string]bigName // big keys that change all the time: copied whole while held
	hotTook time.Duration      // the last time that was done
	missed  int                // holds that were too short for it
	slower  float64            // than estimated it was then; 0: not missed
	fenced  bool               // the mover's user is gone
}

// source is what the attempt reads.
type source struct {
	addr string // master
	// master is unbroken from attaching to the switch, so the process behind
	// it is the same; it reads changed keys, and asks for positions.
	master *wire.Conn
	bulk   *wire.Conn // of a replica in sync where there is one, else of the master
	tail   *feed.Tail
	onRepl bool // tail and bulk are a replica's
}

// attempt makes one try at w. nil means that all its moves were switched or
// parked.
func (r *Runner) attempt(ctx context.Context, o *operation, w *work) (err error) {
	base := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel(nil)
	helpers.Go(func() { // a wish to cancel ends the attempt wherever it is
		for ctx.Err() == nil {
			changes := o.changes()
			if o.wish() == topo.WishCancel {
				cancel(errCancelled)
				return
			}
			select {
			case <-ctx.Done():
			case <-changes:
			}
		}
	})
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, store.ErrNotLeader) {
			err = cause
		}
	}()
	moves := o.moves(w.moves)
	if err := r.check(ctx, w, moves); err != nil {
		return err
	}
	a := &attempt{
		r: r, base: base, op: o, w: w, id: topo.NewID("a"), moves: moves, pace: newPacer(o),
		keyCost: firstKeyCost, pages: map[string]int{}, hot: map[string]bigName{},
	}
	defer a.close()
	if err := a.prepare(ctx); err != nil {
		return err
	}
	if err := a.openSource(ctx); err != nil {
		return err
	}
	helpers.Go(func() { cancel(again("replication log of group %s: %w", w.source, a.src.tail.Run(ctx))) })
	usual := a.look(ctx, probeFirst)
	helpers.Go(func() { a.watchNodes(ctx, usual) })
	if err := a.copyAll(ctx); err != nil {
		return err
	}
	return a.finish(ctx)
}

func (a *attempt) close() {
	for _, t := range a.targets {
		t.close()
	}
	if a.src.master != nil {
		_ = a.src.master.Close()
	}
	if a.src.bulk != nil {
		_ = a.src.bulk.Close()
	}
}

// addrs are the masters that take part.
func (a *attempt) addrs() []string {
	addrs := []string{a.src.addr}
	for _, t := range a.targets {
		if !slices.Contains(addrs, t.conn.Addr()) {
			addrs = append(addrs, t.conn.Addr())
		}
	}
	return addrs
}

func (a *attempt) slots() topo.SlotSet {
	var all topo.SlotSet
	for _, m := range a.moves {
		all = all.Union(m.Slots)
	}
	return all
}

func (a *attempt) record() topo.Attempt {
	rec := topo.Attempt{
		Format: topo.Format, ID: a.id, Operation: a.op.id, Source: a.w.source,
		Slots: a.slots(), User: topo.MoverUser(a.id), StartedAt: time.Now().UTC(),
	}
	for _, m := range a.moves {
		if !slices.Contains(rec.Targets, m.To) {
			rec.Targets = append(rec.Targets, m.To)
		}
	}
	return rec
}

// prepare fences earlier attempts, connects to the targets, and removes from
// them whatever they have of the moving slots.
func (a *attempt) prepare(ctx context.Context) error {
	err := a.op.update(ctx, func(op *topo.Operation) {
		for _, i := range a.w.moves {
			m := &op.Moves[i]
			m.Attempt, m.KeysDone, m.KeysTotal, m.BytesDone = a.id, 0, 0, 0
			m.Attempts++
		}
	}, func(txn *store.Txn, before *topo.Operation) {
		for _, m := range a.moves {
			if m.Attempt != "" {
				txn.Delete(store.PrefixAttempts + m.Attempt)
			}
		}
		txn.Put(store.PrefixAttempts+a.id, a.record())
	})
	if err != nil {
		return err
	}
	if err := a.op.enter(ctx, a.w, topo.MovePreparing, nil); err != nil {
		return err
	}
	t, _ := a.r.hand.Topology()
	a.route = newRoute(t.Scheme)
	for i, m := range a.moves {
		a.route.set(m.Slots, i)
	}
	a.names = newChanged(a.route)
	if err := a.openTargets(ctx, t); err != nil {
		return again("prepare targets: %w", err)
	}
	a.copier = &copier{route: a.route, targets: a.targets, pace: a.paced}
	for i := range a.targets {
		if err := a.clean(ctx, i); err != nil {
			return again("remove old copies: %w", err)
		}
	}
	return nil
}

// openTargets fences the movers of other attempts on each target, makes the
// user of this one, and connects. When it is called again, after this mover's
// user was removed too, each target must be the very process it was.
func (a *attempt) openTargets(ctx context.Context, t *topo.Topology) error {
	login := topo.Secret{User: topo.MoverUser(a.id), Password: rand.Text()}
	a.user = login.User
	before := a.targets
	a.targets = nil
	done := map[string]bool{}
	for i, m := range a.moves {
		g := t.Group(m.To)
		if g == nil {
			return fmt.Errorf("group %s is not there any more", m.To)
		}
		addr := g.Master()
		admin, err := a.r.pool.Get(ctx, addr)
		if err != nil {
			return err
		}
		if !done[addr] {
			if err := fenceMovers(ctx, admin); err != nil {
				return err
			}
			if err := admin.SetUser(ctx, login.User, node.HashPassword(login.Password), node.MoverRules...); err != nil {
				return err
			}
			done[addr] = true
		}
		opened, err := openTarget(ctx, m.To, addr, login)
		if err != nil {
			return err
		}
		a.targets = append(a.targets, opened)
		var was *target
		if before != nil {
			was = before[i]
		}
		if err := opened.identify(ctx, was); err != nil {
			return err
		}
	}
	return nil
}

// fenceMovers removes the users of all attempts: attempts are made one at a
// time, so these are of earlier ones.
func fenceMovers(ctx context.Context, admin *node.Admin) error {
	users, err := admin.Users(ctx)
	if err != nil {
		return err
	}
	users = slices.DeleteFunc(users, func(u string) bool { return !strings.HasPrefix(u, topo.MoverUser("")) })
	_, err = admin.DeleteUser(ctx, users...)
	return err
}

// clean removes every key of move i's slots from its target.
func (a *attempt) clean(ctx context.Context, i int) error {
	t := a.targets[i]
	dbs, err := t.databases(ctx)
	if err != nil {
		return err
	}
	_, err = removeKeys(ctx, t, dbs, func(key []byte) bool { return a.route.of(key) == i }, a.pace.wait)
	return err
}

// openSource attaches the feed and chooses where to read.
func (a *attempt) openSource(ctx context.Context) error {
	t, _ := a.r.hand.Topology()
	g := t.Group(a.w.source)
	if g == nil {
		return refuse("group %s is not there any more", a.w.source)
	}
	a.src.addr = g.Master()
	var err error
	if a.src.master, err = a.dial(ctx, a.src.addr); err != nil {
		return again("source: %w", err)
	}
	admin, err := a.r.pool.Get(ctx, a.src.addr)
	if err != nil {
		return again("source: %w", err)
	}
	info, err := admin.Info(ctx, "replication")
	if err != nil {
		return again("source: %w", err)
	}
	from := a.src.addr
	if replica := a.replicaInSync(ctx, g, info); replica != "" {
		from, a.src.onRepl = replica, true
	} else if min := info.Int("min_slaves_good_slaves"); info["min_slaves_good_slaves"] != "" {
		// The tail would be counted as a good replica of the master.
		return again("group %s has min-replicas-to-write set and no replica in sync to read from (%d good)", a.w.source, min)
	}
	a.src.tail, err = feed.Attach(ctx, feed.Config{
		Addr: from, Named: a.names.add, Log: a.r.log,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return a.r.pool.Dial(ctx, addr) },
	})
	if err != nil {
		return again("source: %w", err)
	}
	if a.src.bulk, err = a.dial(ctx, from); err != nil {
		return again("source: %w", err)
	}
	if err := a.sameSource(); err != nil {
		return err
	}
	a.r.log.Info("reading a source", "operation", a.op.id, "attempt", a.id, "group", a.w.source, "node", from, "offset", a.src.tail.Start())
	return nil
}

func (a *attempt) dial(ctx context.Context, addr string) (*wire.Conn, error) {
	conn, err := a.r.pool.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return wire.New(ctx, addr, conn), nil
}

// replicaInSync picks a replica of the source's master to read from, "" if
// there is none: one that soon has what the master has now.
func (a *attempt) replicaInSync(ctx context.Context, g *topo.Group, master node.Info) string {
	for _, n := range g.Nodes {
		if n.Role != topo.Replica {
			continue
		}
		for deadline := time.Now().Add(replicaWait); time.Now().Before(deadline); {
			admin, err := a.r.pool.Get(ctx, n.Addr)
			if err != nil {
				break
			}
			info, err := admin.Info(ctx, "replication", "persistence")
			if err != nil || info["role"] != "slave" || info["master_link_status"] != "up" || info["loading"] != "0" ||
				info["master_sync_in_progress"] != "0" || info["master_replid"] != master["master_replid"] {
				break
			}
			if info.Int("slave_repl_offset") >= master.Int("master_repl_offset") {
				return n.Addr
			}
			if sleep(ctx, replicaPoll) != nil {
				return ""
			}
		}
	}
	return ""
}

// sameSource makes sure that the master is still one, in the history the tail
// follows, and that the topology still says so.
func (a *attempt) sameSource() error {
	t, _ := a.r.hand.Topology()
	if g := t.Group(a.w.source); g == nil || g.Master() != a.src.addr {
		return again("the master of group %s changed", a.w.source)
	}
	for _, target := range a.targets {
		if g := t.Group(target.group); g == nil || g.Master() != target.conn.Addr() {
			return again("the master of group %s changed", target.group)
		}
	}
	info, err := a.src.master.Do("INFO", "replication")
	if err != nil {
		return again("source: %w", err)
	}
	text := info.Text()
	if !strings.Contains(text, "role:master\r\n") || !strings.Contains(text, "master_replid:"+a.src.tail.Lineage()+"\r\n") {
		return again("node %s is no longer the master it was, or its replication history changed", a.src.addr)
	}
	return nil
}

// position is the master's place in its replication log.
func (a *attempt) position() (int64, error) {
	role, err := a.src.master.Do("ROLE")
	if err != nil {
		return 0, again("source: %w", err)
	}
	if len(role.Items) < 2 || role.Items[0].Text() != "master" {
		return 0, again("node %s is no master any more", a.src.addr)
	}
	return role.Items[1].Int, nil
}

// copyAll copies every key of the moving slots once, big ones last.
func (a *attempt) copyAll(ctx context.Context) error {
	if err := a.op.enter(ctx, a.w, topo.MoveCopying, nil); err != nil {
		return err
	}
	dbs, err := databases(a.src.bulk)
	if err != nil {
		return again("source: %w", err)
	}
	if err := a.estimate(ctx, dbs); err != nil {
		return err
	}
	if a.src.onRepl {
		a.copier.later = func(name string) { a.names.put([]string{name}) }
	}
	stop := a.startReport(ctx)
	defer stop()
	var big []bigName
	for db := range dbs {
		names, err := a.copier.scan(ctx, a.src.bulk, db)
		if err != nil {
			return again("copy: %w", err)
		}
		big = append(big, names...)
	}
	for _, k := range big {
		if err := a.copier.paged(ctx, a.src.bulk, k); err != nil {
			return again("copy: %w", err)
		}
		a.pages[k.name]++
	}
	if err := a.barrier(); err != nil {
		return again("copy: %w", err)
	}
	stop()
	a.copier.later = nil
	if a.src.onRepl && a.src.tail.Breaks() > 0 {
		return again("replica %s of group %s was interrupted while it was read", a.src.bulk.Addr(), a.w.source)
	}
	return a.op.update(ctx, func(op *topo.Operation) {
		for n, i := range a.w.moves {
			m := &op.Moves[i]
			m.KeysDone, m.BytesDone = a.targets[n].keys.Load(), a.targets[n].bytes.Load()
			m.KeysTotal = m.KeysDone
		}
	}, nil)
}

// estimate stores how many keys there will be to copy, by share of slots.
func (a *attempt) estimate(ctx context.Context, dbs map[int]int64) error {
	var keys int64
	for _, n := range dbs {
		keys += n
	}
	t, _ := a.r.hand.Topology()
	owned := max(1, t.SlotsOf(a.w.source).Len())
	return a.op.update(ctx, func(op *topo.Operation) {
		for _, i := range a.w.moves {
			m := &op.Moves[i]
			m.KeysTotal = keys * int64(m.Slots.Len()) / int64(owned)
		}
	}, nil)
}

// catchUp reads again what the feed named, until what remains is little.
func (a *attempt) catchUp(ctx context.Context) error {
	a.copier.pace = a.waitPaused
	begun := time.Now()
	for {
		if err := a.sameSource(); err != nil {
			return err
		}
		if a.names.overflowed() {
			return again("more than %d keys changed while the operation was paused", maxChanged)
		}
		enough := readyWithin
		if time.Since(begun) > convergeFor {
			enough = acceptable
		}
		left := time.Duration(a.names.len()) * a.keyCost
		at, err := a.position()
		if err != nil {
			return err
		}
		caughtUp := a.src.tail.Offset() >= at-replicaBehind
		big := a.names.hasBig(a.pages, a.hot)
		if left < enough && caughtUp && !big {
			return a.waitPaused(ctx, 0)
		}
		if left < enough && !big {
			if err := a.src.tail.Wait(ctx, at); err != nil {
				return again("catch up: %w", err)
			}
			continue
		}
		if err := a.copyRound(ctx); err != nil {
			return err
		}
	}
}

// copyRound copies what was named so far, big keys in pages. Big keys that go
// on changing are put aside as hot.
func (a *attempt) copyRound(ctx context.Context) error {
	_, big, err := a.copyNamed(ctx, a.takeNames(nil), false)
	if err != nil {
		return err
	}
	for _, k := range big {
		if a.pages[k.name]++; a.pages[k.name] > maxPages {
			a.hot[k.name] = k
			continue
		}
		if err := a.copier.paged(ctx, a.src.master, k); err != nil {
			return again("copy changed keys: %w", err)
		}
	}
	return nil
}

func (a *attempt) waitPaused(ctx context.Context, _ int) error {
	if a.op.wish() == topo.WishPause {
		return a.op.paused(ctx)
	}
	return ctx.Err()
}

// copyNamed reads keys again from the master, in every database they may be in.
// It returns how many exist, and, unless whole is set, the big ones among them,
// which were not copied.
func (a *attempt) copyNamed(ctx context.Context, names []string, whole bool) (found int, big []bigName, err error) {
	if len(names) == 0 {
		return 0, nil, nil
	}
	begun := time.Now()
	dbs, err := databases(a.src.master)
	if err != nil {
		return 0, nil, again("source: %w", err)
	}
	for _, t := range a.targets {
		for db := range t.wrote {
			dbs[db] += 0
		}
	}
	for db := range dbs {
		n, more, err := a.copier.reread(ctx, a.src.master, db, names, whole)
		if err != nil {
			return found, big, again("copy changed keys: %w", err)
		}
		found += n
		big = append(big, more...)
	}
	if err := a.barrier(); err != nil {
		return found, big, again("copy changed keys: %w", err)
	}
	if len(names) >= 100 {
		a.keyCost = (a.keyCost + time.Since(begun)/time.Duration(len(names))) / 2
	}
	return found + len(big), big, nil
}

// barrier returns once everything sent to the targets was executed.
func (a *attempt) barrier() error {
	for _, t := range a.targets {
		if err := t.barrier(); err != nil {
			return err
		}
	}
	return nil
}

// takeNames hands out the names to copy, without those put aside as hot.
func (a *attempt) takeNames(only topo.SlotSet) []string {
	return slices.DeleteFunc(a.names.take(only), func(n string) bool { _, hot := a.hot[n]; return hot })
}

// databases lists the databases of a node that have keys, with their number.
func databases(conn *wire.Conn) (map[int]int64, error) {
	info, err := conn.Do("INFO", "keyspace")
	if err != nil {
		return nil, err
	}
	return keyspace(info.Text()), nil
}

func (t *target) databases(ctx context.Context) (map[int]int64, error) {
	info, err := t.ask(ctx, "INFO", "keyspace")
	if err != nil {
		return nil, err
	}
	return keyspace(info.Text()), nil
}

func keyspace(info string) map[int]int64 {
	dbs := map[int]int64{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":keys=")
		count, _, _ := strings.Cut(value, ",")
		db, err := strconv.Atoi(strings.TrimPrefix(name, "db"))
		keys, err2 := strconv.ParseInt(count, 10, 64)
		if err == nil && err2 == nil {
			dbs[db] = keys
		}
	}
	return dbs
}
