//go:build amd64 && !purego

package kernel

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

// Where several tiles share a panel, they fetch the next one as a whole before
// its first tile reads it. Where one tile takes all rows, or a panel is large,
// weights are fetched while their own panel is read, each once.
func TestProductFetches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rows, k int
		before  bool // the panel before fetches
	}{
		{8, 1024, false},
		{16, 1024, true},
		{28, 512, true},
		{64, 1000, true},
		{64, 1028, false},
		{14, 2048, false},
	} {
		t.Run(fmt.Sprintf("%d rows, %d inputs", tc.rows, tc.k), func(t *testing.T) {
			t.Parallel()
			tiles, _ := avx512Tilings()
			checkFetches(t, tiles, tc.rows, tc.k, tc.before)
		})
	}
}

// checkFetches replaces the tiles by some that note what they would fetch.
func checkFetches(t *testing.T, tiles *tiling[float32], rows, k int, before bool) {
	t.Helper()
	const panels, width = 4, MaxWidth
	panel := k * width * 4
	w := make([]float32, panels*k*width)
	fetched := make([][]int, panels*panel/cacheLine) // by line of weights: the panels that were read then
	for i := range tiles.ahead {
		tiles.ahead[i] = func(k int, _ *float32, _ int, p *float32, _ int, _ *float32, _ int, _ *float32, _, ahead, stride int) {
			at := int(uintptr(unsafe.Pointer(p)) - uintptr(unsafe.Pointer(&w[0])))
			for turn := range k / turnInputs {
				for line := range turnInputs * width * 4 / cacheLine {
					l := (at+ahead+turn*stride)/cacheLine + line
					if l < len(fetched) {
						fetched[l] = append(fetched[l], at/panel)
					}
				}
			}
		}
	}
	for i := range tiles.tiles[1] {
		tiles.tiles[1][i] = func(int, *float32, int, *float32, int, *float32, int, *float32, int) {}
	}
	tiles.fetchFrom = 0
	y := Rows{Data: make([]float32, rows*panels*width), Stride: panels * width}
	x := Rows{Data: make([]float32, rows*k), Stride: k}
	tiles.product(&operands[float32]{w: w, panel: k * width, width: width, k: k, x: x, start: y, y: y}, rows, 0, panels)
	first := fetchNear / cacheLine
	if before {
		first = panel / cacheLine
	}
	for l := first; l < len(fetched); l++ {
		own := l * cacheLine / panel
		if before && !slices.Contains(fetched[l], own-1) || !before && len(fetched[l]) != 1 {
			t.Fatalf("line %d, of panel %d, is fetched by %v", l, own, fetched[l])
		}
	}
}
