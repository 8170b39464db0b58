// Package feed follows the replication log of a master and names the keys that
// each write may change.
//
// Problem. A copy of keys that clients go on writing must learn of every
// change. CLIENT TRACKING and keyspace events do not tell of consumer groups,
// and can be lost with their connection. The replication log has everything,
// in order, under offsets that ROLE reports too.
//
// Design. A Tail attaches as a replica that asks to go on from the present
// offset (PSYNC <replid> <offset+1>), so that no snapshot is made: no fork, no
// transfer. It takes nothing but the names of keys from the log; values are
// read again from the master by who is told the names. So the log's database,
// unknown where the tail begins, does not matter, and neither does the meaning
// of any command. What a command's keys are is told by the command table, for
// commands it does not know by COMMAND GETKEYS of the node. What still can not
// be told ends the tail with an error: nothing is ever skipped.
//
// The tail may be one of a replica: same bytes, same offsets. There it is not
// counted by the master (min-replicas-to-write, WAIT).
//
// Rejected: replaying the log on the target (exact only with many extra rules
// for expiry, order and databases), and an RDB transfer (forks, ships all
// slots, needs a parser for every version).
package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"shardis/coordinator/internal/wire"
	"shardis/proxy/resp"
)

var (
	// ErrLineage: the node no longer has the history the tail began in. The
	// keys changed meanwhile are not known.
	ErrLineage = errors.New("replication history changed")
	// ErrFlushed: a database was flushed or swapped, which names no keys.
	ErrFlushed = errors.New("a database was flushed or swapped")
	// ErrUnknownKeys: the keys of a command in the log can not be told.
	ErrUnknownKeys = errors.New("keys of a logged command can not be told")
)

const (
	ackEvery   = time.Second      // a silent replica is dropped after repl-timeout
	logSilence = 70 * time.Second // masters ping their replicas, every 10 s by default
	attachWait = 5 * time.Second
	retryEvery = 100 * time.Millisecond
	retryFor   = 10 * time.Second
	readSize   = 256 << 10
)

// Config of a tail.
type Config struct {
	Addr string // the node to follow, a master or a replica in sync
	// Dial makes a logged-in connection to it. The user must be allowed PSYNC,
	// REPLCONF, INFO and COMMAND GETKEYS.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Named is told each name of a key that may have changed, on the goroutine
	// of Run, before Offset passes the write. The name is a view.
	Named func(key []byte)
	Log   *slog.Logger // nil: discard
}

// Tail is a place in a replication log that moves on with it.
type Tail struct {
	cfg     Config
	replID  string
	start   int64
	conn    *wire.Conn
	helper  *wire.Conn // for COMMAND GETKEYS, dialed when first needed
	framer  resp.Framer
	buf     []byte // read, not yet consumed: from buf[0], which is at offset+1
	indexes []int

	mu      sync.Mutex
	offset  int64 // every write up to here was named
	breaks  int
	waiters []waiter
	ended   error
}

type waiter struct {
	offset int64
	done   chan struct{}
}

// Attach begins a tail at the node's present offset. Names flow once Run is
// called; nothing is lost in between. The tail's connection ends with ctx.
func Attach(ctx context.Context, cfg Config) (*Tail, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tail{cfg: cfg}
	t.framer.SetLimits(resp.Limits{MaxBulk: 4 << 30, MaxArgs: 1 << 30, MaxCommand: 1 << 40})
	attach, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	replID, offset, err := t.position(attach)
	if err != nil {
		return nil, fmt.Errorf("attach to the log of %s: %w", cfg.Addr, err)
	}
	t.replID, t.start, t.offset = replID, offset, offset
	if err := t.connect(ctx); err != nil {
		return nil, fmt.Errorf("attach to the log of %s: %w", cfg.Addr, err)
	}
	return t, nil
}

// Start is the offset the tail began at: writes up to it were not named.
func (t *Tail) Start() int64 { return t.start }

// Lineage is the replication id of the history the tail follows.
func (t *Tail) Lineage() string { return t.replID }

// Offset is how far the log was read.
func (t *Tail) Offset() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offset
}

// Breaks is how often the tail was attached again. A replica that resyncs
// breaks it, so a scan of that replica is whole only if this stayed the same.
func (t *Tail) Breaks() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.breaks
}

// Wait returns once every write up to offset was named, or with the error that
// ended the tail.
func (t *Tail) Wait(ctx context.Context, offset int64) error {
	t.mu.Lock()
	if t.offset >= offset || t.ended != nil {
		defer t.mu.Unlock()
		if t.offset >= offset {
			return nil
		}
		return t.ended
	}
	w := waiter{offset, make(chan struct{})}
	t.waiters = append(t.waiters, w)
	t.mu.Unlock()
	select {
	case <-w.done:
		return t.Wait(ctx, offset)
	case <-ctx.Done():
		return fmt.Errorf("read the log of %s up to %d: %w", t.cfg.Addr, offset, ctx.Err())
	}
}

