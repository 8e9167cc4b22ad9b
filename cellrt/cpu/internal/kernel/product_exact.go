//go:build !arm64

package kernel

import "math"

// chains advances the chains of neighbouring columns over all of x; w holds
// their weights, stride values apart.
//
// It is [fma] written out for all columns at once, because a call and a branch
// for each would take most of the time. half is the least integer if one of the
// sums is half way between two float32 values, and least is small if one of them
// is; a sum of 0, whose pattern less 1 is large, is exact.
func chains(y, init *[chainColumns]float32, x, w []float32, stride int) {
	a0, a1, a2, a3 := float64(init[0]), float64(init[1]), float64(init[2]), float64(init[3])
	a4, a5, a6, a7 := float64(init[4]), float64(init[5]), float64(init[6]), float64(init[7])
	for i, x := range x {
		k := (*[chainColumns]float32)(w[i*stride:])
		v := float64(x)
		s0 := v*float64(k[0]) + a0
		b := math.Float64bits(s0)
		half, large := int64(b<<35), b+aboveSmall
		s1 := v*float64(k[1]) + a1
		b = math.Float64bits(s1)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s2 := v*float64(k[2]) + a2
		b = math.Float64bits(s2)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s3 := v*float64(k[3]) + a3
		b = math.Float64bits(s3)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s4 := v*float64(k[4]) + a4
		b = math.Float64bits(s4)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s5 := v*float64(k[5]) + a5
		b = math.Float64bits(s5)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s6 := v*float64(k[6]) + a6
		b = math.Float64bits(s6)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		s7 := v*float64(k[7]) + a7
		b = math.Float64bits(s7)
		half, large = min(half, int64(b<<35)), large&(b+aboveSmall)
		if half == math.MinInt64 || large&(1<<62) == 0 {
			a0 = float64(fma(x, k[0], float32(a0)))
			a1 = float64(fma(x, k[1], float32(a1)))
			a2 = float64(fma(x, k[2], float32(a2)))
			a3 = float64(fma(x, k[3], float32(a3)))
			a4 = float64(fma(x, k[4], float32(a4)))
			a5 = float64(fma(x, k[5], float32(a5)))
			a6 = float64(fma(x, k[6], float32(a6)))
			a7 = float64(fma(x, k[7], float32(a7)))
			continue
		}
		a0, a1, a2, a3 = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
		a4, a5, a6, a7 = float64(float32(s4)), float64(float32(s5)), float64(float32(s6)), float64(float32(s7))
	}
	y[0], y[1], y[2], y[3] = float32(a0), float32(a1), float32(a2), float32(a3)
	y[4], y[5], y[6], y[7] = float32(a4), float32(a5), float32(a6), float32(a7)
}

// aboveSmall added to the bits of a number of at least 2^-63 sets bit 62.
const aboveSmall = 0x40 << 52
