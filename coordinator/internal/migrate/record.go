package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

const (
	maxNotes      = 100
	progressEvery = 500 * time.Millisecond // at most two writes a second
	storeRetry    = 300 * time.Millisecond
)

// operation is a running operation: what is stored of it, and what people want
// of it. The leader alone writes the record, and only from here.
type operation struct {
	r  *Runner
	id string

	mu sync.Mutex // held while op is stored
	op topo.Operation

	wishes  sync.Mutex // guards these two; never held during I/O
	control topo.Control
	poked   chan struct{} // closed and replaced when control changes

	stop context.CancelFunc
	done chan struct{}
}

// work is what one attempt is to do: moves that leave one source.
type work struct {
	source string // "": the slots have no owner
	moves  []int  // indexes into Operation.Moves
}

func (r *Runner) open(ctx context.Context, id string) (*operation, error) {
	op, _, err := store.Load[topo.Operation](ctx, r.st, store.PrefixOperations+id)
	if err != nil {
		return nil, fmt.Errorf("run operation %s: %w", id, err)
	}
	if op.Kind != topo.OpMigrate {
		return nil, fmt.Errorf("run operation %s: it is of kind %s", id, op.Kind)
	}
	o := &operation{r: r, id: id, op: op, poked: make(chan struct{}), done: make(chan struct{})}
	control, _, err := store.Load[topo.Control](ctx, r.st, store.PrefixControls+id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("run operation %s: %w", id, err)
	}
	o.control = control
	watch, stop := context.WithCancel(ctx)
	o.stop = stop
	go func() {
		defer close(o.done)
		o.follow(watch)
	}()
	return o, nil
}

func (o *operation) close() {
	o.stop()
	<-o.done
}

// follow keeps control as people set it.
func (o *operation) follow(ctx context.Context) {
	for batch := range o.r.st.Watch(ctx, store.PrefixControls+o.id) {
		for _, item := range batch.Puts {
			var c topo.Control
			if item.Key != store.PrefixControls+o.id || item.Decode(&c) != nil {
				continue
			}
			o.wishes.Lock()
			o.control = c
			close(o.poked)
			o.poked = make(chan struct{})
			o.wishes.Unlock()
		}
	}
}

func (o *operation) finished() bool {
	if o.op.State.Finished() {
		o.close()
		return true
	}
	return false
}

func (o *operation) wish() topo.Wish {
	o.wishes.Lock()
	defer o.wishes.Unlock()
	return o.control.Wish
}

func (o *operation) limits() topo.Limits {
	o.wishes.Lock()
	defer o.wishes.Unlock()
	return o.control.Limits
}

func (o *operation) allowed(key string) bool {
	o.wishes.Lock()
	defer o.wishes.Unlock()
	return slices.Contains(o.control.Allow, key)
}

// by is who set the present wish.
func (o *operation) by() string {
	o.wishes.Lock()
	defer o.wishes.Unlock()
	return o.control.By
}

// changes is closed when people want something else.
func (o *operation) changes() <-chan struct{} {
	o.wishes.Lock()
	defer o.wishes.Unlock()
	return o.poked
}

// moves gives copies of some moves.
func (o *operation) moves(indexes []int) []topo.MoveProgress {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]topo.MoveProgress, len(indexes))
	for i, n := range indexes {
		all[i] = o.op.Moves[n]
	}
	return all
}

// next picks the source to work on: that of the first move not yet switched,
// with all moves that leave it. nil when there is none.
func (o *operation) next() *work {
	o.mu.Lock()
	defer o.mu.Unlock()
	var w *work
	for i, m := range o.op.Moves {
		if m.State.Finished() || m.State == topo.MovePurging || m.State == topo.MoveParked && !o.released(&m) {
			continue
		}
		if w == nil {
			w = &work{source: m.From}
		}
		if m.From == w.source {
			w.moves = append(w.moves, i)
		}
	}
	return w
}

// released reports whether a person allowed all keys a move is parked for.
func (o *operation) released(m *topo.MoveProgress) bool {
	for _, key := range m.Parked {
		if !o.allowed(key) {
			return false
		}
	}
	return true
}

func (o *operation) parked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.op.Moves, func(m topo.MoveProgress) bool { return m.State == topo.MoveParked })
}

// put applies change to a copy of the record and adds its write to txn. The
// record itself follows with reload, once the transaction is known to hold.
func (o *operation) put(txn *store.Txn, change func(*topo.Operation)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.copyWith(change)
	txn.Exists(store.PrefixOperations+o.id).Put(store.PrefixOperations+o.id, next)
}

