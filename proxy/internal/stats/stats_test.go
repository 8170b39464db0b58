package stats

import "testing"

func TestHistogramBucketsCoverEveryDuration(t *testing.T) {
	last := -1
	for v := uint64(0); v < 1<<20; v++ {
		b := bucketOf(v)
		if b != last && b != last+1 {
			t.Fatalf("bucket of %d is %d after %d", v, b, last)
		}
		last = b
		if Upper(b) < v || b > 0 && Upper(b-1) >= v {
			t.Fatalf("%d is outside bucket %d, up to %d", v, b, Upper(b))
		}
	}
	if b := bucketOf(1 << 40); b != buckets-1 {
		t.Errorf("bucket of a long time is %d", b)
	}
}

func TestHistogramQuantile(t *testing.T) {
	var h, earlier Histogram
	for v := range uint64(1000) {
		h.Observe(v)
	}
	for _, q := range []float64{0.5, 0.99} {
		got := float64(h.Quantile(q))
		if got < q*1000 || got > q*1000*1.25 {
			t.Errorf("quantile %v is %v", q, got)
		}
	}
	earlier.Add(&h)
	h.Observe(7)
	h.Sub(&earlier)
	if h.Count() != 1 || h.Sum != 7 {
		t.Errorf("since the copy: %d durations, sum %d", h.Count(), h.Sum)
	}
}

func TestSnapshotSums(t *testing.T) {
	a, b := NewLoop(3, 8), NewLoop(3, 8)
	a.Calls[1], b.Calls[1], b.Slots[7], a.Closed[Killed] = 2, 3, 4, 5
	var sum Snapshot
	sum.Add(&a.Snapshot)
	sum.Add(&b.Snapshot)
	if sum.Calls[1] != 5 || sum.Slots[7] != 4 || sum.Closed[Killed] != 5 || a.Calls[1] != 2 {
		t.Errorf("sum %+v", sum)
	}
}
