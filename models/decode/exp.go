package decode

import "math"

// ln 2 in two parts; the first has few bits, so that its small multiples are
// exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = 0x1.a39ef35793c76p-33
	log2E   = 1 / math.Ln2
)

// expTerms is how many terms of e^r's series matter for |r| <= ln(2)/2.
const expTerms = 15

// exp returns e^x for x <= 0, within 1e-15 relative and 0 below -708. Each
// product is rounded before it is added to, so that the result is the same on
// machines that could fuse the two.
func exp(x float64) float64 {
	if x < -708 {
		return 0
	}
	n := math.RoundToEven(float64(x * log2E))
	r := x - float64(n*ln2High)
	r -= float64(n * ln2Low)
	// e^r = 1 + r (1 + r/2 (1 + r/3 (...)))
	sum := 1.0
	for k := float64(expTerms); k >= 1; k-- {
		sum = 1 + float64(float64(r/k)*sum)
	}
	return sum * math.Float64frombits(uint64(int64(n)+1023)<<52)
}