func (o *operation) copyWith(change func(*topo.Operation)) topo.Operation {
	next := o.op
	next.Moves = slices.Clone(o.op.Moves)
	next.Log = slices.Clone(o.op.Log)
	change(&next)
	next.UpdatedAt = time.Now().UTC()
	sum(&next)
	return next
}

// reload reads the record back after put.
func (o *operation) reload(ctx context.Context) error {
	op, _, err := store.Load[topo.Operation](ctx, o.r.st, store.PrefixOperations+o.id)
	if err != nil {
		return fmt.Errorf("read operation %s: %w", o.id, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.op = op
	return nil
}

// update stores a change, with more in the same transaction, and waits for
// etcd as long as it takes. before is the record as it was.
func (o *operation) update(ctx context.Context, change func(*topo.Operation), more func(txn *store.Txn, before *topo.Operation)) error {
	for {
		err := o.tryUpdate(ctx, change, more)
		if err == nil || errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return err
		}
		o.r.log.Warn("can not store an operation, trying again", "operation", o.id, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(storeRetry):
		}
	}
}

func (o *operation) tryUpdate(ctx context.Context, change func(*topo.Operation), more func(txn *store.Txn, before *topo.Operation)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.copyWith(change)
	txn := o.r.lead.Begin().Exists(store.PrefixOperations+o.id).Put(store.PrefixOperations+o.id, next)
	if more != nil {
		more(txn, &o.op)
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := txn.Commit(bounded); err != nil {
		return fmt.Errorf("store operation %s: %w", o.id, err)
	}
	o.op = next
	return nil
}

// enter stores that moves are in a state, before it is acted on.
func (o *operation) enter(ctx context.Context, w *work, state topo.MoveState, more func(txn *store.Txn, before *topo.Operation)) error {
	o.r.failpoint(state, false)
	err := o.update(ctx, func(op *topo.Operation) {
		for _, i := range w.moves {
			op.Moves[i].State, op.Moves[i].Reason = state, ""
		}
	}, more)
	if err != nil {
		return err
	}
	o.r.log.Info("moves enter a state", "operation", o.id, "group", w.source, "state", state)
	o.r.failpoint(state, true)
	return ctx.Err()
}

func (o *operation) begin(ctx context.Context) error {
	return o.update(ctx, func(op *topo.Operation) {
		if op.State == topo.OpQueued || op.State == "" {
			op.State, op.StartedAt = topo.OpRunning, time.Now().UTC()
		}
		for i := range op.Moves {
			if op.Moves[i].State == "" {
				op.Moves[i].State = topo.MovePending
			}
		}
	}, nil)
}

// retry notes why an attempt ended.
func (o *operation) retry(ctx context.Context, w *work, cause error) error {
	return o.update(ctx, func(op *topo.Operation) {
		for _, i := range w.moves {
			if m := &op.Moves[i]; !m.State.Finished() && m.State != topo.MovePurging && m.State != topo.MoveParked {
				m.State, m.Reason = topo.MovePending, cause.Error()
			}
		}
		addNote(op, fmt.Sprintf("moves from %s are tried again: %v", w.source, cause))
	}, nil)
}

// pause waits, but not longer than until people want something else.
func (o *operation) pause(ctx context.Context, delay time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-o.changes():
	case <-time.After(delay):
	}
	return nil
}

// await waits until people want something else.
func (o *operation) await(ctx context.Context, reason string) error {
	changes := o.changes()
	if err := o.update(ctx, func(op *topo.Operation) { op.Reason = reason }, nil); err != nil {
		return err
	}
	if o.wish() == topo.WishCancel || o.next() != nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changes:
		return nil
	}
}

// settled marks moves done whose debt is gone and counts those left.
func (o *operation) settled(ctx context.Context, debts []topo.Purge) (left int, err error) {
	owes := func(m *topo.MoveProgress) bool {
		return slices.ContainsFunc(debts, func(p topo.Purge) bool {
			return p.Attempt == m.Attempt && p.Slots.Overlaps(m.Slots)
		})
	}
	changed := false
	o.mu.Lock()
	for i := range o.op.Moves {
		m := &o.op.Moves[i]
		if m.Attempt == "" {
			continue
		}
		switch owed := owes(m); {
		case owed:
			left++
		case m.State == topo.MovePurging:
			changed = true
		}
	}
	o.mu.Unlock()
	if !changed {
		return left, nil
	}
	o.r.failpoint(topo.MoveDone, false)
	err = o.update(ctx, func(op *topo.Operation) {
		for i := range op.Moves {
			if m := &op.Moves[i]; m.State == topo.MovePurging && !owes(m) {
				m.State = topo.MoveDone
			}
		}
	}, nil)
	if err == nil {
		o.r.failpoint(topo.MoveDone, true)
	}
	return left, err
}

