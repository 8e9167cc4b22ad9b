package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
)

// greedyStep chooses the most probable token of each row.
type greedyStep struct {
	op    cellrt.Greedy
	width int
}

func (s *greedyStep) run(b *batch) { b.eachRow(s, s.width*activationWork) }

func (s *greedyStep) pieces(b *batch, _, from, to int) {
	logits := b.value(s.op.Logits)
	for r := from; r < to; r++ {
		token, logProb := b.table.Greedy(logits.Row(r, s.width))
		b.out[r].Token, b.out[r].LogProb = int32(token), logProb
	}
}

// exposeStep lends the scratch of a value to the outputs. The runner's next
// batch overwrites it.
type exposeStep struct {
	op    cellrt.Expose
	width int
}

func (s *exposeStep) run(b *batch) {
	in := b.value(s.op.In)
	for r := range b.rows {
		b.out[r].Values = in.Row(r, s.width)[:s.width:s.width]
	}
}
