package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// step is one operation of a compiled cell.
type step interface {
	run(b *batch)
}

// compiledCell is a cell ready to run.
type compiledCell struct {
	steps   []step
	strides []int // of each value and temporary, in float32 values
	offsets []int // of each in a scratch for one row
	width   int   // scratch for one row
}

// batch is what steps work on: the rows, the arena and the values.
type batch struct {
	rows     []cellrt.Row
	out      []cellrt.Output
	arena    []float32
	slotSize int

	cell    *compiledCell
	scratch []float32

	team      team
	splitWork int
	shared    bool // helpers are awake for this step
	product   productWork
	byRow     rowWork
}

// value returns the block of a value or temporary.
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
	if need := b.cell.width * len(rows); need > len(b.scratch) {
		b.scratch = make([]float32, need)
	}
	clear(out)
	if b.shared = len(b.team.helpers) > 0 && c.Work()*int64(len(rows)) >= int64(b.splitWork); b.shared {
		b.team.begin()
	}
	for _, s := range b.cell.steps {
		s.run(b)
	}
	if b.shared {
		b.team.end()
	}
	b.rows, b.out = nil, nil
	return len(rows)
}

// SetThreads implements [cellrt.Runner].
func (r *runner) SetThreads(n int) { r.batch.team.resize(n) }
