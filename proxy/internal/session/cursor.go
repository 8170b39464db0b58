package session

import (
	"slices"
	"strconv"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/router"
)

// SCAN over all groups keeps Redis's promise: a key that is there from the first
// call to the last is returned at least once, also when its slot moves meanwhile.
//
// The masters are scanned one after the other, in the order of their groups' ids.
// A reply is filtered by the table under which its request was sent: a group
// returns the keys of slots it owns, not the copies it is about to own. What
// remains to be missed is a slot that moves to a group whose scan has begun or
// ended. So the cursor carries a base epoch, with this meaning:
//
//	all keys of slots that the groups before this one, and this one as far as
//	its own cursor has come, owned from the base epoch on without a break were
//	returned
//
// At the end of a group the base is raised to the current epoch if no group
// scanned so far has gained a slot since the base. At the end of the last group,
// if any has, another round begins at the first that did, with the current epoch
// as its base. It may return keys again, as SCAN may. Rounds end when slots stay
// where they are for one round.
//
// For this a loop remembers which groups gained slots at which epoch (scanLog):
// some words for each hand-over. A cursor whose epoch is not remembered (a
// restarted proxy, or one that is behind) begins from the first group again.
//
// The client sees one decimal number below 2^63, 0 only at the very end:
//
//	bits 43–62  1 + epoch mod (2^20 − 1)
//	bits 33–42  index of the group among the ids of the base epoch, sorted
//	bits  0–32  the master's own cursor: a hash table of 2^33 places is far
//	            beyond what one Redis holds
//
// Rejected: cursors kept in the proxy's memory (a client may go on through
// another proxy), and a round for every slot range (a master would be scanned as
// many times as it has ranges).
const (
	masterBits = 33
	indexBits  = 10
	epochSpan  = 1<<20 - 1
)

// scanPoint is a decoded cursor.
type scanPoint struct {
	base   topo.Epoch
	group  string // id; "" = nothing is left to scan
	master uint64 // the group's own cursor
}

// scanLog remembers how slots moved, as far as SCAN needs to know. One for each
// loop.
type scanLog struct {
	table *router.Table // in force
	gains []scanGain    // oldest first
	lists []scanList    // oldest first; the last is that of the table in force
	since topo.Epoch    // cursors of an earlier epoch are not understood
}

// scanGain: the groups gained slots at that epoch.
type scanGain struct {
	epoch  topo.Epoch
	groups []string
}

// scanList: the groups, sorted, from that epoch on.
type scanList struct {
	epoch topo.Epoch
	ids   []string
}

// maxGains bounds the log. Older cursors than it reaches start over.
const maxGains = 8192

// apply takes a new table.
func (l *scanLog) apply(t *router.Table) {
	before := l.table
	l.table = t
	ids := make([]string, len(t.Groups))
	for i := range t.Groups {
		ids[i] = t.Groups[i].ID
	}
	slices.Sort(ids)
	if before == nil || t.Epoch < before.Epoch || t.Slots() != before.Slots() {
		l.since, l.gains, l.lists = t.Epoch, nil, []scanList{{t.Epoch, ids}}
		return
	}
	gained := ids // unseen epochs lie between: any group may have gained slots
	if t.Epoch <= before.Epoch+1 {
		gained = gainers(before, t)
	}
	if len(gained) > 0 {
		l.gains = append(l.gains, scanGain{t.Epoch, gained})
	}
	if !slices.Equal(ids, l.lists[len(l.lists)-1].ids) {
		l.lists = append(l.lists, scanList{t.Epoch, ids})
	}
	if len(l.gains) > maxGains {
		l.since = l.gains[maxGains/2].epoch
		l.gains = slices.Clone(l.gains[maxGains/2:])
	}
	for len(l.lists) > 1 && l.lists[1].epoch <= l.since {
		l.lists = l.lists[1:]
	}
}

