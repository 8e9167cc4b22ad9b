package decode

import "math/bits"

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3" (2011): ten rounds of multiplication
// turn a counter and a key into four words that are as good as random.
const (
	philoxRounds      = 10
	philoxMultiplier0 = 0xD2511F53
	philoxMultiplier1 = 0xCD9E8D57
	philoxWeyl0       = 0x9E3779B9
	philoxWeyl1       = 0xBB67AE85
)

// philox returns the block of random words at a counter under a key.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range philoxRounds {
		high0, low0 := bits.Mul32(philoxMultiplier0, counter[0])
		high1, low1 := bits.Mul32(philoxMultiplier1, counter[2])
		counter = [4]uint32{high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0}
		key[0] += philoxWeyl0
		key[1] += philoxWeyl1
	}
	return counter
}

// uniform returns the random number of a step under a seed: a multiple of
// 2^-53 from 0 up to but not including 1.
func uniform(seed, step uint64) float64 {
	block := philox([4]uint32{uint32(step), uint32(step >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(block[1])<<32|uint64(block[0]))>>11) * (1.0 / (1 << 53))
}
