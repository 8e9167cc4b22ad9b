package cellular

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Library is the backend with a number of threads.
type Library struct {
	threads int
}

// Open returns the backend; it is always available.
func Open(threads int) *Library { return &Library{threads: threads} }

// Hello implements [wire.Library].
func (l *Library) Hello() wire.Hello {
	return wire.Hello{
		Library: "cellmq", Version: runtime.Version() + " " + cpu.New(cpu.Config{}).ISA(),
		Weights: workload.AllWeights(),
	}
}

// Load implements [wire.Library].
func (l *Library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	m := &model{threads: l.threads, layout: &cellrt.Layout{}}
	b := m.build(shape, p)
	cell, err := b.Build()
	if err != nil {
		return nil, err
	}
	if m.program, err = cellrt.NewProgram("peers", m.layout, cell); err != nil {
		return nil, err
	}
	m.cell = cell
	if m.program.Weights, err = cellrt.ParseWeights(string(shape.Weights)); err != nil {
		return nil, err
	}
	if m.executable, err = cpu.New(cpu.Config{}).Load(m.program, workload.MostRows); err != nil {
		return nil, err
	}
	return m, nil
}

// model is a program with one cell. Its results have fields of their own, so
// that each call computes the same.
type model struct {
	threads    int
	layout     *cellrt.Layout
	program    *cellrt.Program
	cell       *cellrt.Cell
	executable cellrt.Executable
	x, h, c    cellrt.FieldID
	outH, outC cellrt.FieldID
}

// build makes the cell of a shape.
func (m *model) build(shape workload.Case, p workload.Parameters) *cellrt.CellBuilder {
	n := shape.Gates() * shape.Units
	weight := &cellrt.Matrix{Name: "weight", Rows: n, Cols: shape.Inputs, Data: p.Weight}
	recurrent := &cellrt.Matrix{Name: "recurrent", Rows: n, Cols: shape.Units, Data: p.Recurrent}
	m.x = m.layout.Add("x", 1, shape.Inputs)
	if shape.Kind != workload.Product {
		m.h = m.layout.Add("h", 1, shape.Units)
	}
	if shape.Kind == workload.LSTM {
		m.c = m.layout.Add("c", 1, shape.Units)
	}
	m.outH = m.layout.Add("out h", 1, shape.Units)
	b := cellrt.NewCell(string(shape.Kind), m.layout, 0)
	x := b.Load(m.x, cellrt.Zero)
	switch shape.Kind {
	case workload.LSTM:
		m.outC = m.layout.Add("out c", 1, shape.Units)
		h, c := b.LSTM(weight, recurrent, p.Bias, x, b.Load(m.h, cellrt.Zero), b.Load(m.c, cellrt.Zero))
		b.Store(m.outH, cellrt.Zero, 0, h)
		b.Store(m.outC, cellrt.Zero, 0, c)
	case workload.GRU:
		b.Store(m.outH, cellrt.Zero, 0, b.GRU(weight, recurrent, p.Bias, p.RecurrentBias, x, b.Load(m.h, cellrt.Zero)))
	case workload.Product:
		b.Store(m.outH, cellrt.Zero, 0, b.Linear(weight, p.Bias, cellrt.None, x))
	}
	return b
}

// states is how the tests of backends look into an arena.
type states interface {
	ReadState(slot int32, from int, to []float32)
	WriteState(slot int32, to int, values []float32)
}

// Bind implements [wire.Model].
func (m *model) Bind(c workload.Case, in workload.Inputs) (wire.Call, error) {
	s, ok := m.executable.(states)
	if !ok {
		return nil, errors.New("the arena cannot be read")
	}
	b := &call{
		model: m, c: c, states: s, runner: m.executable.NewRunner(),
		rows: make([]cellrt.Row, c.Rows), out: make([]cellrt.Output, c.Rows),
	}
	fill := func(f cellrt.FieldID, values []float32) {
		width := m.layout.Field(f).Width
		for r := range b.rows {
			s.WriteState(b.rows[r].Slot, m.layout.Offset(f), values[r*width:(r+1)*width])
		}
	}
	for r := range b.rows {
		b.rows[r].Slot = int32(c.Rows - 1 - r) // in no order that helps
	}
	fill(m.x, in.X)
	if in.H != nil {
		fill(m.h, in.H)
	}
	if in.C != nil {
		fill(m.c, in.C)
	}
	b.runner.SetThreads(m.threads)
	return b, nil
}

// Close implements [wire.Model].
func (m *model) Close() {}

// call is a batch.
type call struct {
	model  *model
	c      workload.Case
	states states
	runner cellrt.Runner
	rows   []cellrt.Row
	out    []cellrt.Output
}

// Run implements [wire.Call].
func (b *call) Run() error {
	if n := b.runner.Run(b.model.cell, b.rows, b.out); n != len(b.rows) {
		return fmt.Errorf("%d rows computed, want %d", n, len(b.rows))
	}
	return nil
}

// Output implements [wire.Call].
func (b *call) Output(to []float32) error {
	width, n := b.c.OutputWidth(), b.c.Units
	for r, row := range b.rows {
		b.states.ReadState(row.Slot, b.model.layout.Offset(b.model.outH), to[r*width:r*width+n])
		if b.c.Kind == workload.LSTM {
			b.states.ReadState(row.Slot, b.model.layout.Offset(b.model.outC), to[r*width+n:(r+1)*width])
		}
	}
	return nil
}

// Close implements [wire.Call].
func (b *call) Close() { b.runner.SetThreads(1) }