// gainers lists the groups that own a slot in t that they did not own before.
func gainers(before, t *router.Table) []string {
	moved := make([]bool, len(t.Groups))
	for s := range t.Slots() {
		slot := topo.Slot(s)
		owner := t.Owner(slot)
		if owner < 0 || moved[owner] {
			continue
		}
		was := before.Owner(slot)
		moved[owner] = was < 0 || before.Groups[was].ID != t.Groups[owner].ID
	}
	var ids []string
	for i, m := range moved {
		if m {
			ids = append(ids, t.Groups[i].ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// firstGainer returns the first group, in the order of ids, that gained slots
// after epoch; "" if none did.
func (l *scanLog) firstGainer(epoch topo.Epoch) string {
	first := ""
	for i := len(l.gains) - 1; i >= 0 && l.gains[i].epoch > epoch; i-- {
		if id := l.gains[i].groups[0]; first == "" || id < first {
			first = id
		}
	}
	return first
}

// start is where a scan begins now.
func (l *scanLog) start() scanPoint {
	return scanPoint{base: l.table.Epoch, group: l.next("")}
}

// next returns the first group behind id that owns slots, "" if there is none.
// A group without slots gains some before it has any key to return.
func (l *scanLog) next(id string) string {
	return l.least(func(other string) bool { return other > id })
}

// from is next, but id itself will do.
func (l *scanLog) from(id string) string {
	return l.least(func(other string) bool { return other >= id })
}

func (l *scanLog) least(fits func(id string) bool) string {
	least := ""
	for i := range l.table.Groups {
		g := &l.table.Groups[i]
		if g.Slots > 0 && fits(g.ID) && (least == "" || g.ID < least) {
			least = g.ID
		}
	}
	return least
}

// advance returns where the scan goes on after the group at p answered with its
// cursor.
func (l *scanLog) advance(p scanPoint, master uint64) scanPoint {
	if master != 0 {
		p.master = master
		return p
	}
	p.master = 0
	gainer := l.firstGainer(p.base)
	next := l.next(p.group)
	switch {
	case gainer == "" || next != "" && gainer > p.group:
		// None of the groups scanned so far missed anything.
		return scanPoint{base: l.table.Epoch, group: next}
	case next == "" || l.index(p.base, next) < 0:
		// Another round; also when next is younger than the base, since then no
		// cursor can name it.
		return scanPoint{base: l.table.Epoch, group: l.from(gainer)}
	}
	p.group = next
	return p
}

// index is the place of a group among those of an epoch, -1 if it is not there.
func (l *scanLog) index(epoch topo.Epoch, id string) int {
	i, found := slices.BinarySearch(l.ids(epoch), id)
	if !found || i >= 1<<indexBits {
		return -1
	}
	return i
}

func (l *scanLog) ids(epoch topo.Epoch) []string {
	for i := len(l.lists) - 1; i >= 0; i-- {
		if l.lists[i].epoch <= epoch {
			return l.lists[i].ids
		}
	}
	return nil
}

// encode gives the number for the client. ok is false for a cursor of the
// master, or a place of the group, that does not fit.
func (l *scanLog) encode(p scanPoint) (cursor uint64, ok bool) {
	if p.group == "" {
		return 0, true
	}
	i := l.index(p.base, p.group)
	if i < 0 || p.master>>masterBits != 0 {
		return 0, false
	}
	return (1+uint64(p.base)%epochSpan)<<(masterBits+indexBits) | uint64(i)<<masterBits | p.master, true
}

// decode understands a client's number; what it does not understand, and 0, is
// the start of a scan.
func (l *scanLog) decode(cursor uint64) scanPoint {
	field := cursor >> (masterBits + indexBits)
	if field == 0 || field > epochSpan {
		return l.start()
	}
	// The youngest epoch up to now with this remainder.
	now := uint64(l.table.Epoch)
	back := (now%epochSpan + epochSpan - (field - 1)) % epochSpan
	if back > now {
		return l.start()
	}
	base := topo.Epoch(now - back)
	ids := l.ids(base)
	i := int(cursor >> masterBits & (1<<indexBits - 1))
	if base < l.since || i >= len(ids) {
		return l.start()
	}
	p := scanPoint{base: base, group: ids[i], master: cursor & (1<<masterBits - 1)}
	if g := l.table.GroupByID(p.group); g < 0 || l.table.Groups[g].Slots == 0 {
		// It gave all its slots away: those are with groups that gained.
		return l.advance(p, 0)
	}
	return p
}

// parseCursor reads what a client sent as Redis does.
func parseCursor(b []byte) (uint64, bool) {
	text := shown(b)
	if text == "" {
		return 0, true // to Redis, too
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
