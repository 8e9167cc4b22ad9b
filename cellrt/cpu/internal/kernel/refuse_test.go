package kernel_test

import (
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// The routines in assembly check nothing, so arguments that would lead them out
// of their memory panic before.
func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	const rows, k, n = 3, 5, 40
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range []kernel.Format{kernel.F32, kernel.BF16, kernel.Int8} {
			m := table.Pack(f, kernel.Weights{Data: make([]float32, n*k), Stride: k, K: k}, table.Plain(n))
			panels := len(m.Panels)
			width := panels * table.Width
			block := func(rows, width, less int) kernel.Rows {
				return kernel.Rows{Data: make([]float32, rows*width-less), Stride: width}
			}
			x := block(rows, k, 0)
			input := func(table *kernel.Table, f kernel.Format, width int) *kernel.Input {
				var in kernel.Input
				in.Reset(table, f, x, rows, width)
				return &in
			}
			good, y := input(table, f, k), block(rows, width, 0)
			good.Prepare(0, rows)
			m.Product(y, y, good, rows, 0, panels)
			m.Product(kernel.Rows{}, kernel.Rows{}, good, 0, 0, panels) // no rows, no memory

			other := kernel.F32
			if f == other {
				other = kernel.BF16
			}
			refuses(t, "an input of another width", func() { m.Product(y, y, input(table, f, k-1), rows, 0, panels) })
			refuses(t, "an input of another format", func() { m.Product(y, y, input(table, other, k), rows, 0, panels) })
			refuses(t, "a panel before the first", func() { m.Product(y, y, good, rows, -1, panels-1) })
			refuses(t, "a panel after the last", func() { m.Product(block(rows, width+32, 0), block(rows, width+32, 0), good, rows, 0, panels+1) })
			refuses(t, "more rows than the input has", func() { m.Product(block(rows+1, width, 0), block(rows+1, width, 0), good, rows+1, 0, panels) })
			refuses(t, "too few results", func() { m.Product(block(rows, width, 1), y, good, rows, 0, panels) })
			refuses(t, "too few starts", func() { m.Product(y, block(rows, width, 1), good, rows, 0, panels) })
			refuses(t, "too short a bias", func() { m.Product(y, kernel.Rows{Data: make([]float32, width-1)}, good, rows, 0, panels) })
			if table != portable {
				refuses(t, "an input of another table", func() { m.Product(y, y, input(portable, f, k), rows, 0, panels) })
			}
		}
		vector := func(n int) []float32 { return make([]float32, n) }
		width := table.Width
		refuses(t, "a sum of different lengths", func() { table.Add(vector(4), vector(4), vector(3)) })
		refuses(t, "attention to a part of an entry", func() { table.Attend(vector(4), vector(11), vector(3), vector(4)) })
		refuses(t, "attention into another width", func() { table.Attend(vector(4), vector(12), vector(3), vector(3)) })
		refuses(t, "too few gates", func() { table.LSTM(vector(4*width-1), vector(width), vector(width), vector(width)) })
		refuses(t, "too many units", func() { table.LSTM(vector(4*width), vector(width+1), vector(width+1), vector(width+1)) })
		refuses(t, "states of different lengths", func() { table.GRU(vector(4*width), vector(width), vector(width-1)) })
	})
}

// refuses fails unless f panics.
func refuses(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
