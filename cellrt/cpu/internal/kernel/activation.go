package kernel

import "math"

// Coefficients of interpolations at Chebyshev nodes, so close to the best
// polynomials of their degree that rounding dominates the error.
const (
	// e^r = 1 + r + r^2 (e0 + e1 r + ... + e4 r^4) for |r| <= ln(2)/2
	e0 = 0.5
	e1 = 0.16666576666119942
	e2 = 0.04166655421298538
	e3 = 0.008363232883680738
	e4 = 0.0013926250831287747

	log2E = 1.4426950408889634
	// ln 2 in two parts; the first has few bits, so that small multiples of it
	// are exact.
	ln2High = 0.693359375
	ln2Low  = -2.1219444005469057e-4
	// rounder added to and taken from a small number leaves its nearest integer;
	// in between, the number's bits less roundedZero are that integer.
	rounder     = 1.5 * (1 << 23)
	roundedZero = 0x4b400000

	// Beyond these bounds e^x is infinite, or rounds to zero, whatever x is.
	expHigh = 89
	expLow  = -104
	// From here on tanh x is 1, to float32's precision.
	tanhHigh = 10
)

// exp returns e^x within 2 units in the last place. It is +Inf and 0 beyond
// what float32 can hold; a NaN stays one.
//
// It has no branches, so that a vector unit can do the same: x is clamped to
// where the result is constant, and the power of two comes in two factors,
// because 2^n alone can lie outside float32's range. Only the last of the
// products rounds, so that one scaling that rounds once does the same.
func exp(x float32) float32 {
	if x > expHigh {
		x = expHigh
	}
	if x < expLow {
		x = expLow
	}
	below, n := power(x)
	y := 1 + below
	half := n >> 1
	return float32(float32(y*powerOfTwo(half)) * powerOfTwo(n-half))
}

// power returns e^x in parts: e^x = 2^n (1 + below).
func power(x float32) (below float32, n int32) {
	t := fma(x, log2E, rounder)
	nearest := t - rounder
	r := fma(-nearest, ln2High, x)
	r = fma(-nearest, ln2Low, r)
	p := fma(e4, r, e3)
	p = fma(p, r, e2)
	p = fma(p, r, e1)
	p = fma(p, r, e0)
	return fma(float32(r*r), p, r), int32(math.Float32bits(t)) - roundedZero
}

// powerOfTwo returns 2^n for -126 <= n <= 127.
func powerOfTwo(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// sigmoid returns 1 / (1 + e^-x) within 3 units in the last place. A NaN stays
// one.
func sigmoid(x float32) float32 { return 1 / (1 + exp(-x)) }

// tanh returns the hyperbolic tangent within 3 units in the last place, near
// zero too. A NaN stays one.
//
// It is m/(m+2) with m = e^2|x| - 1, and m is 2^n below + (2^n - 1): where x is
// small n is 0, and m has all its bits.
func tanh(x float32) float32 {
	a := abs(x)
	if a > tanhHigh {
		a = tanhHigh
	}
	below, n := power(a + a)
	scale := powerOfTwo(n)
	m := fma(below, scale, scale-1)
	m /= m + 2
	return math.Float32frombits(math.Float32bits(m) | math.Float32bits(x)&(1<<31))
}

// abs returns |x|, also of a NaN.
func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// block is how many elements of a vector a routine is given at a time, so that
// a call stays far below 100 microseconds: nothing can interrupt assembly. A
// sum over more elements than that is the sum of the blocks' sums, in order.
const block = 1 << 15

// Tanh replaces each element by its hyperbolic tangent, within 3 units in the
// last place.
func (t *Table) Tanh(v []float32) {
	for ; len(v) > block; v = v[block:] {
		t.tanh(v[:block])
	}
	t.tanh(v)
}

func tanhRow(v []float32) {
	for i, x := range v {
		v[i] = tanh(x)
	}
}

// log1p returns ln(1+s) for s >= 0, within 1e-14 relative.
func log1p(s float64) float64 {
	const (
		sqrt2      = 1.4142135623730951
		ln2        = 0.6931471805599453
		mantissa   = 1<<52 - 1
		biasedZero = 1023
	)
	if s != s || s > math.MaxFloat64 {
		return s
	}
	exponent := 0.0
	f := s / (2 + s)
	if y := 1 + s; y >= sqrt2 {
		bits := math.Float64bits(y)
		exponent = float64(int(bits>>52) - biasedZero)
		m := math.Float64frombits(bits&mantissa | biasedZero<<52)
		if m >= sqrt2 {
			m /= 2
			exponent++
		}
		f = (m - 1) / (m + 1)
	}
	// ln((1+f)/(1-f)) = 2 (f + f^3/3 + f^5/5 + ...), |f| <= 0.172.
	u := float64(f * f)
	sum := 0.0
	for odd := 19; odd >= 1; odd -= 2 {
		sum = float64(sum*u) + 1/float64(odd)
	}
	return float64(2*f*sum) + float64(exponent*ln2)
}
