package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// linearStep multiplies by a matrix.
type linearStep struct {
	op     cellrt.Linear
	weight *kernel.Matrix
	bias   []float32 // zeros when the operation has none
	widths []int     // of the inputs
}

func (c *cellCompiler) linear(op cellrt.Linear) step {
	w := op.Weight
	s := &linearStep{op: op, bias: op.Bias}
	s.weight = c.packLinear(w)
	if s.bias == nil {
		s.bias = make([]float32, w.Rows)
	}
	c.keep(s.bias)
	for _, v := range op.In {
		s.widths = append(s.widths, c.cell.Width(v))
	}
	return s
}

// packLinear packs a matrix by itself.
func (c *compiler) packLinear(w *cellrt.Matrix) *kernel.Matrix {
	return c.pack(packKey{input: w}, func() *packedWeights {
		return &packedWeights{main: kernel.Pack(w.Rows, [][]float32{w.Data}, []int{w.Cols})}
	}).main
}

func (s *linearStep) run(b *batch) {
	n := len(b.rows)
	out := b.value(s.op.Out)
	out.Fill(n, s.bias)
	from := 0
	for i, v := range s.op.In {
		kernel.Accumulate(s.weight, out, b.value(v), n, from, s.widths[i])
		from += s.widths[i]
	}
	if s.op.Act == cellrt.Tanh {
		for r := range n {
			kernel.TanhRow(out.Row(r, s.weight.N))
		}
	}
}

// attendStep reads the memory in each row's slot.
type attendStep struct {
	op     cellrt.Attend
	place  place
	scores cellrt.Value
}

func (s *attendStep) run(b *batch) {
	query, scores, out := b.value(s.op.Query), b.value(s.scores), b.value(s.op.Out)
	width := s.place.width
	for r := range b.rows {
		length := max(0, b.arg(r, s.op.Length))
		if length > s.place.count {
			panic(fmt.Sprintf("cellrt/cpu: %d entries of field %s, which has %d", length, s.place.name, s.place.count))
		}
		memory := b.field(r, s.place.offset, length*width)
		kernel.Attend(query.Row(r, width), memory, scores.Row(r, length), out.Row(r, width))
	}
}
