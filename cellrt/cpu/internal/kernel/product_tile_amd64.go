//go:build !purego

package kernel

// The spans below are the fastest ones measured with weights in the second and
// in the third level of cache. Several panels at once feed chains enough for few
// rows and use an input, or a widened weight, more often; one panel at a time
// reads memory in one stream that can be prefetched.

// avx2Tilings returns the tilings of AVX2. Its 16 registers hold 12
// accumulators.
func avx2Tilings() (*tiling[float32], *tiling[uint16]) {
	f := newTiling[float32](16, []int{0, 4, 3, 2, 1, 2, 1, 2})
	fillF32AVX2(f)
	h := newTiling[uint16](16, []int{0, 4, 3, 3, 3, 1, 1, 3, 3, 1})
	fillBF16AVX2(h)
	return f, h
}

// avx512Tilings returns the tilings of AVX-512. Its 32 registers hold 28
// accumulators.
func avx512Tilings() (*tiling[float32], *tiling[uint16]) {
	f := newTiling[float32](32, []int{0, 4, 4, 4, 3, 2, 2, 1})
	fillF32AVX512(f)
	h := newTiling[uint16](32, []int{0, 4, 4, 4, 3, 2})
	fillBF16AVX512(h)
	return f, h
}
