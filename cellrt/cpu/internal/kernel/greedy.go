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
	others := t.sumExps(logits[:index], largest) + t.sumExps(logits[index+1:], largest)
	return index, float32(0 - log1p(others)) // 0, not -0, for a certain one
}

// argMax returns the lowest index of the largest element, and whether all are
// finite; if not, the index means nothing.
func (t *Table) argMax(v []float32) (index int, finite bool) {
	largest, start := float32(math.Inf(-1)), 0
	for from := 0; from < len(v); from += block {
		here, finite := t.largest(v[from:min(from+block, len(v))])
		if !finite {
			return 0, false
		}
		if here > largest {
			largest, start = here, from
		}
	}
	return start + t.find(v[start:min(start+block, len(v))], largest), true
}

// sumExps returns the sum of e^(v[i]-largest).
func (t *Table) sumExps(v []float32, largest float32) float64 {
	sum := 0.0
	for from := 0; from < len(v); from += block {
		sum += t.sumExp(v[from:min(from+block, len(v))], largest)
	}
	return sum
}

// largestOf returns the largest of the elements that are no NaN, -Inf without
// any, and whether all are finite. Which zero it returns is left open.
func largestOf(v []float32) (largest float32, finite bool) {
	largest, finite = float32(math.Inf(-1)), true
	for _, x := range v {
		if x-x != 0 {
			finite = false
		}
		if x > largest {
			largest = x
		}
	}
	return largest, finite
}

// find returns the lowest index of an element that equals x, or the number of
// elements when there is none.
func find(v []float32, x float32) int {
	for i, y := range v {
		if x == y {
			return i
		}
	}
	return len(v)
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
