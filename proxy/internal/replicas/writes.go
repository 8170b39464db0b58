package replicas

import "math/bits"

// Writes remembers which slots a client wrote lately, so that it reads its own
// writes: from the moment a write is sent until some time after its reply. It
// has 64 clocks; a slot shares its clock with every 64th, which at worst has a
// read go to the master for nothing.
type Writes struct {
	pending [64]uint32 // writes without a reply
	until   [64]int64  // reads go to the master until then
}

// Slots is a set of slots, as Writes tells them apart.
type Slots uint64

// AllSlots is every slot.
const AllSlots = ^Slots(0)

// SlotSet is the set of one slot.
func SlotSet(slot uint16) Slots { return 1 << (slot & 63) }

func (s Slots) first() int { return bits.TrailingZeros64(uint64(s)) }

// Sent tells of a write to slots that was sent.
func (w *Writes) Sent(slots Slots) {
	for ; slots != 0; slots &= slots - 1 {
		w.pending[slots.first()]++
	}
}

// Done tells that a write sent earlier was answered, and until when reads of
// its slots go to the master.
func (w *Writes) Done(slots Slots, until int64) {
	for ; slots != 0; slots &= slots - 1 {
		i := slots.first()
		w.pending[i]--
		w.until[i] = max(w.until[i], until)
	}
}

// Recent reports whether any of slots was written lately. It may say so of
// slots that were not, never the other way round.
func (w *Writes) Recent(slots Slots, now int64) bool {
	if w == nil {
		return false
	}
	for ; slots != 0; slots &= slots - 1 {
		if i := slots.first(); w.pending[i] > 0 || now < w.until[i] {
			return true
		}
	}
	return false
}
