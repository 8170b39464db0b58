package migrate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shardis/coordinator/internal/node"
	"shardis/coordinator/internal/wire"
	"shardis/coordinator/topo"
	"shardis/proxy/resp"
)

// A target is one connection to the master of a group that gains slots. It
// lives from preparing to the switch; when it breaks the attempt is over, for
// nobody can tell what of the bytes on their way was executed.
//
//	appendRestore … → buf → flush → socket → node → replies → collect
//	                          └── sent (one entry a flush) ──┘
//
// All writes go over the one connection, so copies of one key are applied in
// the order they were read. One goroutine appends and flushes at a time.
type target struct {
	group string
	conn  *wire.Conn
	runID string
	// As they were in preparing: what flushed databases, and keys evicted.
	flushes string
	evicted int64

	db    int // database selected by what was appended; -1: none yet
	buf   []byte
	count int // commands in buf

	sent      chan sent
	closing   sync.Once
	collected chan struct{} // closed when the reader of replies ended
	mu        sync.Mutex
	room      sync.Cond // inflight fell, or err was set
	inflight  int       // bytes sent, not yet answered
	err       error     // first error; final

	wrote map[int]bool // databases something was written to
	keys  atomic.Int64 // restored, or on their way
	bytes atomic.Int64
}

// sent is what one flush wrote: n commands that must not fail, or one whose
// reply somebody waits for.
type sent struct {
	n, bytes int
	ask      bool
	reply    chan<- wire.Value
}

const (
	maxInflight = 4 << 20   // bytes; keeps the target busy without filling its query buffer
	flushAt     = 128 << 10 // bytes of buf
)

// openTarget connects. The connection ends with ctx.
func openTarget(ctx context.Context, group, addr string, login topo.Secret) (*target, error) {
	conn, err := node.Dial(ctx, addr, login, node.Named(login.User))
	if err != nil {
		return nil, err
	}
	t := &target{group: group, conn: wire.New(ctx, addr, conn), db: -1, sent: make(chan sent, 1024), collected: make(chan struct{}), wrote: map[int]bool{}}
	t.room.L = &t.mu
	go t.collect()
	return t, nil
}

// close ends the connection and waits for the reader of replies; what was not
// answered may or may not be executed.
func (t *target) close() {
	t.closing.Do(func() {
		t.fail(fmt.Errorf("connection to %s closed", t.conn.Addr()))
		_ = t.conn.Close()
		close(t.sent)
	})
	<-t.collected
}

// collect reads replies until the connection ends.
func (t *target) collect() {
	defer close(t.collected)
	for s := range t.sent {
		var err error
		if s.ask {
			var v wire.Value
			if v, err = t.conn.Read(); err == nil {
				s.reply <- v
			}
		}
		for i := 0; i < s.n && err == nil; i++ {
			err = t.conn.Check()
		}
		if err != nil {
			t.fail(fmt.Errorf("write to %s of group %s: %w", t.conn.Addr(), t.group, err))
			_ = t.conn.Close()
			for range t.sent { // until close
			}
			return
		}
		t.mu.Lock()
		t.inflight -= s.bytes
		t.room.Broadcast()
		t.mu.Unlock()
	}
}

func (t *target) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.room.Broadcast()
}

func (t *target) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// use selects the database of what is appended next.
func (t *target) use(db int) {
	if t.db != db {
		t.buf = resp.AppendCommandStrings(t.buf, "SELECT", strconv.Itoa(db))
		t.count++
		t.db = db
	}
}

// appendRestore replaces the target's copy of key. expire is in ms since 1970,
// 0 for none. A time that has passed makes the server drop the key.
func (t *target) appendRestore(db int, key string, expire int64, dump []byte) {
	t.use(db)
	t.wrote[db] = true
	var number [20]byte
	b := append(t.buf, "*6\r\n$7\r\nRESTORE\r\n"...)
	b = resp.AppendBulkString(b, key)
	b = resp.AppendBulk(b, strconv.AppendInt(number[:0], expire, 10))
	b = resp.AppendBulk(b, dump)
	t.buf = append(b, "$7\r\nREPLACE\r\n$6\r\nABSTTL\r\n"...)
	t.count++
	t.keys.Add(1)
	t.bytes.Add(int64(len(key) + len(dump)))
}

// appendUnlink removes the target's copy of key.
func (t *target) appendUnlink(db int, key string) {
	t.use(db)
	t.buf = resp.AppendCommandStrings(t.buf, "UNLINK", key)
	t.count++
}

// append adds any command.
func (t *target) append(db int, args ...[]byte) {
	t.use(db)
	t.wrote[db] = true
	t.buf = resp.AppendCommand(t.buf, args)
	t.count++
}

// flush sends what was appended, once there is room.
func (t *target) flush() error {
	if t.count == 0 {
		return t.failed()
	}
	if err := t.send(sent{n: t.count, bytes: len(t.buf)}, t.buf); err != nil {
		return err
	}
	if t.buf, t.count = t.buf[:0], 0; cap(t.buf) > 8<<20 {
		t.buf = nil
	}
	return nil
}

