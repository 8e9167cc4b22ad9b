package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// step is one operation of a compiled cell, or several that are done as one.
type step interface {
	run(b *batch)
}

// compiledCell is a cell ready to run.
type compiledCell struct {
	steps   []step
	strides []int // of each value, in float32 values
	offsets []int // of each in a scratch for one row
	width   int   // scratch for one row
	inputs  int   // of products
	// A thread's own scratch: blockWidth values for each row or threadWidth in
	// all, whichever is more.
	blockWidth, threadWidth int
}

// batch is what steps work on: the rows, the arena and the values.
type batch struct {
	rows     []cellrt.Row
	out      []cellrt.Output
	arena    []float32
	slotSize int
	table    *kernel.Table
	format   kernel.Format

	cell    *compiledCell
	scratch []float32
	own     [][]float32    // scratch of each thread
	inputs  []kernel.Input // values made ready for products

	team  team
	split split
	job   job
}

// value returns the block of a value.
func (b *batch) value(v cellrt.Value) kernel.Rows {
	n, stride := len(b.rows), b.cell.strides[v]
	from := b.cell.offsets[v] * n
	return kernel.Rows{Data: b.scratch[from : from+n*stride], Stride: stride}
}

// field returns the memory of a field in a row's slot.
func (b *batch) field(r, offset, size int) []float32 {
	from := int(b.rows[r].Slot)*b.slotSize + offset
	return b.arena[from : from+size : from+size]
}

// arg returns an argument of a row.
func (b *batch) arg(r int, a cellrt.Arg) int {
	if a == cellrt.Zero {
		return 0
	}
	return int(b.rows[r].Args[a])
}

// grow makes room for the batch.
func (b *batch) grow() {
	n := len(b.rows)
	if need := b.cell.width * n; need > len(b.scratch) {
		b.scratch = make([]float32, need)
	}
	if b.cell.inputs > len(b.inputs) {
		b.inputs = make([]kernel.Input, b.cell.inputs)
	}
	for len(b.own) < b.team.threads() {
		b.own = append(b.own, nil)
	}
	need := max(b.cell.blockWidth*n, b.cell.threadWidth)
	for i, own := range b.own {
		if need > len(own) {
			b.own[i] = make([]float32, need)
		}
	}
}

// runner implements [cellrt.Runner].
type runner struct {
	executable *executable
	batch      batch
}

// Run implements [cellrt.Runner].
func (r *runner) Run(c *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	if len(rows) == 0 {
		return 0
	}
	b := &r.batch
	b.rows, b.out, b.cell = rows, out, r.executable.cells[c.Index()]
	b.grow()
	clear(out)
	b.split.decide(c.Work(), len(rows), &b.team)
	if b.split.shared {
		b.team.begin()
	}
	for _, s := range b.cell.steps {
		s.run(b)
	}
	if b.split.shared {
		b.team.end()
	}
	b.split.ended()
	b.rows, b.out = nil, nil
	return len(rows)
}

// SetThreads implements [cellrt.Runner].
func (r *runner) SetThreads(n int) { r.batch.team.resize(n) }
