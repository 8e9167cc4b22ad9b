//go:build !arm64

package kernel

import "math"

// fma returns x*y + z rounded once to float32, as IEEE 754 defines
// fusedMultiplyAdd, in portable arithmetic.
//
// The product of two float32 values is exact in float64, so the sum below is
// x*y + z rounded to 53 bits. Rounding that again to 24 bits is right unless
// the first rounding fell on a point half way between two float32 values, or
// the result has fewer than 24 bits; these cases go the long way.
func fma(x, y, z float32) float32 {
	s := float64(x)*float64(y) + float64(z)
	if doubtful(s) {
		return roundOnce(float64(x)*float64(y), float64(z), s)
	}
	return float32(s)
}

// doubtful says whether rounding s to float32 may differ from rounding what s
// was rounded from: s is half way between two float32 values, or below 2^-126,
// the least normal one.
func doubtful(s float64) bool {
	b := math.Float64bits(s)
	return b<<35 == 1<<63 || b&^(1<<63) < leastNormal
}

// leastNormal is 2^-126 as bits of a float64.
const leastNormal = 0x3810000000000000

// roundOnce returns p + z rounded to float32, s being the sum rounded to
// float64. It rounds to odd first: an inexact s whose last bit is even moves to
// its odd neighbour on the side of the exact sum, from where a second rounding
// to at most 51 bits goes where a single one would have gone (Boldo and
// Melquiond 2008, "Emulation of FMA and correctly rounded sums").
//
//go:noinline
func roundOnce(p, z, s float64) float32 {
	// TwoSum: s + e is exactly p + z (Knuth, The Art of Computer Programming,
	// volume 2, section 4.2.2).
	v := s - p
	e := (p - (s - v)) + (z - v)
	bits := math.Float64bits(s)
	if e != 0 && e == e && bits&1 == 0 {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}
