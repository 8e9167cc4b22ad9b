package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// BenchmarkGaps measures steps of two threads that follow each other after a
// pause, in which the caller is busy with other things. It reports the time of
// a step without the pause. Names are rows/spin/gap.
func BenchmarkGaps(b *testing.B) {
	const hidden = 512
	layout := &cellrt.Layout{}
	x, h, c := layout.Add("x", 1, hidden), layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	builder := cellrt.NewCell("lstm", layout, 0)
	benchCells()[0].make(builder, source{rand.New(rand.NewPCG(1, 1))}, x, h, c, hidden)
	p := build(b, layout, builder)
	for _, n := range []int{1, 4, 16} {
		for _, spin := range []time.Duration{-1, 50 * time.Microsecond, 100 * time.Microsecond} {
			for _, gap := range []time.Duration{0, 30 * time.Microsecond, 80 * time.Microsecond, 300 * time.Microsecond} {
				b.Run(fmt.Sprintf("rows=%d/spin=%v/gap=%v", n, max(0, spin), gap), func(b *testing.B) {
					e, err := cpu.New(cpu.Config{FoldBytes: -1, Spin: spin}).Load(p, n)
					if err != nil {
						b.Fatal(err)
					}
					runner, rows, out := e.NewRunner(), make([]cellrt.Row, n), make([]cellrt.Output, n)
					for i := range rows {
						rows[i].Slot = int32(i)
					}
					runner.SetThreads(2)
					defer runner.SetThreads(1)
					runner.Run(p.Cells[0], rows, out)
					total := time.Duration(0)
					for b.Loop() {
						began := time.Now()
						runner.Run(p.Cells[0], rows, out)
						ended := time.Now()
						total += ended.Sub(began)
						for time.Since(ended) < gap {
							continue
						}
					}
					b.ReportMetric(float64(total.Nanoseconds())/float64(b.N)/1e3, "us/step")
				})
			}
		}
	}
}
