package kernel

import "math"

// Greedy returns the lowest index of the largest logit and the logarithm of its
// softmax, accurate however close to 0 it is. When a logit is not finite it
// returns 0 and NaN.
func Greedy(logits []float32) (index int, logProb float32) {
	for i, x := range logits {
		if x-x != 0 {
			return 0, float32(math.NaN())
		}
		if x > logits[index] {
			index = i
		}
	}
	// In float64, so that summing many terms loses nothing.
	largest, others := logits[index], 0.0
	for i, x := range logits {
		if i != index {
			others += float64(Exp(x - largest))
		}
	}
	return index, float32(0 - log1p(others)) // 0, not -0, for a certain one
}
