//go:build unix

package kernel

import (
	"fmt"
	"testing"
)

// A product stays inside its operands: input, weights, start and output.
func TestProductStaysInBounds(t *testing.T) {
	t.Parallel()
	for _, table := range Tables() {
		for _, f := range []Format{F32, BF16} {
			for _, end := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/%v", table.Name, f, end), func(t *testing.T) {
					t.Parallel()
					for _, k := range []int{1, 2, 3, 4, 5, 6, 7, 31, 200, 4097} {
						for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 29} {
							if k == 4097 && rows > 7 {
								continue
							}
							fencedProduct(t, table, f, k, rows, end)
						}
					}
				})
			}
		}
	}
}

func fencedProduct(t *testing.T, table *Table, f Format, k, rows int, end bool) {
	t.Helper()
	const n = 7*16 - 5
	values := func(count int) []float32 {
		v := make([]float32, count)
		for i := range v {
			v[i] = float32(i%23 - 11)
		}
		return v
	}
	m := table.Pack(f, Weights{Data: values(n * k), Stride: k, K: k}, table.Plain(n))
	width := len(m.Panels) * table.Width
	x, start := values(rows*k), values(rows*width)
	want := Rows{Data: make([]float32, rows*width), Stride: width}
	var in Input
	in.Reset(table, f, Rows{Data: x, Stride: k}, rows, k)
	m.Product(want, Rows{Data: start, Stride: width}, &in, rows, 0, len(m.Panels))

	if f == F32 {
		m.f32 = fenced(t, m.f32, end)
	} else {
		m.bf16 = fenced(t, m.bf16, end)
	}
	in.Reset(table, f, Rows{Data: fenced(t, x, end), Stride: k}, rows, k)
	y := Rows{Data: fenced(t, make([]float32, len(want.Data)), end), Stride: width}
	m.Product(y, Rows{Data: fenced(t, start, end), Stride: width}, &in, rows, 0, len(m.Panels))
	for i, v := range want.Data {
		if y.Data[i] != v {
			t.Fatalf("%d inputs, %d rows: value %d is %v, want %v", k, rows, i, y.Data[i], v)
		}
	}
}
