package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// recurrentStep is a recurrent operation. A piece of it is a group of as many
// units as a panel has columns: the products of all their gates, which lie side
// by side in the packed weights, and the new states, for all rows.
//
//	thread's own block      [rows][panels * Width]
//	  first product         bias or folded table -> its panels
//	  further products      continue the chains
//	  gates                 block, old state -> slots, values
type recurrentStep struct {
	hidden   int
	panels   int       // of a group, in the block
	bias     []float32 // [group][panels*Width]; nil when a table has all of it
	fold     folded
	products []segment
	gates    gates
	weights  int // of the products
	work     int // of the gates of a row
}

// segment is one product of a group: panels of the matrix for each group of
// units, whose columns continue those of the block from the panel column on.
type segment struct {
	matrix         *kernel.Matrix
	input          input
	column, panels int
}

// gates turn the pre-activations of the units from to to-1 into new states,
// for all rows.
type gates interface {
	apply(b *batch, block kernel.Rows, from, to int)
}

func (s *recurrentStep) run(b *batch) {
	for i := range s.products {
		b.prepare(&s.products[i].input)
	}
	width := b.table.Width
	b.do(s, (s.hidden+width-1)/width, b.product(s.weights)+int64(s.work)*int64(len(b.rows)))
}

// pieces computes groups of units.
func (s *recurrentStep) pieces(b *batch, thread, first, last int) {
	n, width := len(b.rows), b.table.Width
	block := kernel.Rows{Data: b.own[thread], Stride: s.panels * width}
	for group := first; group < last; group++ {
		init := s.begin(b, block, group)
		for i := range s.products {
			p := &s.products[i]
			y := block.From(p.column * width)
			if i > 0 {
				init = y
			}
			p.matrix.Product(y, init, b.source(&p.input), n, group*p.panels, (group+1)*p.panels)
		}
		s.gates.apply(b, block, group*width, min((group+1)*width, s.hidden))
	}
}

// begin puts the beginning of the chains into the block, as far as the first
// product does not bring it, and returns what the chains of that one begin
// with.
func (s *recurrentStep) begin(b *batch, block kernel.Rows, group int) kernel.Rows {
	size := s.panels * b.table.Width
	if s.fold.table != nil {
		covered := s.fold.begin(b, block, group)
		if covered < size {
			block.From(covered).Fill(len(b.rows), s.bias[group*size+covered:(group+1)*size])
		}
		if len(s.products) == 0 {
			return block
		}
		return block.From(s.products[0].column * b.table.Width)
	}
	bias := s.bias[group*size : (group+1)*size]
	if covered := s.products[0].panels * b.table.Width; covered < size {
		block.From(covered).Fill(len(b.rows), bias[covered:])
	}
	return kernel.Rows{Data: bias}
}

// part is a matrix of a recurrent operation before it is packed: the columns
// from from on, one for each element of x. Its panels have an order and begin
// at the panel column of the block.
type part struct {
	matrix *cellrt.Matrix
	x      cellrt.Value
	from   int
	order  gateOrder
	column int
}

// recurrent builds a step. The first part's chains begin the block's; bias has
// one vector for each panel of a group. It fails when a matrix cannot be packed.
func (c *cellCompiler) recurrent(hidden int, bias [][]float32, parts []part, g gates) (step, error) {
	s := &recurrentStep{hidden: hidden, panels: len(bias), gates: g, work: (len(bias) + 1) * hidden * activationWork}
	s.bias = c.orderBias(bias, hidden)
	for i, p := range parts {
		m, err := c.pack(packKey{matrix: p.matrix, from: p.from, k: c.cell.Width(p.x), order: p.order, hidden: hidden})
		if err != nil {
			return nil, err
		}
		if i == 0 && c.fold(s, p, m.matrix) {
			continue
		}
		s.products = append(s.products, segment{
			matrix: c.hold(m).matrix, input: c.input(p.x), column: p.column, panels: p.order.count,
		})
		s.weights += m.matrix.K * p.order.count * hidden
	}
	if s.fold.panels == s.panels {
		s.bias = nil // it is in the table
	}
	s.bias = c.keep(s.bias)
	c.out.blockWidth = max(c.out.blockWidth, s.panels*c.table.Width)
	return s, nil
}

// orderBias arranges the biases of the gates by group.
func (c *compiler) orderBias(bias [][]float32, hidden int) []float32 {
	width := c.table.Width
	groups := (hidden + width - 1) / width
	out := make([]float32, groups*len(bias)*width)
	for i, v := range bias {
		for group := range groups {
			copy(out[(group*len(bias)+i)*width:][:width], v[group*width:hidden])
		}
	}
	return out
}
