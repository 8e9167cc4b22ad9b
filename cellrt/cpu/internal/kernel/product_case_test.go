package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// product is a product of rows of x with the transpose of w, added to start,
// all by outputs in their order.
type product struct {
	rows, n, k int
	w, x       []float32 // n*k, rows*k
	start      []float32 // rows*n, or n for all rows
	gates      []int     // not nil: interleaved blocks of n/len(gates) outputs
}

// call is how a product is asked for.
type call struct {
	padX, padY int  // columns between the rows
	step       int  // panels in a call, 0 for all
	batch      int  // rows in a call, 0 for all
	inPlace    bool // the chains start in y
	cut        int  // inputs in a first matrix of two, whose chains the second continues
}

// canary fills memory that a product must leave alone.
const canary = -77.25

// random returns the product of normally distributed values.
func random(rows, n, k int, seed uint64) product {
	r := rand.New(rand.NewPCG(seed, uint64(rows)<<40|uint64(n)<<20|uint64(k)))
	return product{rows: rows, n: n, k: k, w: normal(r, n*k), x: normal(r, rows*k), start: normal(r, rows*n)}
}

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func (p product) panels(table *kernel.Table) []kernel.Panel {
	if p.gates == nil {
		return table.Plain(p.n)
	}
	return table.Interleaved(p.gates, p.n/len(p.gates))
}

// compute returns the rows*n results of a table.
func (p product) compute(tb testing.TB, table *kernel.Table, f kernel.Format, c call) []float32 {
	tb.Helper()
	panels := p.panels(table)
	width := len(panels) * table.Width
	y := padded(p.rows, width, c.padY)
	for i := range y.Data {
		y.Data[i] = canary
	}
	start := p.startRows(panels, table.Width)
	if c.inPlace {
		for r := range p.rows {
			copy(y.Row(r, width), start.Row(r, width))
		}
		start = y
	}
	x := padded(p.rows, p.k, c.padX)
	for r := range p.rows {
		copy(x.Row(r, p.k), p.x[r*p.k:])
	}
	for from, to := 0, c.cut; from < p.k || p.k == 0; from, to = to, p.k {
		if to == 0 {
			to = p.k
		}
		m := table.Pack(f, kernel.Weights{Data: p.w, Stride: p.k, From: from, K: to - from}, panels)
		c.run(table, m, y, start, x.From(from), p.rows)
		start = y
		if p.k == 0 {
			break
		}
	}
	for r := range p.rows - 1 {
		for i, v := range y.Row(r, y.Stride)[width:] {
			if v != canary {
				tb.Fatalf("row %d: wrote %d columns after the last", r, i+1)
			}
		}
	}
	return p.collect(y, panels, table.Width)
}

// run asks for all panels and rows in parts.
func (c call) run(table *kernel.Table, m *kernel.Matrix, y, start, x kernel.Rows, rows int) {
	step, batch := c.step, c.batch
	if step == 0 {
		step = len(m.Panels)
	}
	if batch == 0 {
		batch = rows
	}
	var in kernel.Input
	for r := 0; r < rows; r += batch {
		count := min(batch, rows-r)
		in.Reset(table, m.Format, skip(x, r), count, m.K)
		in.Prepare(0, count)
		for p := 0; p < len(m.Panels); p += step {
			last := min(len(m.Panels), p+step)
			m.Product(skip(y, r).From(p*table.Width), skip(start, r).From(p*table.Width), &in, count, p, last)
		}
	}
}

// skip returns the block without its first n rows.
func skip(b kernel.Rows, n int) kernel.Rows {
	return kernel.Rows{Data: b.Data[n*b.Stride:], Stride: b.Stride}
}

func padded(rows, width, pad int) kernel.Rows {
	return kernel.Rows{Data: make([]float32, max(0, rows*(width+pad)-pad)), Stride: width + pad}
}

// startRows returns start by packed columns.
func (p product) startRows(panels []kernel.Panel, width int) kernel.Rows {
	rows := len(p.start) / p.n
	out := kernel.Rows{Data: make([]float32, rows*len(panels)*width)}
	if rows > 1 || p.rows == 1 {
		out.Stride = len(panels) * width
	}
	for r := range rows {
		for i, panel := range panels {
			from := r*p.n + panel.First
			copy(out.Data[(r*len(panels)+i)*width:], p.start[from:from+panel.Count])
		}
	}
	return out
}

// collect returns packed columns by outputs.
func (p product) collect(y kernel.Rows, panels []kernel.Panel, width int) []float32 {
	out := make([]float32, p.rows*p.n)
	for r := range p.rows {
		for i, panel := range panels {
			copy(out[r*p.n+panel.First:], y.Row(r, (i+1)*width)[i*width:i*width+panel.Count])
		}
	}
	return out
}

// same fails unless the bits are the same; a NaN is like any other.
func (p product) same(tb testing.TB, got, want []float32) {
	tb.Helper()
	for i := range want {
		if got[i] != got[i] && want[i] != want[i] {
			continue
		}
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			tb.Fatalf("%d rows, %d outputs, %d inputs: row %d output %d is %x, want %x", p.rows, p.n, p.k, i/p.n, i%p.n, got[i], want[i])
		}
	}
}
