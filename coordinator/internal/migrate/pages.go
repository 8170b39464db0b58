package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"shardis/coordinator/internal/wire"
)

// Big keys. DUMP and RESTORE of a hash of 64 MB block each node for half a
// second. So hashes, sets, sorted sets and lists over bigKey are read in pages
// into the target's copy, which nobody reads yet. A write in between may leave
// that copy wrong; then the replication log has named the key, and it is
// copied again. Streams and strings are read whole: pages of a stream would
// lose its consumer groups, and a string is one memory copy.

const pageItems = 1000 // about 0.4 ms of the node's time

// paged copies one big key from conn's node. The databases of conn and target
// are left at the key's.
func (c *copier) paged(ctx context.Context, conn *wire.Conn, k bigName) error {
	if err := selectDB(conn, k.db); err != nil {
		return err
	}
	kind, err := conn.Do("TYPE", k.name)
	if err != nil {
		return err
	}
	to := c.route.of([]byte(k.name))
	if to < 0 {
		return nil
	}
	t := c.targets[to]
	switch kind.Text() {
	case "hash":
		err = c.cursorPages(ctx, conn, t, k, "HSCAN", "HSET", 2, false)
	case "set":
		err = c.cursorPages(ctx, conn, t, k, "SSCAN", "SADD", 1, false)
	case "zset":
		err = c.cursorPages(ctx, conn, t, k, "ZSCAN", "ZADD", 2, true)
	case "list":
		err = c.listPages(ctx, conn, t, k)
	default: // none: gone
		_, _, err = c.reread(ctx, conn, k.db, []string{k.name}, true)
		return err
	}
	var refused wire.ServerError
	if errors.As(err, &refused) && strings.HasPrefix(string(refused), "WRONGTYPE") {
		return nil // It became another one meanwhile, so the log names it.
	}
	if err != nil {
		return fmt.Errorf("copy key of %d bytes in pages: %w", k.size, err)
	}
	expire, err := conn.Do("PEXPIRETIME", k.name)
	if err != nil {
		return err
	}
	switch {
	case expire.Int == -2: // Gone; a replica only hides what has expired, and no log names that.
		t.appendUnlink(k.db, k.name)
	case expire.Int > 0:
		t.append(k.db, []byte("PEXPIREAT"), []byte(k.name), strconv.AppendInt(nil, expire.Int, 10))
	}
	t.keys.Add(1)
	return t.flush()
}

// cursorPages copies by HSCAN, SSCAN or ZSCAN. step is values an element; the
// score of ZSCAN comes second, that of ZADD first.
func (c *copier) cursorPages(ctx context.Context, conn *wire.Conn, t *target, k bigName, read, write string, step int, swap bool) error {
	t.appendUnlink(k.db, k.name)
	cursor := "0"
	for {
		page, err := conn.Do(read, k.name, cursor, "COUNT", strconv.Itoa(pageItems))
		if err != nil {
			return err
		}
		items := page.Items[1].Items
		if swap {
			for i := 0; i+1 < len(items); i += 2 {
				items[i], items[i+1] = items[i+1], items[i]
			}
		}
		// A small but wide value comes in one page, however much it holds.
		for len(items) > 0 {
			n := min(len(items), pageItems*step)
			if err := c.page(ctx, t, k, write, items[:n]); err != nil {
				return err
			}
			items = items[n:]
		}
		if cursor = page.Items[0].Text(); cursor == "0" {
			return nil
		}
	}
}

func (c *copier) listPages(ctx context.Context, conn *wire.Conn, t *target, k bigName) error {
	t.appendUnlink(k.db, k.name)
	for first := 0; ; first += pageItems {
		page, err := conn.Do("LRANGE", k.name, strconv.Itoa(first), strconv.Itoa(first+pageItems-1))
		if err != nil {
			return err
		}
		if len(page.Items) == 0 {
			return nil
		}
		if err := c.page(ctx, t, k, "RPUSH", page.Items); err != nil {
			return err
		}
	}
}

// page writes one page of elements.
func (c *copier) page(ctx context.Context, t *target, k bigName, write string, items []wire.Value) error {
	args := make([][]byte, 0, len(items)+2)
	args = append(args, []byte(write), []byte(k.name))
	bytes := 0
	for _, v := range items {
		args = append(args, v.Bytes)
		bytes += len(v.Bytes)
	}
	t.append(k.db, args...)
	t.bytes.Add(int64(bytes))
	if err := t.flush(); err != nil {
		return err
	}
	return c.pace(ctx, bytes)
}
