//go:build (amd64 || arm64) && !purego

package kernel

import "unsafe"

// maxTilePanels is how many panels a tile spans at most.
const maxTilePanels = 4

// tile advances a block of accumulators by k inputs: for each of its rows r and
// the columns c of its panels,
//
//	y[r][c] = start[r][c] + x[r][0] w[0][c] + x[r][1] w[1][c] + ..
//
// with one fused chain each. Strides are in bytes; wStride leads from a panel
// to the next. start may be y.
type tile[T float32 | uint16] func(k int, x *float32, xStride int, w *T, wStride int, start *float32, startStride int, y *float32, yStride int)

// aheadTile is a tile of one panel that also fetches weights into the cache: in
// each turn of its loop as many bytes as the weights of turnInputs inputs take,
// in the first turn from ahead bytes after w on, and in each further turn from
// stride bytes more on.
type aheadTile[T float32 | uint16] func(k int, x *float32, xStride int, w *T, wStride int, start *float32, startStride int, y *float32, yStride, ahead, stride int)

// turnInputs is how many inputs a turn of a tile's loop takes.
const turnInputs = 4

// tiling is the tiles of a tier for one format of weights, and how a product
// is divided among them.
type tiling[T float32 | uint16] struct {
	// tiles has the tiles by panels and rows.
	tiles [maxTilePanels + 1][]tile[T]
	// ahead has those of one panel for aheadFrom rows and more that fetch weights
	// into the cache long before their use.
	ahead     []aheadTile[T]
	aheadFrom int
	// fetchFrom is how many bytes a matrix has at least for them.
	fetchFrom int
	// spans is how many panels to take at once at most, by rows. The last one is
	// for all higher numbers.
	spans []int
	// cut is how many inputs a tile of one panel takes in a call at most, and
	// rowCut how many a tile of one panel and one row does: both even numbers. A
	// call cannot be preempted, so it has to last less than 100 microseconds, even
	// if the weights come from memory, and even on a slow core.
	cut, rowCut int
}

// operands are what a product works on: k inputs, and panels of weights that
// are panel values long.
type operands[T float32 | uint16] struct {
	w           []T
	panel       int
	width       int
	k           int
	x, start, y Rows
}

// product computes panels first to last-1 of the first rows rows.
func (t *tiling[T]) product(o *operands[T], rows, first, last int) {
	var weight T
	fetches := len(o.w)*int(unsafe.Sizeof(weight)) >= t.fetchFrom
	span := t.spans[min(rows, len(t.spans)-1)]
	for p := first; p < last; {
		panels := share(last-p, span)
		most := len(t.tiles[panels]) - 1
		for r, turn := 0, 0; r < rows; turn++ {
			count := share(rows-r, most)
			b := part[T]{r: r, p: p, panels: panels, column: (p - first) * o.width, cut: t.inputs(count, panels), tile: t.tiles[panels][count]}
			if i := count - t.aheadFrom; fetches && panels == 1 && i >= 0 && i < len(t.ahead) {
				b.fetch(t.ahead[i], o, turn, count == rows)
			}
			t.run(o, &b)
			r += count
		}
		p += panels
	}
}

// share returns the size of the first of the fewest even parts of n that are
// not above most.
func share(n, most int) int {
	parts := (n + most - 1) / most
	return (n + parts - 1) / parts
}

// inputs returns how many inputs a call takes at most for so many rows and
// panels, an even number as bfloat16 weights come in pairs.
func (t *tiling[T]) inputs(rows, panels int) int {
	return max(2, min(t.cut, t.rowCut/rows)/panels&^1)
}

// part is what one tile computes of a product: the rows from r on and the panels
// from p on, whose outputs start at column, with at most cut inputs in a call.
type part[T float32 | uint16] struct {
	r, p, panels, column int
	cut                  int
	tile                 tile[T]
	// ahead, if not nil, takes the place of tile.
	ahead aheadTile[T]
	// distance and stride are where to fetch.
	distance, stride int
}

