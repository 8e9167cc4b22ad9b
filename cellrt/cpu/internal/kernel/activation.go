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

	// tanh x = x + x^3 (t0 + t1 x^2 + ... + t4 x^8) for |x| <= 0.625
	t0       = -0.33333328944134355
	t1       = 0.13332769736978253
	t2       = -0.053850909578521004
	t3       = 0.02099717899868272
	t4       = -0.006096714165130913
	tanhNear = 0.625

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
)

// exp returns e^x within 2 units in the last place. It is +Inf and 0 beyond
// what float32 can hold; a NaN stays one.
//
// It has no branches, so that a vector unit can do the same: x is clamped to
// where the result is constant, and the power of two comes in two factors,
// because 2^n alone can lie outside float32's range.
func exp(x float32) float32 {
	if x > expHigh {
		x = expHigh
	}
	if x < expLow {
		x = expLow
	}
	t := fma(x, log2E, rounder)
	n := t - rounder
	r := fma(-n, ln2High, x)
	r = fma(-n, ln2Low, r)
	p := fma(e4, r, e3)
	p = fma(p, r, e2)
	p = fma(p, r, e1)
	p = fma(p, r, e0)
	y := fma(float32(r*r), p, r)
	y++
	i := int32(math.Float32bits(t)) - roundedZero
	half := i >> 1
	return float32(y*powerOfTwo(half)) * powerOfTwo(i-half)
}

// powerOfTwo returns 2^n for -126 <= n <= 127.
func powerOfTwo(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// sigmoid returns 1 / (1 + e^-x) within 3 units in the last place. A NaN stays
// one.
func sigmoid(x float32) float32 { return 1 / (1 + exp(-x)) }

// tanh returns the hyperbolic tangent within 2 units in the last place, near
// zero too. A NaN stays one.
func tanh(x float32) float32 {
	a := abs(x)
	if a < tanhNear {
		u := float32(x * x)
		p := fma(t4, u, t3)
		p = fma(p, u, t2)
		p = fma(p, u, t1)
		p = fma(p, u, t0)
		return fma(float32(x*u), p, x)
	}
	a = 1 - 2/(exp(2*a)+1)
	return math.Float32frombits(math.Float32bits(a) | math.Float32bits(x)&(1<<31))
}

// abs returns |x|, also of a NaN.
func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Tanh replaces each element by its hyperbolic tangent, within 2 units in the
// last place.
func (t *Table) Tanh(v []float32) { t.tanh(v) }

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
