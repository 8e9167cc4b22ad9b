package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// folded is the beginning of a recurrent operation's chains - bias and input
// part - for every row of a small embedding table. A chain that was stored and
// continued has the same bits as one that was not.
type folded struct {
	id     cellrt.Arg
	table  []float32 // [row][group][panels*Width]
	stride int       // of a row
	panels int
}

// fold makes the table of a step whose first part is p, packed as m, if its
// input is an embedding and the table is small enough.
func (c *cellCompiler) fold(s *recurrentStep, p part, m *kernel.Matrix) bool {
	embed, ok := c.embeds[p.x]
	stride := len(m.Panels) * c.table.Width
	if !ok || int64(embed.Table.Rows) > c.foldBytes/(int64(stride)*4) {
		return false
	}
	c.uses[p.x]--
	t := embed.Table
	s.fold = folded{id: embed.ID, stride: stride, panels: p.order.count}
	if c.shares == nil {
		c.hold(&block{bytes: int64(t.Rows) * int64(stride) * 4})
		return true
	}
	out := kernel.Rows{Data: make([]float32, t.Rows*stride), Stride: stride}
	init := make([]float32, stride)
	size := p.order.count * c.table.Width
	for group := range stride / size {
		copy(init[group*size:(group+1)*size], s.bias[(group*s.panels+p.column)*c.table.Width:])
	}
	var x kernel.Input
	x.Reset(c.table, c.format, kernel.Rows{Data: t.Data, Stride: t.Cols}, t.Rows, t.Cols)
	x.Prepare(0, t.Rows)
	m.Product(out, kernel.Rows{Data: init}, &x, t.Rows, 0, len(m.Panels))
	s.fold.table = c.keep(out.Data)
	return true
}

// begin copies what belongs to a group to the block's first columns, and
// returns how many these are.
func (f *folded) begin(b *batch, block kernel.Rows, group int) int {
	size := f.panels * b.table.Width
	for r := range b.rows {
		from := b.arg(r, f.id)*f.stride + group*size
		copy(block.Row(r, size), f.table[from:from+size])
	}
	return size
}
