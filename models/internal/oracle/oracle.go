package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cellmq/cellmq/cellrt"
)

// Result is what a graph gave.
type Result struct {
	Tokens []cellrt.Token
	Reason cellrt.Reason
	// Nodes counts the nodes that ran, by the cell's name.
	Nodes map[string]int
}

// Oracle runs the graphs of one program, one at a time, in a slot that keeps
// whatever the graph before left there. It belongs to one goroutine.
type Oracle struct {
	// Order picks which of n ready nodes runs next; nil runs the oldest.
	Order func(n int) int

	program *cellrt.Program
	slot    []float64
	values  [][]float64
}

// New returns an oracle whose slot is filled with noise.
func New(p *cellrt.Program) *Oracle {
	o := &Oracle{program: p, slot: make([]float64, p.Layout.Size())}
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range o.slot {
		o.slot[i] = 100 * rng.NormFloat64()
	}
	return o
}

// Run runs g to its end. It fails when the graph fails or goes quiet.
func (o *Oracle) Run(g cellrt.Graph) (Result, error) {
	var (
		f     cellrt.Frontier
		ready []cellrt.Node
		r     = Result{Nodes: make(map[string]int)}
	)
	g.Start(&f)
	for {
		r.Tokens = append(r.Tokens, f.Tokens()...)
		reason, err := f.Done()
		if err != nil {
			return r, fmt.Errorf("graph failed: %w", err)
		}
		if reason != 0 {
			r.Reason = reason
			return r, nil
		}
		ready = append(ready, f.Nodes()...)
		if len(ready) == 0 {
			return r, fmt.Errorf("graph stalled: %w", cellrt.ErrStalled)
		}
		i := 0
		if o.Order != nil {
			i = o.Order(len(ready))
		}
		n := ready[i]
		ready = append(ready[:i], ready[i+1:]...)
		r.Nodes[n.Cell.Name]++
		out := o.node(n)
		f.Reset()
		g.Advance(n, out, &f)
	}
}

// node computes one node.
func (o *Oracle) node(n cellrt.Node) cellrt.Output {
	o.values = make([][]float64, n.Cell.Values())
	var out cellrt.Output
	arg := func(a cellrt.Arg) int {
		if a == cellrt.Zero {
			return 0
		}
		return int(n.Args[a])
	}
	for _, op := range n.Cell.Ops() {
		switch op := op.(type) {
		case cellrt.Embed:
			o.values[op.Out] = row(op.Table, arg(op.ID))
		case cellrt.Load:
			o.values[op.Out] = o.load(op.Field, arg(op.Index))
		case cellrt.Store:
			copy(o.entry(op.Field, arg(op.Index))[op.Column:], o.values[op.In])
		case cellrt.Linear:
			o.values[op.Out] = o.linear(op)
		case cellrt.LSTM:
			o.values[op.OutH], o.values[op.OutC] = o.lstm(op)
		case cellrt.GRU:
			o.values[op.OutH] = o.gru(op)
		case cellrt.Attend:
			o.values[op.Out] = o.attend(op, arg(op.Length))
		case cellrt.Add:
			o.values[op.Out] = add(o.values[op.A], o.values[op.B])
		case cellrt.Mean:
			o.values[op.Out] = divide(o.values[op.Sum], arg(op.Count))
		case cellrt.TreeLeaf:
			o.values[op.OutH], o.values[op.OutC] = o.treeLeaf(op)
		case cellrt.TreeNode:
			o.values[op.OutH], o.values[op.OutC] = o.treeNode(op)
		case cellrt.Expose:
			out.Values = singles(o.values[op.In])
		case cellrt.Greedy:
			chosen := greedy(o.values[op.Logits])
			chosen.Values = out.Values
			out = chosen
		default:
			panic(fmt.Sprintf("oracle: unknown operation %T", op))
		}
	}
	return out
}

