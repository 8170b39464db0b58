package resp

import "math/bits"

// Buffers is a loop's stock of byte slices: what a connection gives back when
// it goes idle serves the next one, so memory follows the number of busy
// connections. Sizes are powers of two. Larger slices than it keeps, and more
// than it may hold, are left to the garbage collector. One goroutine only.
type Buffers struct {
	free [maxClass - minClass + 1][][]byte
	held int // bytes in free
}

const (
	minClass = 9  // 512 B
	maxClass = 22 // 4 MiB
	maxHeld  = 32 << 20
)

// Get returns an empty slice with room for n bytes.
func (b *Buffers) Get(n int) []byte {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return make([]byte, 0, n)
	}
	list := &b.free[class-minClass]
	if last := len(*list) - 1; last >= 0 {
		buf := (*list)[last]
		(*list)[last] = nil
		*list = (*list)[:last]
		b.held -= cap(buf)
		return buf
	}
	return make([]byte, 0, 1<<class)
}

// Put takes a slice that nobody uses any more, nil included.
func (b *Buffers) Put(buf []byte) {
	class := bits.Len(uint(cap(buf))) - 1
	if class < minClass || class > maxClass || cap(buf) != 1<<class || b.held+cap(buf) > maxHeld {
		return
	}
	b.held += cap(buf)
	list := &b.free[class-minClass]
	*list = append(*list, buf[:0])
}

// Grow returns buf with room for n more bytes: buf itself, or a copy, with at
// least twice the size, of which buf went back to the stock.
func (b *Buffers) Grow(buf []byte, n int) []byte {
	if cap(buf)-len(buf) >= n {
		return buf
	}
	grown := b.Get(max(len(buf)+n, min(2*cap(buf), len(buf)+n+64<<20)))
	grown = append(grown, buf...)
	b.Put(buf)
	return grown
}

// Inbox joins what a socket delivers with what was left of the read before.
// Usually nothing is left, and the loop's shared read buffer is used as it is.
// A short rest is put in front of the shared buffer; only a long unfinished
// command or reply gets memory of its own, read into directly. The order of
// calls is Space, a read, Filled, and Keep with what was not consumed.
type Inbox struct {
	rest []byte // not yet consumed; own memory
	own  bool   // the last Space was in rest's memory
}

// shortRest is up to where copying the rest is cheaper than memory of its own.
const shortRest = 4 << 10

// Space returns where to read to. need is what the unfinished item takes at
// least, as far as its framer knows.
func (b *Inbox) Space(shared []byte, need int, buffers *Buffers) []byte {
	b.own = false
	if len(b.rest) == 0 {
		return shared
	}
	if len(b.rest) <= shortRest && need <= len(shared) {
		return shared[copy(shared, b.rest):]
	}
	b.own = true
	room := max(need-len(b.rest), 16<<10)
	if cap(b.rest)-len(b.rest) < room/2 {
		b.rest = buffers.Grow(b.rest, room)
	}
	return b.rest[len(b.rest):cap(b.rest)]
}

// Filled returns everything not yet consumed after n bytes were read into the
// space. It is valid until Keep.
func (b *Inbox) Filled(shared []byte, n int) []byte {
	if b.own {
		b.rest = b.rest[:len(b.rest)+n]
		return b.rest
	}
	return shared[:len(b.rest)+n]
}

// Len is the number of bytes kept. Unlike Rest it may be called at any time.
func (b *Inbox) Len() int { return len(b.rest) }

// Rest returns what was kept, to be looked at again without a read; Keep must
// follow.
func (b *Inbox) Rest() []byte {
	b.own = true
	return b.rest
}

// Keep stores what was not consumed: a tail of what Filled or Rest returned.
func (b *Inbox) Keep(tail []byte, buffers *Buffers) {
	switch {
	case len(tail) == 0:
		if cap(b.rest) > 0 {
			buffers.Put(b.rest)
			b.rest = nil
		}
	case b.own && cap(b.rest) > 64<<10 && len(tail) < cap(b.rest)/4 && len(tail) < len(b.rest):
		// A large argument has passed: do not sit on its memory.
		kept := append(buffers.Get(len(tail)), tail...)
		buffers.Put(b.rest)
		b.rest = kept
	case b.own:
		if len(tail) < len(b.rest) {
			b.rest = b.rest[:copy(b.rest, tail)]
		}
	default:
		b.rest = append(buffers.Grow(b.rest[:0], len(tail)), tail...)
	}
	b.own = false
}
