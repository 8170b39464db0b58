package stats

import "math/bits"

// Buckets of a Histogram: four for each power of two microseconds, so a
// quantile is at most 25 % off. The last one takes everything from 67 s.
const (
	subBits    = 2
	subBuckets = 1 << subBits
	buckets    = 26 * subBuckets
)

// Histogram counts durations in fixed buckets of microseconds.
type Histogram struct {
	Counts [buckets]uint64
	Sum    uint64 // microseconds
}

// Observe adds one duration.
func (h *Histogram) Observe(micros uint64) {
	h.Counts[bucketOf(micros)]++
	h.Sum += micros
}

func bucketOf(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	exp := bits.Len64(v) - 1 - subBits
	return min((exp+1)<<subBits+int(v>>exp)&(subBuckets-1), buckets-1)
}

// Upper is the largest duration, in microseconds, that bucket i holds.
func Upper(i int) uint64 {
	if i < subBuckets {
		return uint64(i)
	}
	exp := i>>subBits - 1
	return uint64(subBuckets+i&(subBuckets-1)+1)<<exp - 1
}

// Buckets is the number of buckets.
func Buckets() int { return buckets }

// Add adds the counts of o.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// Sub takes the counts of an earlier copy away: what is left happened since.
func (h *Histogram) Sub(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] -= n
	}
	h.Sum -= o.Sum
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile gives the microseconds that the share q of all durations does not
// exceed, 0 when there are none.
func (h *Histogram) Quantile(q float64) uint64 {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total))
	var n uint64
	for i, c := range h.Counts {
		n += c
		if n > rank {
			return Upper(i)
		}
	}
	return Upper(buckets - 1)
}
