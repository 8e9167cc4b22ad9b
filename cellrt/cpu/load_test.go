package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

func TestFoldingIsBounded(t *testing.T) {
	t.Parallel()
	const vocabulary, input, hidden = 100, 8, 32 // a whole panel in every tier
	p := decoder(t, "lstm", vocabulary, input, hidden)
	weights := func(fold int64) int64 {
		x, err := cpu.New(cpu.Config{FoldBytes: fold}).Load(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		return x.WeightBytes()
	}
	const table = vocabulary * 4 * hidden * 4
	plain := weights(-1)
	if got := weights(table - 1); got != plain {
		t.Errorf("%d bytes with a bound below the table's size, want %d", got, plain)
	}
	// Neither the embedding, nor the bias, nor the input's weights are needed any more.
	if got, want := weights(table), plain+table-(vocabulary*input+4*hidden*input+4*hidden)*4; got != want {
		t.Errorf("%d bytes folded, want %d", got, want)
	}
}

func TestLoadBoundsState(t *testing.T) {
	t.Parallel()
	p := decoder(t, "lstm", 4, 2, 2)
	b := cpu.New(cpu.Config{MaxStateBytes: 160})
	for _, tc := range []struct {
		slots int
		ok    bool
	}{{0, false}, {-1, false}, {1, true}, {10, true}, {11, false}, {math.MaxInt, false}} {
		if _, err := b.Load(p, tc.slots); (err == nil) != tc.ok {
			t.Errorf("%d slots: error %v, want ok %t", tc.slots, err, tc.ok)
		}
	}
}

// TestLoadBoundsInputs loads matrices with as many inputs as 8-bit weights can
// have, and with one more.
func TestLoadBoundsInputs(t *testing.T) {
	t.Parallel()
	const most = 1 << 17
	layout := &cellrt.Layout{}
	narrow, wide, state := layout.Add("narrow", 1, most), layout.Add("wide", 1, most+1), layout.Add("state", 1, 1)
	zeros := make([]float32, 4*(most+1))
	matrix := func(name string, rows, cols int) *cellrt.Matrix {
		return &cellrt.Matrix{Name: name, Rows: rows, Cols: cols, Data: zeros[:rows*cols]}
	}
	linear := func(in cellrt.FieldID, cols int) func(*cellrt.CellBuilder) {
		return func(b *cellrt.CellBuilder) {
			b.Store(state, cellrt.Zero, 0, b.Linear(matrix("wide.weight", 1, cols), nil, cellrt.None, b.Load(in, 0)))
		}
	}
	for _, tc := range []struct {
		name    string
		weights cellrt.Weights
		build   func(b *cellrt.CellBuilder)
		ok      bool
	}{
		{"the most", cellrt.Int8, linear(narrow, most), true},
		{"one more", cellrt.Int8, linear(wide, most+1), false},
		{"one more with bf16", cellrt.BF16, linear(wide, most+1), true},
		{"recurrent", cellrt.Int8, func(b *cellrt.CellBuilder) {
			old := b.Load(state, 0)
			h, _ := b.LSTM(matrix("wide.weight", 4, most+1), matrix("small", 4, 1), zeros[:4], b.Load(wide, 0), old, old)
			b.Store(state, cellrt.Zero, 0, h)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := cellrt.NewCell("reader", layout, 1)
			tc.build(b)
			_, err := cpu.New(cpu.Config{}).Load(build(t, layout, b).WithWeights(tc.weights), 1)
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("loaded")
			}
			for _, part := range []string{"reader", "wide.weight", "131073", "131072"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not have %q", err, part)
				}
			}
		})
	}
}

// TestSharedWeightsAreKeptOnce counts the bytes of cells that use the same
// matrix and table, and of one that has its own.
func TestSharedWeightsAreKeptOnce(t *testing.T) {
	t.Parallel()
	const size, ids = 32, 10 // a whole panel in every tier
	layout := &cellrt.Layout{}
	state := layout.Add("state", 1, size)
	r := source{rand.New(rand.NewPCG(5, 5))}
	shared, own := r.matrix(size, size), r.matrix(size, size)
	table := r.matrix(ids, size)
	weights := func(matrices ...*cellrt.Matrix) int64 {
		var cells []*cellrt.CellBuilder
		for i, m := range matrices {
			b := cellrt.NewCell(fmt.Sprintf("cell%d", i), layout, 1)
			b.Store(state, cellrt.Zero, 0, b.Linear(m, nil, cellrt.None, b.Embed(table, 0)))
			cells = append(cells, b)
		}
		x, err := cpu.New(cpu.Config{}).Load(build(t, layout, cells...), 1)
		if err != nil {
			t.Fatal(err)
		}
		return x.WeightBytes()
	}
	// No cell has a bias, so that all begin with the same zeros.
	const matrix, bias = size * size * 4, size * 4
	if got, want := weights(shared), int64(ids*size*4+matrix+bias); got != want {
		t.Errorf("%d bytes of one cell, want %d", got, want)
	}
	if got, want := weights(shared, shared), weights(shared); got != want {
		t.Errorf("%d bytes of two cells that share their weights, want %d", got, want)
	}
	if got, want := weights(shared, shared, own), weights(shared)+matrix; got != want {
		t.Errorf("%d bytes with a cell of other weights, want %d", got, want)
	}
}
