package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// BenchmarkCell measures single operations with their gathers and scatters, at
// the sizes of a pronunciation model.
func BenchmarkCell(b *testing.B) {
	const input, hidden, outputs = 128, 384, 87
	r := rand.New(rand.NewPCG(1, 1))
	matrix := func(rows, cols int) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64()) * 0.1
		}
		return m
	}
	layout := &cellrt.Layout{}
	x, h, c := layout.Add("x", 1, input), layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	y := layout.Add("y", 1, outputs)

	lstm := cellrt.NewCell("lstm", layout, 0)
	outH, outC := lstm.LSTM(matrix(4*hidden, input), matrix(4*hidden, hidden), make([]float32, 4*hidden),
		lstm.Load(x, cellrt.Zero), lstm.Load(h, cellrt.Zero), lstm.Load(c, cellrt.Zero))
	lstm.Store(h, cellrt.Zero, 0, outH)
	lstm.Store(c, cellrt.Zero, 0, outC)
	linear := cellrt.NewCell("linear", layout, 0)
	linear.Store(y, cellrt.Zero, 0, linear.Linear(matrix(outputs, hidden), nil, cellrt.None, linear.Load(h, cellrt.Zero)))

	for _, bench := range []struct {
		builder *cellrt.CellBuilder
		flop    float64 // a row
	}{{lstm, 2 * 4 * hidden * (input + hidden)}, {linear, 2 * outputs * hidden}} {
		cell, err := bench.builder.Build()
		if err != nil {
			b.Fatal(err)
		}
		p, err := cellrt.NewProgram("bench", layout, cell)
		if err != nil {
			b.Fatal(err)
		}
		for _, shape := range []struct{ rows, threads int }{{1, 1}, {4, 1}, {16, 1}, {32, 1}, {4, 2}, {16, 2}, {32, 2}} {
			n := shape.rows
			b.Run(fmt.Sprintf("%s/rows=%d/threads=%d", cell.Name, n, shape.threads), func(b *testing.B) {
				e, err := cpu.New(cpu.Config{}).Load(p, n)
				if err != nil {
					b.Fatal(err)
				}
				runner, rows, out := e.NewRunner(), make([]cellrt.Row, n), make([]cellrt.Output, n)
				for i := range rows {
					rows[i].Slot = int32(i)
				}
				runner.SetThreads(shape.threads)
				defer runner.SetThreads(1)
				runner.Run(cell, rows, out) // grows the scratch
				b.ReportAllocs()
				for b.Loop() {
					runner.Run(cell, rows, out)
				}
				b.ReportMetric(bench.flop*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
