package backendtest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// sizes are those of a generated model.
type sizes struct {
	input, hidden, positions, vocabulary int
}

// model is a program with one cell for each kind of operation and one with
// all of them, and the layout they share.
type model struct {
	sizes
	layout                    *cellrt.Layout
	memory, hidden, cell, out cellrt.FieldID
	input, childH, childC     cellrt.FieldID
	wide                      cellrt.FieldID // two entries, each a little wider than a state
	program                   *cellrt.Program
	cells                     map[string]*cellrt.Cell
}

// The arguments of every cell's nodes.
const (
	argToken cellrt.Arg = iota
	argPosition
	argLength
	argChild
	argCount = 4
)

// newModel makes a model with random weights.
func newModel(tb testing.TB, r *rand.Rand, s sizes) *model {
	tb.Helper()
	m := newFields(s)
	w := newWeights(r, s)
	m.buildPlain(tb, w)
	m.buildRecurrent(tb, w)
	m.buildTree(tb, w)
	m.buildAll(tb, w)
	m.finish(tb)
	return m
}

// newFields makes a model without cells.
func newFields(s sizes) *model {
	m := &model{sizes: s, layout: &cellrt.Layout{}, cells: map[string]*cellrt.Cell{}}
	m.input = m.layout.Add("input", 1, s.input)
	m.memory = m.layout.Add("memory", s.positions, s.hidden)
	m.hidden = m.layout.Add("hidden", 1, s.hidden)
	m.cell = m.layout.Add("cell", 1, s.hidden)
	m.childH = m.layout.Add("child h", 2, s.hidden)
	m.childC = m.layout.Add("child c", 2, s.hidden)
	m.out = m.layout.Add("out", 1, max(s.vocabulary, s.hidden))
	m.wide = m.layout.Add("wide", 2, s.hidden+wider)
	return m
}

// wider is how much wider than a state an entry of the field wide is.
const wider = 3

// finish makes the program of the cells.
func (m *model) finish(tb testing.TB) {
	tb.Helper()
	var cells []*cellrt.Cell
	for _, name := range m.names() {
		cells = append(cells, m.cells[name])
	}
	var err error
	if m.program, err = cellrt.NewProgram("test", m.layout, cells...); err != nil {
		tb.Fatal(err)
	}
}

// weights are a model's random weights.
type weights struct {
	table, projection              *cellrt.Matrix
	projectionBias                 []float32
	lstmInput, lstmRecurrent       *cellrt.Matrix
	lstmBias                       []float32
	gruInput, gruRecurrent         *cellrt.Matrix
	gruInputBias, gruRecurrentBias []float32
	leaf, node                     *cellrt.Matrix
	leafBias, nodeBias             []float32
}

func newWeights(r *rand.Rand, s sizes) weights {
	h, x := s.hidden, s.input
	return weights{
		table:      matrix(r, "table", s.vocabulary, x),
		projection: matrix(r, "projection", s.vocabulary, 2*h), projectionBias: vector(r, s.vocabulary),
		lstmInput: matrix(r, "lstm.input", 4*h, x), lstmRecurrent: matrix(r, "lstm.recurrent", 4*h, h), lstmBias: vector(r, 4*h),
		gruInput: matrix(r, "gru.input", 3*h, x), gruRecurrent: matrix(r, "gru.recurrent", 3*h, h),
		gruInputBias: vector(r, 3*h), gruRecurrentBias: vector(r, 3*h),
		leaf: matrix(r, "leaf", 3*h, x), leafBias: vector(r, 3*h),
		node: matrix(r, "node", 5*h, 2*h), nodeBias: vector(r, 5*h),
	}
}

// lstm and gru add a step with the weights.
func (w weights) lstm(b *cellrt.CellBuilder, x, h, c cellrt.Value) (outH, outC cellrt.Value) {
	return b.LSTM(w.lstmInput, w.lstmRecurrent, w.lstmBias, x, h, c)
}

