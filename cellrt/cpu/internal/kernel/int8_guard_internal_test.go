//go:build unix

package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func int8Random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// Products and conversions stay inside all of their buffers.
func TestInt8Fences(t *testing.T) {
	t.Parallel()
	for _, table := range Tables() {
		for _, atEnd := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", table.Name, atEnd), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, 2))
				for _, k := range []int{1, 2, 3, 4, 5, 15, 16, 17, 31, 47, 64, 65, 130, 5001} {
					for _, rows := range []int{1, 2, 3, 4, 6, 7, 11, 14, 20} {
						fencedInt8(t, atEnd, rng, table, k, rows)
					}
				}
			})
		}
	}
}

func fencedInt8(t *testing.T, end bool, rng *rand.Rand, table *Table, k, rows int) {
	t.Helper()
	const n = 5*32 - 3
	m := table.Pack(Int8, Weights{Data: int8Random(rng, n*k), Stride: k, K: k}, table.Plain(n))
	width := len(m.Panels) * table.Width
	bias := int8Random(rng, width)
	var in Input
	in.Reset(table, Int8, Rows{Data: int8Random(rng, rows*k), Stride: k}, rows, k)
	in.Prepare(0, rows)
	want := Rows{Data: make([]float32, rows*width), Stride: width}
	m.Product(want, Rows{Data: bias}, &in, rows, 0, len(m.Panels))

	m.int8.codes = fenced(t, m.int8.codes, end)
	m.int8.scales = fenced(t, m.int8.scales, end)
	m.int8.start = fenced(t, m.int8.start, end)
	in.x.Data = fenced(t, in.x.Data, end)
	in.codes = fenced(t, make([]byte, len(in.codes)), end)
	in.scales = fenced(t, make([]float32, len(in.scales)), end)
	in.Prepare(0, rows)
	y := Rows{Data: fenced(t, make([]float32, len(want.Data)), end), Stride: width}
	m.Product(y, Rows{Data: fenced(t, bias, end)}, &in, rows, 0, len(m.Panels))
	for i := range want.Data {
		if y.Data[i] != want.Data[i] {
			t.Fatalf("%s, %d inputs, %d rows: value %d is %v, want %v", table.Name, k, rows, i, y.Data[i], want.Data[i])
		}
	}
}
