package backendtest

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// product returns m times the concatenation of in, plus bias, with the weights
// as their type stores them.
func (r *reference) product(m *cellrt.Matrix, bias []float32, in ...[]float64) []float64 {
	out := make([]float64, m.Rows)
	for n := range out {
		if bias != nil {
			out[n] = float64(bias[n])
		}
		from := n * m.Cols
		for _, x := range in {
			out[n] += r.dot(m.Data[from:from+len(x)], x)
			from += len(x)
		}
	}
	return out
}

// dot is the product of one output's weights with one input.
func (r *reference) dot(w []float32, x []float64) float64 {
	weights := widen(w)
	switch r.weights {
	case cellrt.BF16:
		for i, v := range w {
			b := math.Float32bits(v)
			weights[i] = float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
		}
	case cellrt.Int8:
		weights, x = coded(weights), coded(x)
	}
	sum := 0.0
	for k, v := range x {
		sum += weights[k] * v
	}
	return sum
}

// coded returns the values nearest to v of 255 evenly spaced ones that reach as
// far as v does.
func coded(v []float64) []float64 {
	largest := 0.0
	for _, x := range v {
		largest = max(largest, math.Abs(x))
	}
	out := make([]float64, len(v))
	if largest == 0 {
		return out
	}
	scale := largest / 127
	for i, x := range v {
		out[i] = math.RoundToEven(x/scale) * scale
	}
	return out
}

// near says whether a result is close enough to the reference's. Codes of 8
// bits are the coarse exception: where the reference's value is about half way
// between two codes, the backend's may have become the other one.
func (r *reference) near(got, want float64) bool {
	tolerance := float64(tolerance)
	if r.weights == cellrt.Int8 {
		tolerance = codedTolerance
	}
	return math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}
