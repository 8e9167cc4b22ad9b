package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// linearStep multiplies by a matrix and applies an activation. A piece of it
// is a panel.
type linearStep struct {
	out     cellrt.Value
	width   int // of out
	act     cellrt.Activation
	bias    []float32 // by packed column; zeros when the operation has none
	parts   []linearPart
	weights int
}

// linearPart is the columns of the matrix that one input meets.
type linearPart struct {
	matrix *kernel.Matrix
	input  input
}

func (c *cellCompiler) linear(op cellrt.Linear) (step, error) {
	w := op.Weight
	s := &linearStep{out: op.Out, width: w.Rows, act: op.Act, weights: w.Rows * w.Cols}
	from := 0
	for _, v := range op.In {
		k := c.cell.Width(v)
		m, err := c.pack(packKey{matrix: w, from: from, k: k})
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, linearPart{matrix: c.hold(m).matrix, input: c.input(v)})
		from += k
	}
	bias := op.Bias
	if bias == nil {
		bias = make([]float32, w.Rows)
	}
	s.bias = c.keep(s.parts[0].matrix.Order(bias))
	return s, nil
}

func (s *linearStep) run(b *batch) {
	for i := range s.parts {
		b.prepare(&s.parts[i].input)
	}
	work := b.product(s.weights)
	if s.act == cellrt.Tanh {
		work += int64(len(b.rows)) * int64(s.width*activationWork)
	}
	b.do(s, len(s.parts[0].matrix.Panels), work)
}

// pieces computes panels. The output's rows have room for whole ones.
func (s *linearStep) pieces(b *batch, _, first, last int) {
	n, from := len(b.rows), first*b.table.Width
	y := b.value(s.out).From(from)
	init := kernel.Rows{Data: s.bias[from:]}
	for i := range s.parts {
		p := &s.parts[i]
		p.matrix.Product(y, init, b.source(&p.input), n, first, last)
		init = y
	}
	if s.act == cellrt.Tanh {
		width := min(last*b.table.Width, s.width) - from
		for r := range n {
			b.table.Tanh(y.Row(r, width))
		}
	}
}

// attendStep reads the memory in each row's slot. A piece of it is a row.
type attendStep struct {
	op    cellrt.Attend
	place place
}

func (c *cellCompiler) attend(op cellrt.Attend) step {
	s := &attendStep{op: op, place: c.place(op.Memory)}
	c.out.threadWidth = max(c.out.threadWidth, s.place.count) // the scores
	return s
}

func (s *attendStep) run(b *batch) {
	entries := 0
	for r := range b.rows {
		entries += max(0, b.arg(r, s.op.Length))
	}
	b.do(s, len(b.rows), 2*int64(s.place.width)*int64(entries))
}

func (s *attendStep) pieces(b *batch, thread, from, to int) {
	query, out := b.value(s.op.Query), b.value(s.op.Out)
	width := s.place.width
	for r := from; r < to; r++ {
		length := max(0, b.arg(r, s.op.Length))
		if length > s.place.count {
			panic(fmt.Sprintf("cellrt/cpu: %d entries of field %s, which has %d", length, s.place.name, s.place.count))
		}
		memory := b.field(r, s.place.offset, length*width)
		b.table.Attend(query.Row(r, width), memory, b.own[thread][:length], out.Row(r, width))
	}
}