// Run follows the log until ctx ends or the history is broken, and always
// returns an error. A lost connection is made again at the offset reached.
func (t *Tail) Run(ctx context.Context) error {
	err := t.run(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = err
	for _, w := range t.waiters {
		close(w.done)
	}
	t.waiters = nil
	if t.conn != nil {
		_ = t.conn.Close()
	}
	if t.helper != nil {
		_ = t.helper.Close()
	}
	return err
}

func (t *Tail) run(ctx context.Context) error {
	for {
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrFlushed) || errors.Is(err, ErrUnknownKeys) {
			return err
		}
		t.cfg.Log.Warn("lost the replication log, attaching again", "node", t.cfg.Addr, "err", err)
		if err := t.reattach(ctx); err != nil {
			return err
		}
	}
}

// reattach goes on where the tail stopped, if the node still can.
func (t *Tail) reattach(ctx context.Context) error {
	_ = t.conn.Close()
	t.mu.Lock()
	t.breaks++
	t.mu.Unlock()
	deadline := time.Now().Add(retryFor)
	for {
		t.buf, t.framer = t.buf[:0], resp.Framer{}
		t.framer.SetLimits(resp.Limits{MaxBulk: 4 << 30, MaxArgs: 1 << 30, MaxCommand: 1 << 40})
		err := t.connect(ctx)
		if err == nil || errors.Is(err, ErrLineage) || ctx.Err() != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("attach again to the log of %s: %w", t.cfg.Addr, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// position asks where the log is, and makes one begin where there is none.
func (t *Tail) position(ctx context.Context) (replID string, offset int64, err error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }()
	var starter *wire.Conn // a full sync begun only to make the backlog
	for {
		info, err := replicationInfo(conn)
		if err != nil {
			return "", 0, err
		}
		if info["repl_backlog_active"] == "1" {
			break
		}
		if starter == nil {
			if starter, err = t.dial(ctx); err != nil {
				return "", 0, err
			}
			starter.Append("PSYNC", "?", "-1")
			if err := starter.Flush(); err != nil {
				return "", 0, err
			}
		}
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("no replication backlog came up: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	if starter != nil {
		_ = starter.Close()
	}
	info, err := replicationInfo(conn) // the backlog's beginning changed the id
	if err != nil {
		return "", 0, err
	}
	if _, err := fmt.Sscan(info["master_repl_offset"], &offset); err != nil || info["master_replid"] == "" {
		return "", 0, errors.New("INFO replication tells no position")
	}
	return info["master_replid"], offset, nil
}

func (t *Tail) dial(ctx context.Context) (*wire.Conn, error) {
	conn, err := t.cfg.Dial(ctx, t.cfg.Addr)
	if err != nil {
		return nil, err
	}
	return wire.New(ctx, t.cfg.Addr, conn), nil
}

func replicationInfo(conn *wire.Conn) (map[string]string, error) {
	reply, err := conn.Do("INFO", "replication")
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(reply.Text()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// connect asks for the log from the offset reached.
func (t *Tail) connect(ctx context.Context) error {
	conn, err := t.dial(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Do("REPLCONF", "capa", "eof", "capa", "psync2"); err != nil {
		_ = conn.Close()
		return err
	}
	reply, err := conn.Do("PSYNC", t.replID, fmt.Sprint(t.Offset()+1))
	if err != nil {
		_ = conn.Close()
		return err
	}
	words := strings.Fields(reply.Text())
	if len(words) == 0 || words[0] != "CONTINUE" || len(words) > 1 && words[1] != t.replID {
		_ = conn.Close()
		return fmt.Errorf("%w: node %s answered PSYNC with %q", ErrLineage, t.cfg.Addr, reply.Text())
	}
	t.conn = conn
	return nil
}

// follow reads the log from one connection until that breaks.
func (t *Tail) follow(ctx context.Context) error {
	live, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		t.keepAlive(live)
	}()
	raw := t.conn.Raw()
	for {
		need := max(readSize, t.framer.Need()-len(t.buf))
		t.buf = slices.Grow(t.buf, need)
		t.conn.SetReadDeadline(time.Now().Add(logSilence))
		n, err := raw.Read(t.buf[len(t.buf):cap(t.buf)])
		if err != nil {
			return err
		}
		t.buf = t.buf[:len(t.buf)+n]
		if err := t.consume(ctx); err != nil {
			return err
		}
	}
}

// keepAlive acknowledges nothing, so that WAIT never counts this replica.
func (t *Tail) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(ackEvery)
	defer ticker.Stop()
	ack := resp.AppendCommandStrings(nil, "REPLCONF", "ACK", "0")
	for {
		if t.conn.Write(ack) != nil {
			return // the reader sees it too
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// consume names the keys of every complete command in buf.
func (t *Tail) consume(ctx context.Context) error {
	used := 0
	for {
		args, n, err := t.framer.Next(t.buf[used:])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if len(args) > 0 {
			if err := t.name(ctx, args); err != nil {
				return fmt.Errorf("log of %s at offset %d: %w", t.cfg.Addr, t.Offset()+int64(used), err)
			}
		}
		used += n
	}
	if used == 0 {
		return nil
	}
	rest := copy(t.buf, t.buf[used:])
	t.buf = t.buf[:rest]
	if cap(t.buf) > 16*readSize && rest < readSize {
		t.buf = append([]byte(nil), t.buf...)
	}
	t.advance(int64(used))
	return nil
}

func (t *Tail) advance(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offset += n
	t.waiters = slices.DeleteFunc(t.waiters, func(w waiter) bool {
		if w.offset > t.offset {
			return false
		}
		close(w.done)
		return true
	})
}
