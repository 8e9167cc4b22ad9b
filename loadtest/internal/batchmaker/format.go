package batchmaker

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// none stands where there is no figure.
const none = "–"

// digits is how many leading digits figures have.
const digits = 4

// round returns a figure with a few leading digits, so that plots do not depend
// on the last bit of a quotient.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// number formats a figure with three leading digits and thousands apart.
func number(v float64) string {
	decimals := 3
	for _, power := range []float64{1, 10, 100} {
		if v >= power {
			decimals--
		}
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		return whole + "." + rest
	}
	return whole
}

// times formats a ratio.
func times(v float64) string { return fmt.Sprintf("%.2fx", v) }

// lower formats a range of shares by which something is lower.
func lower(least, most float64) string {
	one := func(share float64) string {
		if share < 0 {
			return percent(-share) + " higher"
		}
		return percent(share) + " lower"
	}
	if least > most {
		return none // nothing could be compared
	}
	return one(least) + " to " + one(most)
}

// microseconds formats a short time.
func microseconds(d time.Duration) string {
	return strconv.FormatFloat(round(float64(d)/float64(time.Microsecond)), 'f', -1, 64) + " us"
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// kept formats a percentile of the latency of an outcome, none when the server
// did not keep up.
func kept(o *outcome, p int) string {
	if !o.sustained() {
		return none
	}
	return number(o.p(p))
}

// inMilliseconds returns percentiles as numbers.
func inMilliseconds(d *[100]time.Duration) *[100]float64 {
	var v [100]float64
	for i := range d {
		v[i] = milliseconds(d[i])
	}
	return &v
}

func latencies(o *outcome) *[100]float64  { return inMilliseconds(&o.latency) }
func queueings(o *outcome) *[100]float64  { return inMilliseconds(&o.queueing) }
func computings(o *outcome) *[100]float64 { return inMilliseconds(&o.computing) }