const (
	// fetchFrom is the size of the smallest matrix whose weights are fetched:
	// smaller ones stay in a cache near enough.
	fetchFrom = 4 << 20
	// fetchNear is how far ahead a panel's weights are fetched while it is read:
	// far enough for the latency of memory, and not so far that they leave the
	// cache again.
	fetchNear = 16 << 10
	// fetchPanel is the size of the largest panel that is fetched as a whole while
	// the one before is in use: small beside the second level of cache.
	fetchPanel = 128 << 10
)

// fetch lets f fetch weights where that helps. If one tile takes all rows, it
// fetches what it needs soon, since it reads memory all the time. Otherwise the
// first two tiles of a panel fetch the next panel, a half each, in the order of
// the addresses, which is what a processor's own prefetcher continues: memory
// works while later tiles only read the cache. Large panels are fetched by their
// own first tile. Lines after the last panel are fetched in vain, which does no
// harm.
func (b *part[T]) fetch(f aheadTile[T], o *operands[T], turn int, all bool) {
	var weight T
	size := int(unsafe.Sizeof(weight))
	panel, stride := o.panel*size, turnInputs*o.width*size
	switch {
	case all || panel > fetchPanel:
		if turn == 0 {
			b.ahead, b.distance, b.stride = f, fetchNear, stride
		}
	case turn < 2:
		b.ahead, b.distance, b.stride = f, panel+turn*panel/2, stride/2
	}
}

// run runs the part's tile over all inputs.
func (t *tiling[T]) run(o *operands[T], b *part[T]) {
	const size = int(unsafe.Sizeof(float32(0)))
	var weight T
	wStride := o.panel * int(unsafe.Sizeof(weight))
	x := o.x.Data[b.r*o.x.Stride:]
	y := &o.y.Data[b.r*o.y.Stride+b.column]
	start, startStride := &o.start.Data[b.r*o.start.Stride+b.column], o.start.Stride
	for k := 0; k < o.k; {
		count := min(o.k-k, b.cut)
		w := &o.w[b.p*o.panel+k*o.width]
		if b.ahead != nil {
			b.ahead(count, &x[k], o.x.Stride*size, w, wStride, start, startStride*size, y, o.y.Stride*size, b.distance, b.stride)
		} else {
			b.tile(count, &x[k], o.x.Stride*size, w, wStride, start, startStride*size, y, o.y.Stride*size)
		}
		start, startStride = y, o.y.Stride
		k += count
	}
}

const (
	// callWeights is how many weights a call reads at most: as float32 values, 512
	// KiB and some 25 microseconds from memory.
	callWeights = 128 << 10
	// callMultiplies is how many multiply-adds a call does at most. A core of Zen 4
	// does 16 in a cycle, so that many take it some 20 microseconds, and one with a
	// quarter of its speed less than 100. Without this bound a tile of 14 rows does
	// almost twice as many on its weights.
	callMultiplies = 1 << 20
)

// newTiling returns a tiling without tiles for panels of that width.
func newTiling[T float32 | uint16](width int, spans []int) *tiling[T] {
	return &tiling[T]{spans: spans, fetchFrom: fetchFrom, cut: callWeights / width, rowCut: callMultiplies / width}
}

func f32Product(t *tiling[float32]) productFunc {
	return func(m *Matrix, y, start Rows, x *Input, rows, first, last int) {
		width := m.table.Width
		t.product(&operands[float32]{w: m.f32, panel: m.K * width, width: width, k: m.K, x: x.x, start: start, y: y}, rows, first, last)
	}
}

func bf16Product(t *tiling[uint16]) productFunc {
	return func(m *Matrix, y, start Rows, x *Input, rows, first, last int) {
		width := m.table.Width
		t.product(&operands[uint16]{w: m.bf16, panel: pairCount(m.K) * 2 * width, width: width, k: m.K, x: x.x, start: start, y: y}, rows, first, last)
	}
}