func (w weights) gru(b *cellrt.CellBuilder, x, h cellrt.Value) cellrt.Value {
	return b.GRU(w.gruInput, w.gruRecurrent, w.gruInputBias, w.gruRecurrentBias, x, h)
}

// buildPlain makes the cells with one operation that has no state of its own.
func (m *model) buildPlain(tb testing.TB, w weights) {
	tb.Helper()
	m.build(tb, "embed", func(b *cellrt.CellBuilder) {
		b.Store(m.input, cellrt.Zero, 0, b.Embed(w.table, argToken))
	})
	m.build(tb, "linear", func(b *cellrt.CellBuilder) {
		h, c := b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)
		b.Store(m.out, cellrt.Zero, 0, b.Linear(w.projection, w.projectionBias, cellrt.None, h, c))
	})
	m.build(tb, "linear tanh without bias", func(b *cellrt.CellBuilder) {
		h, c := b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)
		b.Store(m.out, cellrt.Zero, 0, b.Linear(w.projection, nil, cellrt.Tanh, h, c))
	})
	m.build(tb, "attend", func(b *cellrt.CellBuilder) {
		b.Store(m.out, cellrt.Zero, 0, b.Attend(b.Load(m.hidden, cellrt.Zero), m.memory, argLength))
	})
	m.build(tb, "greedy", func(b *cellrt.CellBuilder) {
		h, c := b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)
		b.Greedy(b.Linear(w.projection, w.projectionBias, cellrt.None, h, c))
	})
	m.build(tb, "expose", func(b *cellrt.CellBuilder) { b.Expose(b.Load(m.hidden, cellrt.Zero)) })
	m.build(tb, "greedy and expose", func(b *cellrt.CellBuilder) {
		h, c := b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)
		logits := b.Linear(w.projection, w.projectionBias, cellrt.None, h, c)
		b.Expose(logits)
		b.Greedy(logits)
	})
	m.build(tb, "add", func(b *cellrt.CellBuilder) {
		b.Store(m.out, cellrt.Zero, 0, b.Add(b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)))
	})
	m.build(tb, "mean", func(b *cellrt.CellBuilder) {
		b.Store(m.out, cellrt.Zero, 0, b.Mean(b.Load(m.hidden, cellrt.Zero), argLength))
	})
	m.build(tb, "load and store", func(b *cellrt.CellBuilder) {
		b.Store(m.memory, argPosition, 0, b.Load(m.hidden, cellrt.Zero))
	})
}

// buildRecurrent makes the cells with a recurrent step, whose input is loaded,
// looked up, or looked up and used once more.
func (m *model) buildRecurrent(tb testing.TB, w weights) {
	tb.Helper()
	lstm := func(b *cellrt.CellBuilder, x cellrt.Value) {
		h, c := w.lstm(b, x, b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero))
		b.Store(m.hidden, cellrt.Zero, 0, h)
		b.Store(m.cell, cellrt.Zero, 0, c)
	}
	gru := func(b *cellrt.CellBuilder, x cellrt.Value) {
		b.Store(m.hidden, cellrt.Zero, 0, w.gru(b, x, b.Load(m.hidden, cellrt.Zero)))
	}
	m.build(tb, "lstm", func(b *cellrt.CellBuilder) { lstm(b, b.Load(m.input, cellrt.Zero)) })
	m.build(tb, "lstm of an embedding", func(b *cellrt.CellBuilder) { lstm(b, b.Embed(w.table, argToken)) })
	m.build(tb, "gru", func(b *cellrt.CellBuilder) { gru(b, b.Load(m.input, cellrt.Zero)) })
	m.build(tb, "gru of an embedding", func(b *cellrt.CellBuilder) { gru(b, b.Embed(w.table, argToken)) })
	m.build(tb, "gru of an embedding also stored", func(b *cellrt.CellBuilder) {
		x := b.Embed(w.table, argToken)
		gru(b, x)
		b.Store(m.input, cellrt.Zero, 0, x)
	})
}

