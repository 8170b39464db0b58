package migrate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"shardis/coordinator/internal/wire"
	"shardis/proxy/resp"
)

// Copying reads keys of one node and restores them on the targets. Three
// stages are on their way at a time, so that the node that is read never waits
// for us:
//
//	turn i:   SCAN                 names of batch i
//	turn i+1:      MEMORY USAGE    which of them are too big to be read whole
//	turn i+2:           PEXPIRETIME + DUMP → RESTORE
//
// Replies of a turn come in the order they were asked for; the next turn is
// sent before the values of this one are taken in. Values pass once, from the
// read buffer into the targets' out buffers.
//
// PEXPIRETIME and DUMP are not one step on the node. Whatever changes a key in
// between is in the replication log, so the key is read again later.
//
// Rejected: EVAL doing it all on the node (blocks it, needs a right to run
// scripts), MIGRATE (blocks the node while the target works), and DUMP without
// asking for the size (a hash of 64 MB blocks the node for half a second).

const (
	bigKey     = 1 << 20 // bytes by MEMORY USAGE; above it a key is read in pages
	turnKeys   = 256     // keys read whole a turn
	turnBytes  = 1 << 20 // and about so many bytes of them
	scanFirst  = 200     // COUNT of the first SCAN
	scanMost   = 1000    // about 0.3 ms of the node's time
	scanLeast  = 50
	sizesAhead = 2 * turnKeys // sized keys waiting; above it no more are scanned
)

// sized is a key whose memory usage is known.
type sized struct {
	name string
	size int64
}

// pipe is one pass over keys of one database of one node.
type pipe struct {
	conn *wire.Conn
	db   int
	copy *copier

	cursor  string // of the next SCAN
	count   int    // COUNT of the next SCAN
	more    bool   // SCAN has not come round
	unsized []string
	ready   []sized
	gone    bool // names that do not exist are removed from the target
	whole   bool // no matter how big
	found   int  // names that existed
	big     []bigName
}

// bigName is a key that is to be copied in pages.
type bigName struct {
	db    int
	name  string
	size  int64
	price time.Duration // of copying it whole, once estimated
}

// turn is what was asked in one write.
type turn struct {
	scan  bool
	sizes []string
	dumps []sized
}

func (t *turn) empty() bool { return !t.scan && len(t.sizes) == 0 && len(t.dumps) == 0 }

// copier turns what is read into commands for the targets.
type copier struct {
	route   *route
	targets []*target
	pace    func(ctx context.Context, bytes int) error // throttle and pause
	// later, if set, is told the streams met: those of a replica lack what the
	// log does not carry (how many entries a group has read), so they are read
	// from the master.
	later func(name string)
}

// selectDB makes db the current database of conn.
func selectDB(conn *wire.Conn, db int) error {
	_, err := conn.Do("SELECT", strconv.Itoa(db))
	return err
}

// scan copies every moving key of database db that conn's node has, except big
// ones, which it returns.
func (c *copier) scan(ctx context.Context, conn *wire.Conn, db int) ([]bigName, error) {
	if err := selectDB(conn, db); err != nil {
		return nil, err
	}
	p := &pipe{conn: conn, db: db, copy: c, cursor: "0", count: scanFirst, more: true}
	err := p.run(ctx)
	return p.big, err
}

// reread copies the named keys of database db again: as they are now, or
// removed where they are gone. It returns how many exist, and the big ones,
// which it did not copy unless whole is set.
func (c *copier) reread(ctx context.Context, conn *wire.Conn, db int, names []string, whole bool) (found int, big []bigName, err error) {
	if len(names) == 0 {
		return 0, nil, nil
	}
	if err := selectDB(conn, db); err != nil {
		return 0, nil, err
	}
	p := &pipe{conn: conn, db: db, copy: c, gone: true, whole: whole}
	if whole {
		p.ready = make([]sized, len(names))
		for i, n := range names {
			p.ready[i].name = n
		}
	} else {
		p.unsized = names
	}
	err = p.run(ctx)
	return p.found, p.big, err
}

