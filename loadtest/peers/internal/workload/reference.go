package workload

import (
	"fmt"
	"math"
)

// mostSamples is how many results are checked at most.
const mostSamples = 4096

// Samples returns the places in the results at which they are checked: all of
// a small result, spread evenly but in no step with rows or vectors otherwise.
func (c Case) Samples() []int {
	total := c.Outputs()
	at := make([]int, min(total, mostSamples))
	for i := range at {
		from, to := i*total/len(at), (i+1)*total/len(at)
		at[i] = from + int(number(0, i, 0.5)*float32(to-from)+float32(to-from)/2)
		at[i] = min(max(at[i], from), to-1)
	}
	return at
}

// reference computes single results in float64.
type reference struct {
	c  Case
	p  Parameters
	in Inputs
}

// Want returns the right results at the given places.
func (c Case) Want(p Parameters, at []int) []float64 {
	r := reference{c: c, p: p, in: c.MakeInputs()}
	want := make([]float64, len(at))
	for i, place := range at {
		want[i] = r.result(place/c.OutputWidth(), place%c.OutputWidth())
	}
	return want
}

func (r *reference) result(row, column int) float64 {
	switch r.c.Kind {
	case LSTM:
		return r.lstm(row, column%r.c.Units, column < r.c.Units)
	case GRU:
		return r.gru(row, column)
	case Product:
	}
	return r.input(row, column)
}

// input returns W x + b for one output.
func (r *reference) input(row, output int) float64 {
	k := r.c.Inputs
	return float64(r.p.Bias[output]) + dot(r.p.Weight[output*k:(output+1)*k], r.in.X[row*k:(row+1)*k])
}

// recurrent returns U h for one output.
func (r *reference) recurrent(row, output int) float64 {
	k := r.c.Units
	return dot(r.p.Recurrent[output*k:(output+1)*k], r.in.H[row*k:(row+1)*k])
}

func (r *reference) lstm(row, unit int, hidden bool) float64 {
	n := r.c.Units
	gate := func(g int) float64 { return r.input(row, g*n+unit) + r.recurrent(row, g*n+unit) }
	c := sigmoid(gate(1))*float64(r.in.C[row*n+unit]) + sigmoid(gate(0))*math.Tanh(gate(2))
	if !hidden {
		return c
	}
	return sigmoid(gate(3)) * math.Tanh(c)
}

func (r *reference) gru(row, unit int) float64 {
	n := r.c.Units
	recurrent := func(g int) float64 { return r.recurrent(row, g*n+unit) + float64(r.p.RecurrentBias[g*n+unit]) }
	reset := sigmoid(r.input(row, unit) + recurrent(0))
	update := sigmoid(r.input(row, n+unit) + recurrent(1))
	candidate := math.Tanh(r.input(row, 2*n+unit) + reset*recurrent(2))
	return (1-update)*candidate + update*float64(r.in.H[row*n+unit])
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// tolerance returns the largest root mean square error that results may have,
// relative to their own root mean square.
func (w Weights) tolerance() float64 {
	switch w {
	case BF16:
		return 1e-2
	case Int8:
		return 3e-2
	case F32:
	}
	return 1e-5
}

// worst is how much larger than the tolerance a single error may be.
const worst = 10

// Check compares results with those wanted. It returns the root mean square of
// the errors, relative to that of the results, and an error if it, or a single
// one of the errors, is larger than weights of this kind explain. Results that
// are too good for such weights are not what was asked for either.
func (c Case) Check(got []float32, want []float64) (float64, error) {
	if len(got) != len(want) || len(want) == 0 {
		return 0, fmt.Errorf("%d results, want %d", len(got), len(want))
	}
	squares, errors, largest, place := 0.0, 0.0, 0.0, 0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - w)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return 0, fmt.Errorf("result %d is %g, want %g", i, got[i], w)
		}
		squares += w * w
		errors += d * d
		if d > largest {
			largest, place = d, i
		}
	}
	size := math.Sqrt(squares / float64(len(want)))
	relative := math.Sqrt(errors/float64(len(want))) / size
	if tolerance := c.Weights.tolerance(); relative > tolerance || largest > worst*tolerance*size {
		return relative, fmt.Errorf("wrong results: relative error %.2g, result %d is %g, want %g", relative, place, got[place], want[place])
	}
	if c.Weights != F32 && relative < F32.tolerance() {
		return relative, fmt.Errorf("relative error %.2g: the weights are not %s", relative, c.Weights)
	}
	return relative, nil
}
