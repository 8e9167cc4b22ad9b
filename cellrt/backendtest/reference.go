package backendtest

import (
	"math"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// reference computes cells row by row in float64, following the documentation
// of the operations and nothing else.
type reference struct {
	weights cellrt.Weights
	layout  *cellrt.Layout
	state   []float64 // of one slot
	values  [][]float64
	output  cellrt.Output // without Values
	exposed []float64
}

func newReference(weights cellrt.Weights, layout *cellrt.Layout, state []float32) *reference {
	r := &reference{weights: weights, layout: layout, state: make([]float64, len(state))}
	for i, x := range state {
		r.state[i] = float64(x)
	}
	return r
}

// run computes a cell for one row.
func (r *reference) run(c *cellrt.Cell, row cellrt.Row) {
	r.values = make([][]float64, c.Values())
	arg := func(a cellrt.Arg) int {
		if a == cellrt.Zero {
			return 0
		}
		return int(row.Args[a])
	}
	for _, op := range c.Ops() {
		switch op := op.(type) {
		case cellrt.Embed:
			id := arg(op.ID)
			r.values[op.Out] = widen(op.Table.Data[id*op.Table.Cols : (id+1)*op.Table.Cols])
		case cellrt.Load:
			out := make([]float64, r.layout.Field(op.Field).Width)
			if index := arg(op.Index); index >= 0 {
				copy(out, r.entry(op.Field, index))
			}
			r.values[op.Out] = out
		case cellrt.Store:
			copy(r.entry(op.Field, arg(op.Index))[op.Column:], r.values[op.In])
		case cellrt.Linear:
			r.linear(op)
		case cellrt.LSTM:
			r.lstm(op)
		case cellrt.GRU:
			r.gru(op)
		case cellrt.Attend:
			r.attend(op, arg(op.Length))
		case cellrt.Add:
			r.values[op.Out] = add(slices.Clone(r.values[op.A]), r.values[op.B])
		case cellrt.Mean:
			out := slices.Clone(r.values[op.Sum])
			for i := range out {
				out[i] /= float64(arg(op.Count))
			}
			r.values[op.Out] = out
		case cellrt.TreeLeaf:
			r.treeLeaf(op)
		case cellrt.TreeNode:
			r.treeNode(op)
		case cellrt.Greedy:
			r.greedy(op)
		case cellrt.Expose:
			r.exposed = r.values[op.In]
		}
	}
}

// check compares the output of a row with the reference's.
func (r *reference) check(t *testing.T, row int, got cellrt.Output) {
	t.Helper()
	want := r.output
	if got.Token != want.Token || !r.near(float64(got.LogProb), float64(want.LogProb)) {
		t.Errorf("row %d output %v, want %v", row, got, want)
	}
	if len(got.Values) != len(r.exposed) {
		t.Fatalf("row %d has %d output values, want %d", row, len(got.Values), len(r.exposed))
	}
	for i, x := range got.Values {
		if !r.near(float64(x), r.exposed[i]) {
			t.Fatalf("row %d output value %d = %g, want %g", row, i, x, r.exposed[i])
		}
	}
}

func (r *reference) entry(f cellrt.FieldID, index int) []float64 {
	width := r.layout.Field(f).Width
	from := r.layout.Offset(f) + index*width
	return r.state[from : from+width]
}

func (r *reference) linear(op cellrt.Linear) {
	var in [][]float64
	for _, v := range op.In {
		in = append(in, r.values[v])
	}
	out := r.product(op.Weight, op.Bias, in...)
	if op.Act == cellrt.Tanh {
		for i := range out {
			out[i] = math.Tanh(out[i])
		}
	}
	r.values[op.Out] = out
}

func (r *reference) lstm(op cellrt.LSTM) {
	x, h, c := r.values[op.X], r.values[op.H], r.values[op.C]
	gates := add(r.product(op.Input, op.Bias, x), r.product(op.Recurrent, nil, h))
	n := len(h)
	outH, outC := make([]float64, n), make([]float64, n)
	for j := range n {
		i, f, g, o := sigmoid(gates[j]), sigmoid(gates[n+j]), math.Tanh(gates[2*n+j]), sigmoid(gates[3*n+j])
		outC[j] = f*c[j] + i*g
		outH[j] = o * math.Tanh(outC[j])
	}
	r.values[op.OutH], r.values[op.OutC] = outH, outC
}

func (r *reference) gru(op cellrt.GRU) {
	h := r.values[op.H]
	in, rec := r.product(op.Input, op.InputBias, r.values[op.X]), r.product(op.Recurrent, op.RecurrentBias, h)
	n := len(h)
	out := make([]float64, n)
	for j := range n {
		reset, update := sigmoid(in[j]+rec[j]), sigmoid(in[n+j]+rec[n+j])
		candidate := math.Tanh(in[2*n+j] + reset*rec[2*n+j])
		out[j] = (1-update)*candidate + update*h[j]
	}
	r.values[op.OutH] = out
}

func (r *reference) attend(op cellrt.Attend, length int) {
	query := r.values[op.Query]
	weights, sum := make([]float64, length), 0.0
	for t := range weights {
		score := 0.0
		for j, x := range r.entry(op.Memory, t) {
			score += x * query[j]
		}
		weights[t] = math.Exp(score)
		sum += weights[t]
	}
	out := make([]float64, len(query))
	for t, w := range weights {
		for j, x := range r.entry(op.Memory, t) {
			out[j] += w / sum * x
		}
	}
	r.values[op.Out] = out
}

func (r *reference) greedy(op cellrt.Greedy) {
	logits := r.values[op.Logits]
	best, sum := 0, 0.0
	for i, x := range logits {
		sum += math.Exp(x)
		if x > logits[best] {
			best = i
		}
	}
	r.output = cellrt.Output{Token: int32(best), LogProb: float32(logits[best] - math.Log(sum))}
}

func (r *reference) treeLeaf(op cellrt.TreeLeaf) {
	gates := r.product(op.Weight, op.Bias, r.values[op.X])
	n := len(gates) / 3
	h, c := make([]float64, n), make([]float64, n)
	for j := range n {
		c[j] = sigmoid(gates[j]) * math.Tanh(gates[2*n+j])
		h[j] = sigmoid(gates[n+j]) * math.Tanh(c[j])
	}
	r.values[op.OutH], r.values[op.OutC] = h, c
}

func (r *reference) treeNode(op cellrt.TreeNode) {
	gates := r.product(op.Weight, op.Bias, r.values[op.LeftH], r.values[op.RightH])
	left, right := r.values[op.LeftC], r.values[op.RightC]
	n := len(left)
	h, c := make([]float64, n), make([]float64, n)
	for j := range n {
		c[j] = sigmoid(gates[j])*math.Tanh(gates[2*n+j]) + sigmoid(gates[3*n+j])*left[j] + sigmoid(gates[4*n+j])*right[j]
		h[j] = sigmoid(gates[n+j]) * math.Tanh(c[j])
	}
	r.values[op.OutH], r.values[op.OutC] = h, c
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func add(a, b []float64) []float64 {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
