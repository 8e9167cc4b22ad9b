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
		b.accumulate(s.weight, out, b.value(v), from, s.widths[i])
		from += s.widths[i]
	}
	if s.op.Act == cellrt.Tanh {
		b.eachRow(s, s.weight.N*activationWork)
	}
}

// rows applies the activation.
func (s *linearStep) rows(b *batch, from, to int) {
	out := b.value(s.op.Out)
	for r := from; r < to; r++ {
		kernel.TanhRow(out.Row(r, s.weight.N))
	}
}

// attendStep reads the memory in each row's slot.
type attendStep struct {
	op     cellrt.Attend
	place  place
	scores cellrt.Value
}

func (s *attendStep) run(b *batch) {
	entries := 0
	for r := range b.rows {
		entries += max(0, b.arg(r, s.op.Length))
	}
	b.eachRow(s, 2*s.place.width*entries/len(b.rows))
}

func (s *attendStep) rows(b *batch, from, to int) {
	query, scores, out := b.value(s.op.Query), b.value(s.scores), b.value(s.op.Out)
	width := s.place.width
	for r := from; r < to; r++ {
		length := max(0, b.arg(r, s.op.Length))
		if length > s.place.count {
			panic(fmt.Sprintf("cellrt/cpu: %d entries of field %s, which has %d", length, s.place.name, s.place.count))
		}
		memory := b.field(r, s.place.offset, length*width)
		kernel.Attend(query.Row(r, width), memory, scores.Row(r, length), out.Row(r, width))
	}
}