// run takes turns until nothing is left.
func (p *pipe) run(ctx context.Context) error {
	now, err := p.ask()
	for err == nil && !now.empty() {
		if err = p.takeNames(&now); err != nil {
			break
		}
		var next turn
		if next, err = p.ask(); err != nil {
			break
		}
		var bytes int
		if bytes, err = p.takeValues(&now); err != nil {
			break
		}
		if err = p.copy.pace(ctx, bytes); err != nil {
			break
		}
		now = next
		if now.empty() {
			now, err = p.ask() // the values of this turn may have left keys behind
		}
	}
	if err != nil {
		return err
	}
	for _, t := range p.copy.targets {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// ask sends the next turn.
func (p *pipe) ask() (turn, error) {
	var t turn
	b := p.conn.Buffer()
	if p.more && len(p.ready)+len(p.unsized) < sizesAhead {
		t.scan = true
		b = resp.AppendCommandStrings(b, "SCAN", p.cursor, "COUNT", strconv.Itoa(p.count))
	}
	n := min(len(p.unsized), 2*turnKeys)
	t.sizes, p.unsized = p.unsized[:n:n], p.unsized[n:]
	for _, name := range t.sizes {
		b = append(b, "*3\r\n$6\r\nMEMORY\r\n$5\r\nUSAGE\r\n"...)
		b = resp.AppendBulkString(b, name)
	}
	var bytes int64
	for n = 0; n < len(p.ready) && n < turnKeys && bytes < turnBytes; n++ {
		bytes += p.ready[n].size
		b = append(b, "*2\r\n$11\r\nPEXPIRETIME\r\n"...)
		b = resp.AppendBulkString(b, p.ready[n].name)
		b = append(b, "*2\r\n$4\r\nDUMP\r\n"...)
		b = resp.AppendBulkString(b, p.ready[n].name)
	}
	t.dumps, p.ready = p.ready[:n:n], p.ready[n:]
	p.conn.SetBuffer(b)
	return t, p.conn.Flush()
}

// takeNames reads what a turn says of names and sizes.
func (p *pipe) takeNames(t *turn) error {
	if t.scan {
		if err := p.takeScan(); err != nil {
			return err
		}
	}
	for _, name := range t.sizes {
		size, err := p.conn.ReadInt()
		if err != nil && !errors.Is(err, wire.ErrNil) {
			return err
		}
		if size > bigKey {
			p.big = append(p.big, bigName{db: p.db, name: name, size: size})
			continue
		}
		p.ready = append(p.ready, sized{name, size})
	}
	return nil
}

// takeScan reads a SCAN reply and keeps the names that move.
func (p *pipe) takeScan() error {
	if _, err := p.conn.ReadArray(); err != nil {
		return err
	}
	cursor, err := p.conn.ReadBulk()
	if err != nil {
		return err
	}
	p.cursor = string(cursor)
	p.more = p.cursor != "0"
	n, err := p.conn.ReadArray()
	if err != nil {
		return err
	}
	var all strings.Builder // one allocation for the names of a batch
	ends := make([]int, 0, n)
	for range n {
		name, err := p.conn.ReadBulk()
		if err != nil {
			return err
		}
		if p.copy.route.of(name) >= 0 {
			all.Write(name)
			ends = append(ends, all.Len())
		}
	}
	text, from := all.String(), 0
	for _, end := range ends {
		p.unsized = append(p.unsized, text[from:end])
		from = end
	}
	// Aim at a turn's worth of moving keys.
	switch {
	case len(ends) < turnKeys/2:
		p.count = min(2*p.count, scanMost)
	case len(ends) > turnKeys:
		p.count = max(p.count/2, scanLeast)
	}
	return nil
}

// takeValues reads the values of a turn and passes them on.
func (p *pipe) takeValues(t *turn) (bytes int, err error) {
	for _, k := range t.dumps {
		expire, err := p.conn.ReadInt()
		if err != nil {
			return bytes, err
		}
		dump, err := p.conn.ReadBulk()
		if err != nil {
			return bytes, err
		}
		to := p.copy.route.of([]byte(k.name))
		if to < 0 {
			continue // handed over meanwhile
		}
		target := p.copy.targets[to]
		switch {
		case dump != nil && p.copy.later != nil && isStream(dump):
			p.copy.later(k.name)
		case dump != nil:
			p.found++
			bytes += len(dump) + len(k.name)
			target.appendRestore(p.db, k.name, max(expire, 0), dump)
		case p.gone:
			target.appendUnlink(p.db, k.name)
		}
		if len(target.buf) >= flushAt {
			if err := target.flush(); err != nil {
				return bytes, err
			}
		}
	}
	return bytes, nil
}

// isStream tells from the first byte of a DUMP, which is the type in RDB files.
func isStream(dump []byte) bool {
	return len(dump) > 0 && (dump[0] == 15 || dump[0] == 19 || dump[0] == 21)
}