// buildTree makes the cells of a tree.
func (m *model) buildTree(tb testing.TB, w weights) {
	tb.Helper()
	leaf := func(b *cellrt.CellBuilder, x cellrt.Value) {
		h, c := b.TreeLeaf(w.leaf, w.leafBias, x)
		b.Store(m.childH, argChild, 0, h)
		b.Store(m.childC, argChild, 0, c)
	}
	m.build(tb, "tree leaf", func(b *cellrt.CellBuilder) { leaf(b, b.Load(m.input, cellrt.Zero)) })
	m.build(tb, "tree leaf of an embedding", func(b *cellrt.CellBuilder) { leaf(b, b.Embed(w.table, argToken)) })
	m.build(tb, "tree node", func(b *cellrt.CellBuilder) {
		h, c := b.TreeNode(w.node, w.nodeBias, b.Load(m.childH, cellrt.Zero), b.Load(m.childC, cellrt.Zero),
			b.Load(m.childH, argChild), b.Load(m.childC, argChild))
		b.Store(m.hidden, cellrt.Zero, 0, h)
		b.Store(m.cell, cellrt.Zero, 0, c)
	})
}

// buildAll makes a cell with every kind of operation.
func (m *model) buildAll(tb testing.TB, w weights) {
	tb.Helper()
	m.build(tb, "all", func(b *cellrt.CellBuilder) {
		x := b.Embed(w.table, argToken)
		h, c := w.lstm(b, x, b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero))
		h = w.gru(b, x, h)
		leafH, leafC := b.TreeLeaf(w.leaf, w.leafBias, x)
		treeH, treeC := b.TreeNode(w.node, w.nodeBias, leafH, leafC, h, c)
		h, c = b.Add(h, treeH), b.Mean(b.Add(c, treeC), argLength)
		b.Store(m.hidden, cellrt.Zero, 0, h)
		b.Store(m.cell, cellrt.Zero, 0, c)
		b.Store(m.memory, argPosition, 0, h)
		logits := b.Linear(w.projection, w.projectionBias, cellrt.Tanh, h, b.Attend(h, m.memory, argLength))
		b.Greedy(logits)
		b.Expose(logits)
	})
}

// names returns the cells' names, sorted so that a run can be repeated.
func (m *model) names() []string { return slices.Sorted(maps.Keys(m.cells)) }

func (m *model) build(tb testing.TB, name string, fill func(*cellrt.CellBuilder)) {
	tb.Helper()
	b := cellrt.NewCell(name, m.layout, argCount)
	fill(b)
	c, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	m.cells[name] = c
}

func matrix(r *rand.Rand, name string, rows, cols int) *cellrt.Matrix {
	return &cellrt.Matrix{Name: name, Rows: rows, Cols: cols, Data: vector(r, rows*cols)}
}

// vector returns values whose products neither vanish nor saturate a gate.
func vector(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64()) * 0.3
	}
	return v
}

// row returns a row with random arguments.
func (m *model) row(r *rand.Rand, slot int32) cellrt.Row {
	row := cellrt.Row{Slot: slot}
	row.Args[argToken] = r.Int32N(int32(m.vocabulary))
	row.Args[argPosition] = r.Int32N(int32(m.positions))
	row.Args[argLength] = 1 + r.Int32N(int32(m.positions))
	row.Args[argChild] = r.Int32N(2)
	return row
}

// shapes returns sizes that are odd, tiny, and around the width of a vector.
func shapes() []sizes {
	return []sizes{
		{input: 1, hidden: 1, positions: 1, vocabulary: 2},
		{input: 3, hidden: 5, positions: 4, vocabulary: 7},
		{input: 16, hidden: 32, positions: 5, vocabulary: 33},
		{input: 37, hidden: 41, positions: 9, vocabulary: 65},
	}
}

// largeShape returns sizes of several panels, for tests that need little of it.
func largeShape() sizes { return sizes{input: 65, hidden: 99, positions: 6, vocabulary: 130} }
