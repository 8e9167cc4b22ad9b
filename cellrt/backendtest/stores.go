package backendtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// buildStores makes cells in which it matters when a new state reaches its
// slot: what stands between a recurrent operation and the stores of its results
// reads or writes the same fields.
func (m *model) buildStores(tb testing.TB, w weights) {
	tb.Helper()
	type states struct{ x, h, c, oldH, oldC cellrt.Value }
	build := func(name string, after func(*cellrt.CellBuilder, states)) {
		m.build(tb, name, func(b *cellrt.CellBuilder) {
			s := states{x: b.Embed(w.table, argToken), oldH: b.Load(m.hidden, cellrt.Zero), oldC: b.Load(m.cell, cellrt.Zero)}
			s.h, s.c = w.lstm(b, s.x, s.oldH, s.oldC)
			after(b, s)
		})
	}
	build("load between step and store", func(b *cellrt.CellBuilder, s states) {
		before := b.Load(m.hidden, cellrt.Zero)
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
		b.Store(m.childH, argChild, 0, before)
		b.Store(m.cell, cellrt.Zero, 0, s.c)
	})
	build("load after store", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
		b.Store(m.childH, argChild, 0, b.Load(m.hidden, cellrt.Zero))
	})
	build("load through another index between step and store", func(b *cellrt.CellBuilder, s states) {
		before := b.Load(m.memory, argPosition)
		b.Store(m.memory, cellrt.Zero, 0, s.h) // the same entry when the position is 0
		b.Store(m.hidden, cellrt.Zero, 0, before)
	})
	build("attention between step and store", func(b *cellrt.CellBuilder, s states) {
		context := b.Attend(s.h, m.memory, argLength)
		b.Store(m.memory, argPosition, 0, s.h)
		b.Store(m.out, cellrt.Zero, 0, context)
	})
	build("attention after store", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.memory, argPosition, 0, s.h)
		b.Store(m.out, cellrt.Zero, 0, b.Attend(s.h, m.memory, argLength))
	})
	build("two stores of one state", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
		b.Store(m.memory, argPosition, 0, s.h)
		b.Store(m.cell, cellrt.Zero, 0, s.c)
	})
	build("two stores of one state to one field", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.childH, argChild, 0, s.h)
		b.Store(m.childH, cellrt.Zero, 0, s.h)
		b.Expose(s.h)
	})
	build("the later of two stores stays", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.hidden, cellrt.Zero, 0, s.oldC)
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
		b.Store(m.cell, cellrt.Zero, 0, s.c)
		b.Store(m.cell, cellrt.Zero, 0, s.oldH)
	})
	build("both states to one entry", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.hidden, cellrt.Zero, 0, s.c)
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
	})
	build("stores beside each other", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.wide, argChild, wider, s.h)
		b.Store(m.out, cellrt.Zero, max(m.vocabulary, m.sizes.hidden)-m.sizes.hidden, s.c)
	})
	build("stores that overlap in part", func(b *cellrt.CellBuilder, s states) {
		b.Store(m.wide, argChild, wider, s.h)
		b.Store(m.wide, argChild, 0, s.c)
	})
	build("two steps to one entry", func(b *cellrt.CellBuilder, s states) {
		h := w.gru(b, s.x, s.h)
		b.Store(m.hidden, cellrt.Zero, 0, h)
		b.Store(m.hidden, cellrt.Zero, 0, s.h)
		b.Store(m.cell, cellrt.Zero, 0, s.c)
		b.Store(m.cell, cellrt.Zero, 0, h)
	})
	build("a state nobody stores", func(b *cellrt.CellBuilder, s states) { b.Store(m.cell, cellrt.Zero, 0, s.c) })
}

// testStores compares the cells of buildStores with the reference.
func testStores(t *testing.T, open func(testing.TB) cellrt.Backend, weights cellrt.Weights) {
	t.Helper()
	const slots = 5
	for _, s := range append(shapes(), largeShape()) {
		r := rand.New(rand.NewPCG(9, uint64(s.hidden)))
		m := newFields(s)
		m.buildStores(t, newWeights(r, s))
		m.finish(t)
		l := loadModel(t, open, m, slots)
		l.runner.SetThreads(2)
		defer l.runner.SetThreads(1)
		for _, name := range m.names() {
			t.Run(fmt.Sprintf("%s/%d", name, s.hidden), func(t *testing.T) { l.compare(t, r, name, weights, slots) })
		}
	}
}

// testRandomCells compares cells of random operations with the reference: few
// fields, many loads and stores of them around recurrent operations.
func testRandomCells(t *testing.T, open func(testing.TB) cellrt.Backend, weights cellrt.Weights) {
	t.Helper()
	const slots, cells = 5, 80
	r := rand.New(rand.NewPCG(8, 0))
	m := newFields(sizes{input: 5, hidden: 35, positions: 3, vocabulary: 6})
	w := newWeights(r, m.sizes)
	for i := range cells {
		m.build(t, fmt.Sprintf("random %d", i), func(b *cellrt.CellBuilder) { m.random(b, r, w) })
	}
	m.finish(t)
	l := loadModel(t, open, m, slots)
	l.runner.SetThreads(2)
	defer l.runner.SetThreads(1)
	for _, name := range m.names() {
		t.Run(name, func(t *testing.T) { l.compare(t, r, name, weights, slots) })
	}
}

// random adds operations on states of the hidden size.
func (m *model) random(b *cellrt.CellBuilder, r *rand.Rand, w weights) {
	places := []struct {
		field cellrt.FieldID
		index cellrt.Arg
	}{
		{m.hidden, cellrt.Zero}, {m.cell, cellrt.Zero}, {m.memory, argPosition}, {m.memory, cellrt.Zero}, {m.childH, argChild},
	}
	x := b.Embed(w.table, argToken)
	values := []cellrt.Value{b.Load(m.hidden, cellrt.Zero), b.Load(m.cell, cellrt.Zero)}
	value := func() cellrt.Value { return values[r.IntN(len(values))] }
	for range 14 {
		p := places[r.IntN(len(places))]
		switch r.IntN(8) {
		case 0:
			values = append(values, b.Load(p.field, p.index))
		case 1:
			h, c := w.lstm(b, x, value(), value())
			values = append(values, h, c)
		case 2:
			values = append(values, w.gru(b, x, value()))
		case 3:
			h, c := b.TreeNode(w.node, w.nodeBias, value(), value(), value(), value())
			values = append(values, h, c)
		case 4:
			values = append(values, b.Attend(value(), m.memory, argLength))
		case 5:
			b.Store(m.wide, argChild, r.IntN(wider+1), value())
		default:
			// Mostly the newest: the stores that can move.
			v := values[len(values)-1-r.IntN(min(2, len(values)))]
			b.Store(p.field, p.index, 0, v)
		}
	}
}
