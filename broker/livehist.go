package broker

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// LiveBuckets is how many buckets a [LiveHistogram] has.
const LiveBuckets = 112

// The buckets: bucket i holds what took at most liveLeast*2^(i/liveOctave), and
// more than the one before; the last one holds everything else.
const (
	liveLeast  = 10 * time.Microsecond
	liveOctave = 4
)

// LiveBucket is the bucket of a duration. It does not allocate.
func LiveBucket(d time.Duration) int {
	if d <= liveLeast {
		return 0
	}
	i := int(math.Ceil(liveOctave * math.Log2(float64(d)/float64(liveLeast))))
	return min(max(i, 0), LiveBuckets-1)
}

// liveBound is the upper bound of a bucket.
func liveBound(i int) time.Duration {
	return time.Duration(float64(liveLeast) * math.Exp2(float64(i)/liveOctave))
}

// LiveHistogram counts durations by size: each bucket reaches 19 % further than
// the one before. The zero value is empty. As JSON it has the number of
// durations, two quantiles in milliseconds and those buckets that are not empty.
type LiveHistogram struct{ counts []uint32 }

// NewLiveHistogram returns a histogram with so many durations in each bucket. It
// keeps counts, which has [LiveBuckets] of them.
func NewLiveHistogram(counts []uint32) LiveHistogram {
	return LiveHistogram{counts: counts[:LiveBuckets]}
}

// Merge adds what other counted.
func (h *LiveHistogram) Merge(other LiveHistogram) {
	if len(other.counts) == 0 {
		return
	}
	if len(h.counts) == 0 {
		h.counts = make([]uint32, LiveBuckets)
	}
	for i, n := range other.counts {
		h.counts[i] += min(n, math.MaxUint32-h.counts[i])
	}
}

// Count is how many durations there are.
func (h LiveHistogram) Count() (n uint64) {
	for _, c := range h.counts {
		n += uint64(c)
	}
	return n
}

// Quantile is what a share q of the durations did not exceed, up to the size of a
// bucket; 0 when there are none.
func (h LiveHistogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(min(max(q, 0), 1)*float64(n))), 1)
	var seen uint64
	for i, c := range h.counts {
		if seen += uint64(c); seen >= rank {
			return liveBound(i)
		}
	}
	return liveBound(LiveBuckets - 1)
}

// liveHistogram is a histogram on the wire.
type liveHistogram struct {
	Count   uint64      `json:"count"`
	P50     float64     `json:"p50_ms"`
	P99     float64     `json:"p99_ms"`
	Buckets [][2]uint32 `json:"buckets"` // number of the bucket, durations in it
}

// MarshalJSON writes the histogram.
func (h LiveHistogram) MarshalJSON() ([]byte, error) {
	out := liveHistogram{
		Count: h.Count(), P50: inMilliseconds(h.Quantile(0.5)), P99: inMilliseconds(h.Quantile(0.99)), Buckets: [][2]uint32{},
	}
	for i, n := range h.counts {
		if n > 0 {
			out.Buckets = append(out.Buckets, [2]uint32{uint32(i), n})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the buckets; the other figures follow from them.
func (h *LiveHistogram) UnmarshalJSON(b []byte) error {
	var in struct {
		Buckets [][2]uint32 `json:"buckets"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if len(in.Buckets) > LiveBuckets {
		return fmt.Errorf("buckets: %d, more than %d", len(in.Buckets), LiveBuckets)
	}
	h.counts = nil
	for _, bucket := range in.Buckets {
		if bucket[0] >= LiveBuckets {
			return fmt.Errorf("buckets: number %d, not below %d", bucket[0], LiveBuckets)
		}
		if h.counts == nil {
			h.counts = make([]uint32, LiveBuckets)
		}
		h.counts[bucket[0]] = bucket[1]
	}
	return nil
}

// inMilliseconds rounds to a microsecond.
func inMilliseconds(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }
