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
	id    cellrt.Arg
	out   cellrt.Value
	width int
	table []float32 // rows of width values
}

func (s *embedStep) run(b *batch) { b.eachRow(s, s.width*copyWork) }

func (s *embedStep) pieces(b *batch, _, from, to int) {
	out := b.value(s.out)
	for r := from; r < to; r++ {
		id := b.arg(r, s.id)
		copy(out.Row(r, s.width), s.table[id*s.width:(id+1)*s.width])
	}
}

// loadStep gathers.
type loadStep struct {
	op    cellrt.Load
	place place
}

func (s *loadStep) run(b *batch) { b.eachRow(s, s.place.width*copyWork) }

func (s *loadStep) pieces(b *batch, _, from, to int) {
	out := b.value(s.op.Out)
	for r := from; r < to; r++ {
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
	in     cellrt.Value
	target target
}

func (s *storeStep) run(b *batch) { b.eachRow(s, s.target.width*copyWork) }

func (s *storeStep) pieces(b *batch, _, from, to int) {
	in := b.value(s.in)
	for r := from; r < to; r++ {
		copy(s.target.in(b, r), in.Row(r, s.target.width))
	}
}
