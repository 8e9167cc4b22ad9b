//go:build !purego

package kernel

// fillTiles sets the tiles of a tier that has some of its own.
func fillTiles(tier string, f32 *tiling[float32], bf16 *tiling[uint16]) bool {
	switch tier {
	case "avx2":
		fillF32AVX2(f32)
		fillBF16AVX2(bf16)
	case "avx512":
		fillF32AVX512(f32)
		fillBF16AVX512(bf16)
	default:
		return false
	}
	return true
}

// tierTilings returns the tilings of all tiers.
func tierTilings() []tierTiling {
	const weights, multiplies = 128 << 10, 1 << 20
	narrow, wide := tierTiling{name: "avx2", width: 16, weights: weights, multiplies: multiplies}, tierTiling{name: "avx512", width: 32, weights: weights, multiplies: multiplies}
	narrow.f32, narrow.bf16 = avx2Tilings()
	wide.f32, wide.bf16 = avx512Tilings()
	return []tierTiling{narrow, wide}
}
