package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
)

// addStep sums two values.
type addStep struct {
	op    cellrt.Add
	width int
}

func (s *addStep) run(b *batch) { b.eachRow(s, s.width*copyWork) }

func (s *addStep) pieces(b *batch, _, from, to int) {
	x, y, out := b.value(s.op.A), b.value(s.op.B), b.value(s.op.Out)
	for r := from; r < to; r++ {
		b.table.Add(out.Row(r, s.width), x.Row(r, s.width), y.Row(r, s.width))
	}
}

// meanStep divides by an argument.
type meanStep struct {
	op    cellrt.Mean
	width int
}

func (s *meanStep) run(b *batch) {
	sum, out := b.value(s.op.Sum), b.value(s.op.Out)
	for r := range b.rows {
		count := b.arg(r, s.op.Count)
		if count < 1 {
			panic(fmt.Sprintf("cellrt/cpu: mean of %d terms", count))
		}
		mean := out.Row(r, s.width)
		copy(mean, sum.Row(r, s.width))
		b.table.Divide(mean, float32(count))
	}
}
