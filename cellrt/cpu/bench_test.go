package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// BenchmarkCell measures whole steps of single operations, with their gathers
// and scatters:
//
//	go test -run '^$' -bench 'Cell/avx512/f32/lstm/h=512' ./cellrt/cpu
//
// Names are tier/weights/cell/hidden size/rows/threads. A state's width is that
// of the input too. The cell "moves" only gathers and scatters what a step of
// the LSTM does, and "projection" has 32,000 outputs.
func BenchmarkCell(b *testing.B) {
	for _, tier := range cpu.Tiers() {
		for _, weights := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
			b.Run(fmt.Sprintf("%s/%v", tier, weights), func(b *testing.B) {
				for _, cell := range benchCells() {
					for _, hidden := range []int{256, 512, 1024} {
						b.Run(fmt.Sprintf("%s/h=%d", cell.name, hidden), func(b *testing.B) {
							benchSteps(b, cpu.Config{ISA: tier, FoldBytes: -1}, weights, cell, hidden)
						})
					}
				}
			})
		}
	}
}

// benchCell makes a program of one cell and tells its floating-point
// operations for a row.
type benchCell struct {
	name string
	make func(b *cellrt.CellBuilder, r source, x, h, c cellrt.FieldID, hidden int)
	flop func(hidden int) int
}

func benchCells() []benchCell {
	return []benchCell{
		{
			name: "lstm", flop: func(n int) int { return 16 * n * n },
			make: func(b *cellrt.CellBuilder, r source, x, h, c cellrt.FieldID, n int) {
				outH, outC := b.LSTM(r.matrix(4*n, n), r.matrix(4*n, n), r.vector(4*n),
					b.Load(x, cellrt.Zero), b.Load(h, cellrt.Zero), b.Load(c, cellrt.Zero))
				b.Store(h, cellrt.Zero, 0, outH)
				b.Store(c, cellrt.Zero, 0, outC)
			},
		},
		{
			name: "gru", flop: func(n int) int { return 12 * n * n },
			make: func(b *cellrt.CellBuilder, r source, x, h, _ cellrt.FieldID, n int) {
				b.Store(h, cellrt.Zero, 0, b.GRU(r.matrix(3*n, n), r.matrix(3*n, n), r.vector(3*n), r.vector(3*n),
					b.Load(x, cellrt.Zero), b.Load(h, cellrt.Zero)))
			},
		},
		{
			name: "moves", flop: func(int) int { return 0 },
			make: func(b *cellrt.CellBuilder, _ source, x, h, c cellrt.FieldID, _ int) {
				b.Load(x, cellrt.Zero)
				oldH, oldC := b.Load(h, cellrt.Zero), b.Load(c, cellrt.Zero)
				b.Store(h, cellrt.Zero, 0, oldH)
				b.Store(c, cellrt.Zero, 0, oldC)
			},
		},
		{
			name: "projection", flop: func(n int) int { return 2 * 32_000 * n },
			make: func(b *cellrt.CellBuilder, r source, _, h, _ cellrt.FieldID, n int) {
				b.Greedy(b.Linear(r.matrix(32_000, n), nil, cellrt.None, b.Load(h, cellrt.Zero)))
			},
		},
	}
}

func benchSteps(b *testing.B, cfg cpu.Config, weights cellrt.Weights, bc benchCell, hidden int) {
	b.Helper()
	const slots = 64
	layout := &cellrt.Layout{}
	x, h, c := layout.Add("x", 1, hidden), layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	builder := cellrt.NewCell(bc.name, layout, 0)
	bc.make(builder, source{rand.New(rand.NewPCG(1, 1))}, x, h, c, hidden)
	p := build(b, layout, builder).WithWeights(weights)
	e, err := cpu.New(cfg).Load(p, slots)
	if err != nil {
		b.Fatal(err)
	}
	sizes := []int{1, 4, 16, 64}
	if testing.Short() {
		sizes = sizes[:2] // the portable tier takes seconds for the others
	}
	for _, n := range sizes {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("rows=%d/threads=%d", n, threads), func(b *testing.B) {
				runner, rows, out := e.NewRunner(), make([]cellrt.Row, n), make([]cellrt.Output, n)
				for i := range rows {
					rows[i].Slot = int32((i*37 + 11) % slots) // scattered
				}
				runner.SetThreads(threads)
				defer runner.SetThreads(1)
				runner.Run(p.Cells[0], rows, out) // grows the scratch
				b.ReportAllocs()
				for b.Loop() {
					runner.Run(p.Cells[0], rows, out)
				}
				b.ReportMetric(float64(bc.flop(hidden)*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
