//go:build !purego

package kernel

// fillTiles sets the tiles of a tier that has some of its own.
func fillTiles(tier string, f32 *tiling[float32], bf16 *tiling[uint16]) bool {
	if tier != "neon" {
		return false
	}
	fillF32NEON(f32)
	fillBF16NEON(bf16)
	return true
}

// tierTilings returns the tilings of all tiers.
func tierTilings() []tierTiling {
	tier := tierTiling{name: "neon", width: 16, weights: 64 << 10, multiplies: 1 << 19}
	tier.f32, tier.bf16 = neonTilings()
	return []tierTiling{tier}
}
