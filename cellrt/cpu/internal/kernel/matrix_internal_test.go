package kernel

import (
	"fmt"
	"testing"
)

// TestBytesAreThoseOfThePackedWeights compares the size that a matrix has by
// its shape, packed or not, with the memory of its weights, for every width of
// panels and layout of codes that a tier may have.
func TestBytesAreThoseOfThePackedWeights(t *testing.T) {
	t.Parallel()
	for _, layout := range []codeLayout{singles, pairs, quads} {
		for _, width := range []int{16, 32} {
			table := &Table{Width: width, products: products{layout: layout}}
			for _, f := range []Format{F32, BF16, Int8} {
				for _, s := range [][2]int{{1, 1}, {4, 3}, {36, 41}, {132, 64}} {
					outputs, k := s[0], s[1]
					w := Weights{Data: make([]float32, outputs*k), Stride: k, K: k}
					for _, panels := range [][]Panel{table.Plain(outputs), table.Interleaved([]int{0}, outputs), table.Interleaved([]int{3, 0, 1, 2}, outputs/4)} {
						m := table.Pack(f, w, panels)
						n := m.int8
						want := 4*len(m.f32) + 2*len(m.bf16) + len(n.codes) + 4*len(n.scales) + 4*len(n.start)
						if m.Bytes() != int64(want) || table.Outline(f, k, panels).Bytes() != int64(want) {
							t.Error(fmt.Sprintf("%v, panels of %d, codes by %d, %d x %d:", f, width, layout, outputs, k),
								"bytes", m.Bytes(), "outline", table.Outline(f, k, panels).Bytes(), "want", want)
						}
					}
				}
			}
		}
	}
}
