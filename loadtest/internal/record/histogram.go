package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a histogram tells apart.
const (
	least  = 1               // microsecond
	most   = 24 * 3600 * 1e6 // microseconds; what is longer counts as this
	digits = 3
)

// fewest is how many values have to lie above a percentile that is reported.
const fewest = 5

// Histogram is a distribution of durations.
type Histogram struct{ h *hdrhistogram.Histogram }

func newHistogram() Histogram { return Histogram{hdrhistogram.New(least, most, digits)} }

// add counts a duration n times.
func (h Histogram) add(d time.Duration, n int) {
	v := min(max(d.Microseconds(), least), most)
	_ = h.h.RecordValues(v, int64(n)) // v is within bounds
}

// Count is the number of values.
func (h Histogram) Count() int { return int(h.h.TotalCount()) }

// Quantile returns the value that a share q of the values is not above, in
// milliseconds; ok is false when too few values are above it.
func (h Histogram) Quantile(q float64) (ms float64, ok bool) {
	if above := float64(h.Count()) * (1 - q); above < fewest-1e-6 {
		return 0, false
	}
	return float64(h.h.ValueAtQuantile(q*100)) / 1000, true
}

// Max is the largest value, milliseconds.
func (h Histogram) Max() float64 { return float64(h.h.Max()) / 1000 }

// Points returns the cumulative distribution: values in milliseconds and the
// shares of values that are not above them.
func (h Histogram) Points() (ms, share []float64) {
	seen, total := int64(0), float64(h.h.TotalCount())
	for _, bar := range h.h.Distribution() {
		if bar.Count > 0 {
			seen += bar.Count
			ms, share = append(ms, float64(bar.To)/1000), append(share, float64(seen)/total)
		}
	}
	return ms, share
}

// percentiles are those that are reported beside the median.
func percentiles() []float64 { return []float64{90, 95, 99, 99.9} }

// fields adds the figures of a histogram, as vLLM names them.
func (h Histogram) fields(to map[string]any, name string) {
	if h.Count() == 0 {
		return
	}
	to["count_"+name] = h.Count()
	to["mean_"+name+"_ms"] = round(h.h.Mean() / 1000)
	to["std_"+name+"_ms"] = round(h.h.StdDev() / 1000)
	to["max_"+name+"_ms"] = round(h.Max())
	to["median_"+name+"_ms"] = round(float64(h.h.ValueAtQuantile(50)) / 1000)
	for _, p := range percentiles() {
		if v, ok := h.Quantile(p / 100); ok {
			to["p"+strconv.FormatFloat(p, 'f', -1, 64)+"_"+name+"_ms"] = round(v)
		}
	}
}

// round keeps six significant digits.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// Bounds are the latencies that a good request keeps; zero is no bound.
type Bounds struct {
	TTFT time.Duration `json:"ttft_ns,omitempty"`
	TPOT time.Duration `json:"tpot_ns,omitempty"`
	E2EL time.Duration `json:"e2el_ns,omitempty"`
}

// ParseBounds reads bounds in milliseconds, as in "ttft:200", "e2el:1000".
func ParseBounds(texts []string) (Bounds, error) {
	var b Bounds
	for _, text := range texts {
		name, number, _ := strings.Cut(text, ":")
		ms, err := strconv.ParseFloat(number, 64)
		if err != nil || !(ms > 0 && ms <= 1e9) {
			return b, fmt.Errorf("goodput %q: want NAME:MILLISECONDS, above 0 and at most 1e9", text)
		}
		bound, ok := map[string]*time.Duration{"ttft": &b.TTFT, "tpot": &b.TPOT, "e2el": &b.E2EL}[name]
		switch {
		case !ok:
			return b, fmt.Errorf("goodput %q: must be ttft, tpot or e2el", name)
		case *bound > 0:
			return b, fmt.Errorf("goodput %q: twice", text)
		}
		*bound = max(time.Duration(ms*float64(time.Millisecond)), 1)
	}
	return b, nil
}

// Waiting is the tighter of the bounds that begin when a request was due, those of
// ttft and e2el; 0: there is none.
func (b Bounds) Waiting() time.Duration {
	if b.TTFT == 0 || b.E2EL == 0 {
		return max(b.TTFT, b.E2EL)
	}
	return min(b.TTFT, b.E2EL)
}

// Longest is the longest time that a request may take and keep the bounds on waiting;
// 0: there are none.
func (b Bounds) Longest() time.Duration { return max(b.TTFT, b.E2EL) }

// set reports whether there is any bound.
func (b Bounds) set() bool { return b != Bounds{} }
