//go:build !purego

package kernel

import "unsafe"

// int8Tile are the arguments of one call of a product of 8-bit codes. Strides
// are in bytes. All rows and columns that a tile covers are in bounds.
type int8Tile struct {
	codes       *byte // of the tile's first row, from the call's first group on
	codeStride  int
	weights     *int8 // of the tile's first panel, from the call's first group on
	panelStride int
	groups      int // in this call
	ahead       int // distance of the weights to fetch into the cache, if the tile does that

	sums      *int32 // what sums start from; a stride of 0 repeats the first row
	sumStride int
	partial   *int32 // where unfinished sums go, [row][column], or nil to finish

	scales, rowScales *float32
	init              *float32
	initStride        int
	y                 *float32
	yStride           int
}

// int8Tier is what drives the tiles of one instruction tier.
type int8Tier int

const (
	int8TierAVX2 int8Tier = iota
	int8TierAVX512
	int8TierVNNI
)

const (
	// callInputs bounds the inputs times the panels of a call, and callProducts
	// these times its rows, so that it lasts below 100 microseconds even if its
	// weights, 512 KiB, come from memory.
	callInputs   = 1 << 14
	callProducts = 1 << 17
	// prefetchDistance is how many bytes of weights are fetched ahead.
	prefetchDistance = 4096
	// tileSums is the number of sums of the largest tile.
	tileSums = 14 * MaxWidth
)

// run computes a tile of rows rows and panels panels.
func (tier int8Tier) run(t *int8Tile, rows, panels int) {
	switch tier {
	case int8TierAVX2:
		int8AVX2(t, rows, panels)
	case int8TierAVX512:
		int8AVX512(t, rows, panels)
	case int8TierVNNI:
		int8VNNI(t, rows, panels)
	}
}

// shape returns how many rows and panels a tile has at most, for a product of
// rows rows. Few rows leave registers free, and several panels then keep more
// reads from memory under way. With VNNI, where a sum takes one instruction but
// several cycles, up to 7 rows of one panel are too few sums at a time to keep
// the multipliers busy.
func (tier int8Tier) shape(rows int) (tileRows, panels int) {
	wide := tier != int8TierAVX2
	switch {
	case rows == 1 || rows <= 3 && wide:
		return rows, 4
	case rows <= 7 && tier == int8TierVNNI:
		return rows, 2
	case rows == 2:
		return rows, 3
	case rows == 3:
		return rows, 2
	case wide:
		return 14, 1
	}
	return 6, 1
}

// product computes the results with tiles of similar numbers of rows: 16 are 8
// and 8, not 14 and 2.
func (tier int8Tier) product(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	_, _ = x.codes[rows*x.stride-1], x.scales[rows-1]
	most, atOnce := tier.shape(rows)
	tiles := (rows + most - 1) / most
	for p := first; p < last; p += atOnce {
		panels := min(atOnce, last-p)
		t := m.int8Tile(p)
		at := (p - first) * m.table.Width
		row := 0
		for i := range tiles {
			n := (rows - row) / (tiles - i)
			t.setRows(x, y, init, row, at)
			tier.tile(&t, n, panels, m.table)
			row += n
			t.ahead = 0
		}
	}
}

// int8Tile returns a tile for all inputs that starts at panel p.
func (m *Matrix) int8Tile(p int) int8Tile {
	l, width := m.table.layout, m.table.Width
	size := l.groups(m.K) * int(l) * width
	return int8Tile{
		weights:     unsafe.SliceData(m.int8.codes[p*size:]),
		panelStride: size,
		groups:      l.groups(m.K),
		ahead:       prefetchDistance,
		sums:        &m.int8.start[p*width],
		scales:      &m.int8.scales[p*width],
	}
}

// setRows moves a tile to the rows from row on and the results from column at
// on.
func (t *int8Tile) setRows(x *Input, y, init Rows, row, at int) {
	t.codes, t.codeStride = &x.codes[row*x.stride], x.stride
	t.rowScales = &x.scales[row]
	t.init, t.initStride = &init.Data[row*init.Stride+at], init.Stride*4
	t.y, t.yStride = &y.Data[row*y.Stride+at], y.Stride*4
}

// excess is what the input's codes of VNNI have added, to be unsigned.
const excess = 128

// tile computes a tile, in several calls if one would take too long.
func (tier int8Tier) tile(t *int8Tile, rows, panels int, table *Table) {
	if most := callGroups(rows, panels, table.layout); t.groups > most {
		tier.longTile(*t, rows, panels, most, table)
		return
	}
	tier.run(t, rows, panels)
}

// callGroups returns how many groups a call takes at most.
func callGroups(rows, panels int, l codeLayout) int {
	return min(callInputs, callProducts/rows) / panels / int(l)
}

// longTile computes a tile with at most so many groups a call.
func (tier int8Tier) longTile(t int8Tile, rows, panels, most int, table *Table) {
	var sums [tileSums]int32
	groups := t.groups
	groupBytes := table.layout.inputBytes(int(table.layout))
	for done := 0; done < groups; done += most {
		t.groups = min(most, groups-done)
		t.partial = &sums[0]
		if done+t.groups == groups {
			t.partial = nil
		}
		tier.run(&t, rows, panels)
		t.sums, t.sumStride = &sums[0], panels*table.Width*4
		t.codes = (*byte)(unsafe.Add(unsafe.Pointer(t.codes), t.groups*groupBytes))
		t.weights = (*int8)(unsafe.Add(unsafe.Pointer(t.weights), t.groups*int(table.layout)*table.Width))
	}
}

// quantize fills the codes and scales of rows from to to-1.
func (tier int8Tier) quantize(in *Input, from, to int) {
	for r := from; r < to; r++ {
		x := unsafe.SliceData(in.x.Row(r, in.width))
		codes := in.codes[r*in.stride:][:in.stride]
		var bits uint32
		if tier == int8TierAVX2 {
			bits = largestBitsAVX2(x, in.width)
		} else {
			bits = largestBitsAVX512(x, in.width)
		}
		scale, inverse := codeScale(bits)
		in.scales[r] = scale
		switch {
		case inverse == 0:
			zeroCodes(codes, byte(in.table.excess))
		case tier == int8TierAVX2:
			codesAVX2(x, in.width, &codes[0], inverse)
		case tier == int8TierAVX512:
			codesAVX512(x, in.width, &codes[0], inverse)
		default:
			codesVNNI(x, in.width, &codes[0], inverse)
		}
	}
}

// zeroCodes sets codes to the code of zero.
func zeroCodes(codes []byte, zero byte) {
	for i := range codes {
		codes[i] = zero
	}
}

// setProducts makes the table use the tier's products of 8-bit codes.
func (tier int8Tier) setProducts(t *Table) {
	t.int8, t.quantize, t.layout = tier.product, tier.quantize, pairs
	if tier == int8TierVNNI {
		t.layout, t.excess = quads, excess
	}
}
