//go:build (amd64 || arm64) && !purego

package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Every tile, whether a product would choose it or not, gives what the portable
// product gives.
func TestTiles(t *testing.T) {
	t.Parallel()
	for _, table := range Tables() {
		f32, bf16 := &tiling[float32]{}, &tiling[uint16]{}
		if !fillTiles(table.Name, f32, bf16) {
			continue // without tiles, or with the same
		}
		t.Run(table.Name, func(t *testing.T) {
			t.Parallel()
			for k := range 14 {
				everyTile(t, table, f32, F32, k+1)
				everyTile(t, table, bf16, BF16, k+1)
			}
		})
	}
}

// everyTile runs all tiles on k inputs, in one call and in calls of two inputs;
// those that fetch also on more rows and panels than one tile has.
func everyTile[T float32 | uint16](t *testing.T, table *Table, all *tiling[T], f Format, k int) {
	t.Helper()
	check := func(one tiling[T], rows, panels int) {
		for _, cut := range []int{1 << 20, 2 * one.spans[0]} {
			one.cut, one.rowCut = cut, cut*rows
			checkTile(t, table, &one, f, k, rows, panels)
		}
	}
	for panels := 1; panels <= maxTilePanels; panels++ {
		for rows := 1; rows < len(all.tiles[panels]); rows++ {
			one := *all
			one.spans, one.ahead = []int{panels}, nil
			check(one, rows, panels)
		}
	}
	one := *all
	one.spans = []int{1}
	for rows := max(1, one.aheadFrom); rows < 3*len(all.tiles[1]); rows++ {
		check(one, rows, 3)
	}
}

func checkTile[T float32 | uint16](t *testing.T, table *Table, one *tiling[T], f Format, k, rows, panels int) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(k), uint64(rows*10+panels)))
	n := panels * table.Width
	fill := func(count int) []float32 {
		v := make([]float32, count)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	w := Weights{Data: fill(n * k), Stride: k, K: k}
	x, start := Rows{Data: fill(rows * (k + 1)), Stride: k + 1}, Rows{Data: fill(rows * (n + 3)), Stride: n + 3}
	// A portable matrix of the same panels.
	oracle := *portable()
	oracle.Width = table.Width
	var in Input
	in.Reset(&oracle, f, x, rows, k)
	want := Rows{Data: make([]float32, rows*n), Stride: n}
	oracle.Pack(f, w, oracle.Plain(n)).Product(want, start, &in, rows, 0, panels)

	m := table.Pack(f, w, table.Plain(n))
	o := &operands[T]{width: table.Width, k: k, x: x, start: start, y: Rows{Data: make([]float32, rows*n), Stride: n}}
	switch weights := any(&o.w).(type) {
	case *[]float32:
		*weights, o.panel = m.f32, len(m.f32)/panels
	case *[]uint16:
		*weights, o.panel = m.bf16, len(m.bf16)/panels
	}
	one.product(o, rows, 0, panels)
	if !slices.EqualFunc(o.y.Data, want.Data, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		t.Errorf("%v: %d rows and %d panels on %d inputs, cut at %d", f, rows, panels, k, one.cut)
	}
}

// share divides evenly: no part is above the limit, and none is more than one
// larger than another.
func TestShare(t *testing.T) {
	t.Parallel()
	for most := 1; most <= 14; most++ {
		for n := 1; n <= 100; n++ {
			parts, smallest, largest := 0, n, 0
			for left := n; left > 0; parts++ {
				part := share(left, most)
				smallest, largest = min(smallest, part), max(largest, part)
				left -= part
			}
			if largest > most || largest-smallest > 1 || parts != (n+most-1)/most {
				t.Errorf("%d in parts of at most %d: %d parts of %d to %d", n, most, parts, smallest, largest)
			}
		}
	}
}

// No call reads more weights or does more work than it may, however many inputs
// and rows a product has, and the calls do all of the work.
func TestTileCallsAreShort(t *testing.T) {
	t.Parallel()
	for _, tier := range tierTilings() {
		t.Run(tier.name+"/f32", func(t *testing.T) { t.Parallel(); checkCalls(t, tier.f32, tier) })
		t.Run(tier.name+"/bf16", func(t *testing.T) { t.Parallel(); checkCalls(t, tier.bf16, tier) })
	}
}

// tierTiling is the tilings of a tier, and how much a call of it may read and do.
type tierTiling struct {
	name                string
	width               int
	weights, multiplies int
	f32                 *tiling[float32]
	bf16                *tiling[uint16]
}

// checkCalls replaces the tiles by some that count what they are asked for.
func checkCalls[T float32 | uint16](t *testing.T, all *tiling[T], tier tierTiling) {
	t.Helper()
	width := tier.width
	const k, panels = 20_001, 5
	total := 0
	count := func(k, rows, panels int) {
		total += k * rows * panels
		if k < 1 || k*panels*width > tier.weights || k*rows*panels*width > tier.multiplies {
			t.Errorf("a call of %d inputs, %d rows and %d panels", k, rows, panels)
		}
	}
	for panels := 1; panels <= maxTilePanels; panels++ {
		for rows := 1; rows < len(all.tiles[panels]); rows++ {
			all.tiles[panels][rows] = func(k int, _ *float32, _ int, _ *T, _ int, _ *float32, _ int, _ *float32, _ int) {
				count(k, rows, panels)
			}
		}
	}
	all.fetchFrom = 0
	ahead := 0
	for i := range all.ahead {
		all.ahead[i] = func(k int, _ *float32, _ int, _ *T, _ int, _ *float32, _ int, _ *float32, _, _, _ int) {
			ahead++
			count(k, i+all.aheadFrom, 1)
		}
	}
	o := &operands[T]{w: make([]T, panels*k*width), panel: k * width, width: width, k: k}
	for rows := 1; rows <= 64; rows++ {
		o.x = Rows{Data: make([]float32, rows*k), Stride: k}
		o.y = Rows{Data: make([]float32, rows*panels*width), Stride: panels * width}
		o.start, total = o.y, 0
		all.product(o, rows, 0, panels)
		if total != k*rows*panels {
			t.Errorf("%d rows: calls for %d inputs of rows and panels, want %d", rows, total, k*rows*panels)
		}
	}
	if ahead == 0 && len(all.ahead) > 0 {
		t.Error("no call of the tiles that fetch ahead")
	}
}
