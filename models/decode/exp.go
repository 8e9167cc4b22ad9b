package decode

import "math"

// ln 2 in two parts; the first has few bits, so that its small multiples are
// exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = 0x1.a39ef35793c76p-33
	log2E   = 1 / math.Ln2
)

// Terms of the series of e^r for |r| <= ln(2)/2, from the third on: 1/k!.
const (
	e2 = 1.0 / 2
	e3 = e2 / 3
	e4 = e3 / 4
	e5 = e4 / 5
	e6 = e5 / 6
	e7 = e6 / 7
	e8 = e7 / 8
	e9 = e8 / 9
)

// rounder added to a number, and taken away again, rounds it to a whole one,
// which is also in the last bits of the sum.
const rounder = 0x1.8p52

// Exp returns e^x for x <= 0, within 1e-11 relative, far closer than what
// rounding did to a logit, and 0 below leastExp. Each product is rounded before
// it is added to, so that the result is the same on machines that could fuse the
// two.
func Exp(x float64) float64 {
	if x < leastExp {
		return 0
	}
	r, power := reduce(x)
	return float64(series(r) * power)
}

// leastExp is the least x that Exp does not take for minus infinity.
const leastExp = -708

// reduce returns r and 2^n with x = n ln 2 + r and |r| <= ln(2)/2.
func reduce(x float64) (r, power float64) {
	shifted := float64(x*log2E) + rounder
	n := shifted - rounder
	r = x - float64(n*ln2High)
	r -= float64(n * ln2Low)
	return r, math.Float64frombits((math.Float64bits(shifted) + 1023) << 52)
}

// series returns e^r for |r| <= ln(2)/2.
func series(r float64) float64 {
	p := float64(e9*r) + e8
	p = float64(p*r) + e7
	p = float64(p*r) + e6
	p = float64(p*r) + e5
	p = float64(p*r) + e4
	p = float64(p*r) + e3
	p = float64(p*r) + e2
	y := float64(float64(r*r)*p) + r
	return y + 1
}
