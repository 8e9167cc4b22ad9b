package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
)

// place is where a field lies in a slot.
type place struct {
	name                 string
	offset, count, width int
}

// entry returns the memory of an entry of the field in a row's slot.
func (p *place) entry(b *batch, r, index int) []float32 {
	if index < 0 || index >= p.count {
		panic(fmt.Sprintf("cellrt/cpu: entry %d of field %s, which has %d", index, p.name, p.count))
	}
	return b.field(r, p.offset+index*p.width, p.width)
}

// embedStep looks up a row of a table.
type embedStep struct {
	op cellrt.Embed
}

func (s *embedStep) run(b *batch) {
	out := b.value(s.op.Out)
	width := s.op.Table.Cols
	for r := range b.rows {
		id := b.arg(r, s.op.ID)
		copy(out.Row(r, width), s.op.Table.Data[id*width:(id+1)*width])
	}
}

// loadStep gathers.
type loadStep struct {
	op    cellrt.Load
	place place
}

func (s *loadStep) run(b *batch) {
	out := b.value(s.op.Out)
	for r := range b.rows {
		to := out.Row(r, s.place.width)
		if index := b.arg(r, s.op.Index); index < 0 {
			clear(to)
		} else {
			copy(to, s.place.entry(b, r, index))
		}
	}
}

// storeStep scatters.
type storeStep struct {
	op    cellrt.Store
	place place
	size  int
}

func (s *storeStep) run(b *batch) {
	in := b.value(s.op.In)
	for r := range b.rows {
		copy(s.place.entry(b, r, b.arg(r, s.op.Index))[s.op.Column:], in.Row(r, s.size))
	}
}
