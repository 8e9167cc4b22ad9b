package kernel

import "math"

// Greedy returns the lowest index of the largest logit, the logarithm of its
// softmax, and that of the softmax's denominator, logSum: a logit less logSum
// is the logarithm of its softmax, in the same bits for the largest. When a
// logit is not finite it returns 0 and NaN twice.
func Greedy(logits []float32) (index int, logProb, logSum float32) {
	for i, x := range logits {
		if x-x != 0 {
			nan := float32(math.NaN())
			return 0, nan, nan
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
	logSum = float32(float64(largest) + log1p(others))
	return index, largest - logSum, logSum
}
