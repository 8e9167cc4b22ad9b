package cpu

import "github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"

const (
	// partsPerStep is how many parts the smallest step shared by threads is
	// cut into.
	partsPerStep = 16
	// partsPerThread bounds the parts: more than one for each thread, so that
	// one that comes late still finds something.
	partsPerThread = 4
	// activationWork is how many multiplications an activation is worth.
	activationWork = 8
)

// parts returns in how many parts to do work of so many multiplications, of
// which pieces are the smallest units.
func (b *batch) parts(work, pieces int) int {
	if !b.shared {
		return 1
	}
	return max(1, min(pieces, work/max(1, b.splitWork/partsPerStep), partsPerThread*(len(b.team.helpers)+1)))
}

// span returns the pieces of a part.
func span(pieces, part, parts int) (from, to int) {
	return pieces * part / parts, pieces * (part + 1) / parts
}

// productWork is one matrix product, split by panels.
type productWork struct {
	m                 *kernel.Matrix
	y, x              kernel.Rows
	rows, from, width int
}

func (w *productWork) part(i, parts int) {
	first, last := span(w.m.Panels(), i, parts)
	kernel.AccumulatePanels(w.m, w.y, w.x, w.rows, w.from, w.width, first, last)
}

// accumulate is [kernel.Accumulate] for all rows of the batch.
func (b *batch) accumulate(m *kernel.Matrix, y, x kernel.Rows, from, width int) {
	rows := len(b.rows)
	parts := b.parts(rows*width*m.N, m.Panels())
	if parts == 1 {
		kernel.Accumulate(m, y, x, rows, from, width)
		return
	}
	b.product = productWork{m: m, y: y, x: x, rows: rows, from: from, width: width}
	b.team.do(&b.product, parts)
}

// rowStep is a step that treats each row by itself.
type rowStep interface {
	rows(b *batch, from, to int)
}

// rowWork is such a step's work, split by rows.
type rowWork struct {
	step  rowStep
	batch *batch
}

func (w *rowWork) part(i, parts int) {
	from, to := span(len(w.batch.rows), i, parts)
	w.step.rows(w.batch, from, to)
}

// eachRow runs a step for all rows of the batch; work is that of one row.
func (b *batch) eachRow(s rowStep, work int) {
	rows := len(b.rows)
	parts := b.parts(rows*work, rows)
	if parts == 1 {
		s.rows(b, 0, rows)
		return
	}
	b.byRow = rowWork{step: s, batch: b}
	b.team.do(&b.byRow, parts)
}