// finish stores how the operation ended.
func (o *operation) finish(ctx context.Context) error {
	return o.update(ctx, func(op *topo.Operation) {
		op.State, op.Reason = topo.OpSucceeded, ""
		for i := range op.Moves {
			switch m := &op.Moves[i]; m.State {
			case topo.MoveFailed:
				op.State, op.Reason = topo.OpFailed, m.Reason
			case topo.MoveCancelled:
				if op.State != topo.OpFailed {
					op.State = topo.OpCancelled
				}
			case topo.MovePurging:
				m.State = topo.MoveDone
			}
		}
		op.FinishedAt = time.Now().UTC()
		op.Progress.KeysPerSecond, op.Progress.BytesPerSecond, op.Progress.ETASeconds = 0, 0, 0
		addNote(op, "operation "+string(op.State))
	}, nil)
}

func addNote(op *topo.Operation, text string) {
	op.Log = append(op.Log, topo.Note{At: time.Now().UTC(), Text: text})
	if n := len(op.Log) - maxNotes; n > 0 {
		op.Log = slices.Delete(op.Log, 0, n)
	}
}

// sum derives an operation's progress from its moves; rates stay.
func sum(op *topo.Operation) {
	p := &op.Progress
	p.SlotsDone, p.SlotsTotal, p.KeysDone, p.KeysTotal, p.BytesDone = 0, 0, 0, 0, 0
	for i := range op.Moves {
		m := &op.Moves[i]
		n := m.Slots.Len()
		p.SlotsTotal += n
		p.KeysDone += m.KeysDone
		p.KeysTotal += max(m.KeysTotal, m.KeysDone)
		p.BytesDone += m.BytesDone
		if m.State == topo.MoveDone || m.State == topo.MovePurging {
			p.SlotsDone += n
		}
	}
	p.BytesTotal = p.BytesDone
	if p.KeysDone > 0 {
		p.BytesTotal = int64(float64(p.BytesDone) / float64(p.KeysDone) * float64(p.KeysTotal))
	}
	p.Fraction = 0
	if p.SlotsTotal > 0 {
		p.Fraction = float64(p.SlotsDone) / float64(p.SlotsTotal)
	}
	if p.KeysTotal > 0 {
		// A slot without keys takes no time: count keys, leave a rest for the hand-over.
		p.Fraction = max(p.Fraction, 0.98*float64(p.KeysDone)/float64(p.KeysTotal))
	}
}

// startReport stores how far the copy has come, twice a second, until the
// returned function was called.
func (a *attempt) startReport(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.report(ctx)
	}()
	return func() { cancel(); <-done }
}

func (a *attempt) report(ctx context.Context) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	var keys, bytes, lastKeys, lastBytes, keyRate, byteRate float64
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		keys, bytes = 0, 0
		for _, t := range a.targets {
			keys += float64(t.keys.Load())
			bytes += float64(t.bytes.Load())
		}
		// The rate of the last seconds, older ones fading.
		took := time.Since(last).Seconds()
		last = time.Now()
		weight := 0.3
		if lastKeys == 0 {
			weight = 1
		}
		keyRate += weight * ((keys-lastKeys)/took - keyRate)
		byteRate += weight * ((bytes-lastBytes)/took - byteRate)
		lastKeys, lastBytes = keys, bytes
		err := a.op.tryUpdate(ctx, func(op *topo.Operation) {
			for n, i := range a.w.moves {
				m := &op.Moves[i]
				m.KeysDone, m.BytesDone = a.targets[n].keys.Load(), a.targets[n].bytes.Load()
			}
			sum(op)
			p := &op.Progress
			p.KeysPerSecond, p.BytesPerSecond, p.ETASeconds = keyRate, byteRate, -1
			if byteRate > 0 {
				p.ETASeconds = float64(p.BytesTotal-p.BytesDone) / byteRate
			}
		}, nil)
		if err != nil && ctx.Err() == nil {
			a.r.log.Debug("progress not stored", "operation", a.op.id, "err", err)
		}
	}
}