func (t *target) send(s sent, data []byte) error {
	t.mu.Lock()
	for t.inflight > 0 && t.inflight+len(data) > maxInflight && t.err == nil {
		t.room.Wait()
	}
	t.inflight += s.bytes
	err := t.err
	t.mu.Unlock()
	if err != nil {
		return err
	}
	t.sent <- s
	if err := t.conn.Write(data); err != nil {
		t.fail(fmt.Errorf("write to group %s: %w", t.group, err))
		_ = t.conn.Close()
		return t.failed()
	}
	return nil
}

// barrier returns once everything appended was executed without an error.
func (t *target) barrier() error {
	if err := t.flush(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.inflight > 0 && t.err == nil {
		t.room.Wait()
	}
	return t.err
}

// ask runs one command behind everything appended and gives its reply.
func (t *target) ask(ctx context.Context, args ...string) (wire.Value, error) {
	if err := t.barrier(); err != nil {
		return wire.Value{}, err
	}
	reply := make(chan wire.Value, 1)
	data := resp.AppendCommandStrings(nil, args...)
	if err := t.send(sent{ask: true, bytes: len(data), reply: reply}, data); err != nil {
		return wire.Value{}, err
	}
	if err := t.barrier(); err != nil {
		return wire.Value{}, err
	}
	select {
	case v := <-reply:
		if v.Kind == '-' {
			return v, fmt.Errorf("%s on %s: %w", args[0], t.conn.Addr(), wire.ServerError(v.Bytes))
		}
		return v, nil
	case <-ctx.Done():
		return wire.Value{}, ctx.Err()
	}
}

// waitReplicas makes sure that n replicas have everything written.
func (t *target) waitReplicas(ctx context.Context, n int, within time.Duration) error {
	if n == 0 {
		return nil
	}
	v, err := t.ask(ctx, "WAIT", strconv.Itoa(n), strconv.FormatInt(within.Milliseconds(), 10))
	if err != nil {
		return err
	}
	if v.Int < int64(n) {
		return fmt.Errorf("only %d of %d replicas of group %s confirmed the copies within %s", v.Int, n, t.group, within)
	}
	return nil
}

// identify notes which process the target is, or makes sure that it is the one
// that was noted. Copies are in it alone: one that restarted or lost its role
// has to be filled anew.
func (t *target) identify(ctx context.Context, was *target) error {
	text, err := t.ask(ctx, "INFO", "everything")
	if err != nil {
		return err
	}
	info := parseInfo(text.Text())
	t.runID, t.flushes, t.evicted = info["run_id"], flushes(info), number(info["evicted_keys"])
	if info["role"] != "master" {
		return fmt.Errorf("node %s of group %s is no master", t.conn.Addr(), t.group)
	}
	if was == nil {
		return nil
	}
	t.wrote, t.evicted = was.wrote, was.evicted
	if t.runID != was.runID || t.conn.Addr() != was.conn.Addr() || t.flushes != was.flushes {
		return fmt.Errorf("node %s of group %s restarted or was flushed", t.conn.Addr(), t.group)
	}
	return nil
}

// verify makes sure that nobody emptied the target behind our back, counts its
// replicas in sync, and says where its replication log is.
func (t *target) verify(ctx context.Context) (replicas int, offset, evicted int64, err error) {
	text, err := t.ask(ctx, "INFO", "everything")
	if err != nil {
		return 0, 0, 0, err
	}
	info := parseInfo(text.Text())
	if info["role"] != "master" {
		return 0, 0, 0, fmt.Errorf("node %s of group %s is no master any more", t.conn.Addr(), t.group)
	}
	if flushes(info) != t.flushes {
		return 0, 0, 0, fmt.Errorf("a database of node %s of group %s was flushed or swapped", t.conn.Addr(), t.group)
	}
	for name, value := range info {
		// "slave0: ip=…,port=…,state=online,offset=…,lag=0"; a tail has port 0.
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") &&
			!strings.Contains(value, "port=0,") && (strings.HasSuffix(value, "lag=0") || strings.HasSuffix(value, "lag=1")) {
			replicas++
		}
	}
	return replicas, number(info["master_repl_offset"]), number(info["evicted_keys"]) - t.evicted, nil
}

// flushes is how often a whole database changed.
func flushes(info map[string]string) string {
	return info["cmdstat_flushall"] + info["cmdstat_flushdb"] + info["cmdstat_swapdb"]
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// removeKeys unlinks the keys of some databases that match.
func removeKeys(ctx context.Context, t *target, dbs map[int]int64, match func(key []byte) bool, pace func(context.Context, int) error) (removed int64, err error) {
	for db := range dbs {
		cursor := "0"
		for {
			t.use(db)
			page, err := t.ask(ctx, "SCAN", cursor, "COUNT", "1000")
			if err != nil {
				return removed, err
			}
			for _, key := range page.Items[1].Items {
				if match(key.Bytes) {
					t.appendUnlink(db, key.Text())
					removed++
				}
			}
			if err := t.flush(); err != nil {
				return removed, err
			}
			if err := pace(ctx, 0); err != nil {
				return removed, err
			}
			if cursor = page.Items[0].Text(); cursor == "0" {
				break
			}
		}
	}
	return removed, t.barrier()
}