// entry returns the values of one entry of a field.
func (o *Oracle) entry(f cellrt.FieldID, index int) []float64 {
	field := o.program.Layout.Field(f)
	if index < 0 || index >= field.Count {
		panic(fmt.Sprintf("oracle: entry %d of field %s, which has %d", index, field.Name, field.Count))
	}
	start := o.program.Layout.Offset(f) + index*field.Width
	return o.slot[start : start+field.Width]
}

func (o *Oracle) load(f cellrt.FieldID, index int) []float64 {
	out := make([]float64, o.program.Layout.Field(f).Width)
	if index >= 0 {
		copy(out, o.entry(f, index))
	}
	return out
}

func (o *Oracle) linear(op cellrt.Linear) []float64 {
	var in []float64
	for _, v := range op.In {
		in = append(in, o.values[v]...)
	}
	out := affine(op.Weight, op.Bias, in)
	if op.Act == cellrt.Tanh {
		for i := range out {
			out[i] = math.Tanh(out[i])
		}
	}
	return out
}

func (o *Oracle) lstm(op cellrt.LSTM) (h, c []float64) {
	x := affine(op.Input, op.Bias, o.values[op.X])
	r := affine(op.Recurrent, nil, o.values[op.H])
	n := len(o.values[op.H])
	h, c = make([]float64, n), make([]float64, n)
	for j := range n {
		in, forget := sigmoid(x[j]+r[j]), sigmoid(x[n+j]+r[n+j])
		candidate, out := math.Tanh(x[2*n+j]+r[2*n+j]), sigmoid(x[3*n+j]+r[3*n+j])
		c[j] = forget*o.values[op.C][j] + in*candidate
		h[j] = out * math.Tanh(c[j])
	}
	return h, c
}

func (o *Oracle) gru(op cellrt.GRU) []float64 {
	x := affine(op.Input, op.InputBias, o.values[op.X])
	r := affine(op.Recurrent, op.RecurrentBias, o.values[op.H])
	n := len(o.values[op.H])
	h := make([]float64, n)
	for j := range n {
		reset, update := sigmoid(x[j]+r[j]), sigmoid(x[n+j]+r[n+j])
		candidate := math.Tanh(x[2*n+j] + reset*r[2*n+j])
		h[j] = (1-update)*candidate + update*o.values[op.H][j]
	}
	return h
}

func (o *Oracle) attend(op cellrt.Attend, length int) []float64 {
	query := o.values[op.Query]
	scores := make([]float64, length)
	for p := range scores {
		for k, m := range o.entry(op.Memory, p) {
			scores[p] += m * query[k]
		}
	}
	total := logSumExp(scores)
	out := make([]float64, len(query))
	for p, s := range scores {
		weight := math.Exp(s - total)
		for k, m := range o.entry(op.Memory, p) {
			out[k] += weight * m
		}
	}
	return out
}

func greedy(logits []float64) cellrt.Output {
	best := 0
	for i, v := range logits {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return cellrt.Output{LogProb: float32(math.NaN())}
		}
		if v > logits[best] {
			best = i
		}
	}
	sum := logSumExp(logits)
	return cellrt.Output{Token: int32(best), LogProb: float32(logits[best] - sum)}
}

func row(m *cellrt.Matrix, i int) []float64 {
	if i < 0 || i >= m.Rows {
		panic(fmt.Sprintf("oracle: row %d of %s, which has %d", i, m.Name, m.Rows))
	}
	out := make([]float64, m.Cols)
	for k := range out {
		out[k] = float64(m.Data[i*m.Cols+k])
	}
	return out
}

func affine(m *cellrt.Matrix, bias []float32, in []float64) []float64 {
	out := make([]float64, m.Rows)
	for i := range out {
		if bias != nil {
			out[i] = float64(bias[i])
		}
		for k, w := range m.Data[i*m.Cols : (i+1)*m.Cols] {
			out[i] += float64(w) * in[k]
		}
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func logSumExp(v []float64) float64 {
	top := math.Inf(-1)
	for _, x := range v {
		top = max(top, x)
	}
	sum := 0.0
	for _, x := range v {
		sum += math.Exp(x - top)
	}
	return top + math.Log(sum)
}
