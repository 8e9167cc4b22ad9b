package kernel

import "math"

// Greedy returns the lowest index of the largest logit and the logarithm of its
// softmax, accurate however close to 0 it is. When a logit is not finite it
// returns 0 and NaN. There is at least one logit.
func (t *Table) Greedy(logits []float32) (index int, logProb float32) {
	index, finite := t.argMax(logits)
	if !finite {
		return 0, float32(math.NaN())
	}
	// Without the largest itself: what the others add to it may be tiny.
	largest := logits[index]
	others := t.sumExp(logits[:index], largest) + t.sumExp(logits[index+1:], largest)
	return index, float32(0 - log1p(others)) // 0, not -0, for a certain one
}

// argMax returns the lowest index of the largest element, and whether all are
// finite; if not, the index means nothing.
func argMax(v []float32) (index int, finite bool) {
	finite = true
	for i, x := range v {
		if x-x != 0 {
			finite = false
		}
		if x > v[index] {
			index = i
		}
	}
	return index, finite
}

// sumExp returns the sum of e^(v[i]-largest) in lanes of float64, so that
// summing many terms loses nothing.
func sumExp(v []float32, largest float32) float64 {
	var sums [lanes]float64
	for i, x := range v {
		sums[i%lanes] += float64(exp(x - largest))
	}
	return sumLanes(&sums)
}
