package kernel_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// benchShapes are the inputs and outputs of the matrices: three of other
// publications' sizes, then those of the bundled models.
var benchShapes = []struct{ k, n int }{
	{2048, 4096},
	{512, 768},
	{1024, 32000},
	{512, 1536}, // g2p-en, decoder LSTM: 128 + 384 inputs
	{320, 768},  // g2p-en, encoder LSTM: 128 + 192
	{384, 87},   // g2p-en, output
	{384, 1280}, // kjv-lm, first LSTM: 64 + 320
	{640, 1280}, // kjv-lm, second LSTM: 320 + 320
	{320, 256},  // kjv-lm, output
	{224, 640},  // langid, first LSTM: 64 + 160
	{320, 640},  // langid, LSTM: 160 + 160
	{256, 640},  // listops, inner node: 128 + 128
}

// BenchmarkProduct measures products by tier, format of weights, shape, rows
// and threads. Choose some of the many by a regular expression for each level,
// and run them ahead of other programs where the system allows it:
//
//	go test -run - -bench 'Product/avx512$/f32/512x768/rows=(8|16)$/threads=1' ./cellrt/cpu/internal/kernel
//	go test -c ./cellrt/cpu/internal/kernel && chrt -r 5 ./kernel.test -test.bench 'Product/./f32/2048x4096' -test.benchtime 200ms
//
// GFLOP/s is the average over all calls and best-GFLOP/s that of the fastest.
// %peak compares the latter with [kernel.Table.Peak] of the same process, for
// one core a thread and for every format; GB/s is the bytes of packed weights
// by the time of the fastest call. An 8-bit product includes the conversion of
// its input. For a table of median values: -count 10 and benchstat.
func BenchmarkProduct(b *testing.B) {
	for _, table := range kernel.Tables() {
		b.Run(table.Name, func(b *testing.B) {
			peak := sync.OnceValue(table.Peak)
			for _, f := range []kernel.Format{kernel.F32, kernel.BF16, kernel.Int8} {
				b.Run(f.String(), func(b *testing.B) {
					for _, shape := range benchShapes {
						b.Run(fmt.Sprintf("%dx%d", shape.k, shape.n), func(b *testing.B) {
							m := sync.OnceValue(func() *kernel.Matrix { return benchMatrix(table, f, shape.k, shape.n) })
							for _, rows := range benchRows() {
								for _, threads := range []int{1, 2} {
									b.Run(fmt.Sprintf("rows=%d/threads=%d", rows, threads), func(b *testing.B) {
										benchProduct(b, table, m(), rows, shape.n, threads, peak())
									})
								}
							}
						})
					}
				})
			}
		})
	}
}

// benchRows are the sizes of batches; the portable tier takes seconds for the
// larger ones, which a short run leaves out.
func benchRows() []int {
	if testing.Short() {
		return []int{1, 4}
	}
	return []int{1, 2, 4, 8, 16, 32, 64, 256}
}

func benchMatrix(table *kernel.Table, f kernel.Format, k, n int) *kernel.Matrix {
	w := kernel.Weights{Data: make([]float32, n*k), Stride: k, K: k}
	cheap(w.Data)
	return table.Pack(f, w, table.Plain(n))
}

// cheap fills v with values in (-0.5, 0.5) faster than a good generator.
func cheap(v []float32) {
	state := uint32(1)
	for i := range v {
		state = state*1664525 + 1013904223
		v[i] = float32(int32(state)) / (1 << 32)
	}
}

func benchProduct(b *testing.B, table *kernel.Table, m *kernel.Matrix, rows, n, threads int, peak float64) {
	b.Helper()
	width := len(m.Panels) * table.Width
	// Rows a power of two apart would share few lines of the first cache.
	x := kernel.Rows{Data: make([]float32, rows*(m.K+16)), Stride: m.K + 16}
	y := kernel.Rows{Data: make([]float32, rows*(width+16)), Stride: width + 16}
	cheap(x.Data)
	bias := kernel.Rows{Data: make([]float32, width)}
	var in kernel.Input
	split := startHelpers(threads-1, len(m.Panels), func(first, last int) {
		m.Product(y.From(first*table.Width), bias.From(first*table.Width), &in, rows, first, last)
	})
	defer split.stop()
	best := time.Duration(1<<63 - 1)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		in.Reset(table, m.Format, x, rows, m.K)
		in.Prepare(0, rows)
		split.run()
		best = min(best, time.Since(start))
	}
	operations := 2 * float64(rows) * float64(n) * float64(m.K)
	b.ReportMetric(operations*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(operations/best.Seconds()/1e9, "best-GFLOP/s")
	b.ReportMetric(100*operations/best.Seconds()/peak/float64(threads), "%peak")
	b.ReportMetric(float64(m.Bytes())/best.Seconds()/1e9, "GB/s")
}

// helpers run a function over ranges of panels together with the caller; they
// poll for work.
type helpers struct {
	work              func(first, last int)
	panels, chunk     int
	turn, next, ready atomic.Int64
	count             int
}

// startHelpers starts count of them.
func startHelpers(count, panels int, work func(first, last int)) *helpers {
	h := &helpers{work: work, panels: panels, count: count, chunk: panels}
	if count > 0 {
		// Eight chunks a thread, of four panels if there are enough.
		h.chunk = max(1, panels/(8*(count+1)))
		if h.chunk > 4 {
			h.chunk &^= 3
		}
	}
	for range count {
		go func() {
			for seen := int64(0); ; {
				turn := h.turn.Load()
				for polls := 1; turn == seen; polls++ {
					if polls%1000 == 0 {
						runtime.Gosched()
					}
					turn = h.turn.Load()
				}
				if turn < 0 {
					return
				}
				seen = turn
				h.take()
				h.ready.Add(1)
			}
		}()
	}
	return h
}

func (h *helpers) take() {
	for {
		last := int(h.next.Add(int64(h.chunk)))
		if last-h.chunk >= h.panels {
			return
		}
		h.work(last-h.chunk, min(last, h.panels))
	}
}

// run does all of the work once.
func (h *helpers) run() {
	h.next.Store(0)
	h.ready.Store(0)
	h.turn.Add(1)
	h.take()
	for polls := 1; int(h.ready.Load()) < h.count; polls++ {
		if polls%1000 == 0 {
			runtime.Gosched()
		}
	}
}

func (h *helpers) stop() { h.turn.Store(-1) }
