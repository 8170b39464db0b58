package backend

// entry is one request in a pipeline, from queueing to its reply.
type entry struct {
	receiver Receiver
	at       int64  // when it was queued, nanoseconds on the loop's clock
	size     uint32 // bytes of its command in the pipeline's buffer
	part     uint16 // of a block: replies to come before its last one
	tries    uint8  // times it was given to a connection that was lost
	kind     kind
}

// kind is what may be done with a request whose reply is missing.
type kind uint8

const (
	write   kind = iota
	read         // may be sent again
	movable      // a read that the master answers too, see Pipeline.Movable
	block        // several commands that belong together, with a reply each
)

func kindOf(readOnly bool) kind {
	if readOnly {
		return read
	}
	return write
}

func (k kind) readOnly() bool { return k == read || k == movable }

// place is the part to tell the receiver.
func (e *entry) place() int {
	if e.kind == block {
		return 0
	}
	return int(e.part)
}

// ring is a queue of entries, oldest first, in an array that doubles when full.
// Invariant: 0 <= tail-head <= len(slots), and len(slots) is a power of two.
type ring struct {
	slots      []entry
	head, tail uint64 // total taken and total put
}

func (r *ring) len() int { return int(r.tail - r.head) }

func (r *ring) put(e entry) {
	if r.len() == len(r.slots) {
		r.grow()
	}
	r.slots[r.tail&uint64(len(r.slots)-1)] = e
	r.tail++
}

// first returns the oldest entry; the ring must not be empty.
func (r *ring) first() *entry { return &r.slots[r.head&uint64(len(r.slots)-1)] }

// last returns the newest entry; the ring must not be empty.
func (r *ring) last() *entry { return &r.slots[(r.tail-1)&uint64(len(r.slots)-1)] }

// drop takes the oldest entry away.
func (r *ring) drop() {
	r.first().receiver = nil
	r.head++
}

func (r *ring) grow() {
	slots := make([]entry, max(16, 2*len(r.slots)))
	for i := r.head; i < r.tail; i++ {
		slots[i&uint64(len(slots)-1)] = r.slots[i&uint64(len(r.slots)-1)]
	}
	r.slots = slots
}
