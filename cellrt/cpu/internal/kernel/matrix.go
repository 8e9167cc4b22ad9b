package kernel

import (
	"fmt"
	"unsafe"
)

// MaxWidth is the largest panel width of any table.
const MaxWidth = 32

// Padded returns n rounded up to whole panels of any table.
func Padded(n int) int { return (n + MaxWidth - 1) / MaxWidth * MaxWidth }

// Panel says which outputs of a weight matrix the columns of a panel are:
// Count of them, at most the table's Width, from First on. The columns after
// them are zero.
type Panel struct {
	First, Count int
}

// Plain returns the panels of n outputs in their order.
func (t *Table) Plain(n int) []Panel { return t.Interleaved([]int{0}, n) }

// Interleaved returns panels that bring the gates of a unit close together:
// panel u*len(gates)+i holds units u*Width to u*Width+Width-1 of gate gates[i],
// a gate being a block of hidden outputs. A group of len(gates) panels is all
// that the new state of its units takes.
//
//	outputs  g0 g0 g0 .. g1 g1 g1 ..     panels  g0[0..31] g1[0..31] .. g0[32..63] g1[32..63] ..
func (t *Table) Interleaved(gates []int, hidden int) []Panel {
	var panels []Panel
	for from := 0; from < hidden; from += t.Width {
		for _, gate := range gates {
			panels = append(panels, Panel{First: gate*hidden + from, Count: min(t.Width, hidden-from)})
		}
	}
	return panels
}

// Weights is a range of columns of a row-major matrix: element (n, k) is
// Data[n*Stride+From+k], for k below K.
type Weights struct {
	Data            []float32
	Stride, From, K int
}

// Matrix is a packed weight matrix. It is read-only and safe for concurrent
// use.
type Matrix struct {
	K      int     // inputs
	Panels []Panel // outputs
	Format Format

	table *Table
	f32   []float32 // F32: [panel][k][column]
	bf16  []uint16  // BF16: [panel][k/2][column][k%2], with a zero after an odd K
	int8  int8Panels
}

// Pack packs the outputs that panels name, for the products of this table.
func (t *Table) Pack(f Format, w Weights, panels []Panel) *Matrix {
	m := t.Outline(f, w.K, panels)
	switch f {
	case F32:
		m.f32 = packF32(w, panels, t.Width)
	case BF16:
		m.bf16 = packBF16(w, panels, t.Width)
	case Int8:
		m.int8 = packInt8(w, panels, t)
	default:
		panic(fmt.Sprintf("kernel: no weight format %v", f))
	}
	return m
}

// Outline returns a matrix of k inputs as Pack makes it, but without weights:
// it has sizes and an order, and no products.
func (t *Table) Outline(f Format, k int, panels []Panel) *Matrix {
	return &Matrix{K: k, Panels: panels, Format: f, table: t}
}

// Bytes returns the size of the packed weights.
func (m *Matrix) Bytes() int64 {
	columns, k := int64(len(m.Panels))*int64(m.table.Width), int64(m.K)
	switch m.Format {
	case F32:
		return columns * k * 4
	case BF16:
		return columns * int64(pairCount(m.K)) * 2 * 2
	case Int8:
		layout := m.table.layout
		return columns * (int64(layout.groups(m.K))*int64(layout) + 4 + 4) // codes, a scale, a start
	}
	panic(fmt.Sprintf("kernel: no weight format %v", m.Format))
}

// Order arranges values that belong to the outputs, for example a bias, by
// packed columns: len(Panels) times the table's width of them, 0 where a panel
// has no output.
func (m *Matrix) Order(v []float32) []float32 {
	out := make([]float32, len(m.Panels)*m.table.Width)
	for i, p := range m.Panels {
		copy(out[i*m.table.Width:], v[p.First:p.First+p.Count])
	}
	return out
}

func packF32(w Weights, panels []Panel, width int) []float32 {
	out := aligned[float32](len(panels) * width * w.K)
	for i, p := range panels {
		panel := out[i*width*w.K:]
		for c := range p.Count {
			for k, v := range w.output(p.First + c) {
				panel[k*width+c] = v
			}
		}
	}
	return out
}

// output returns the weights of output n.
func (w Weights) output(n int) []float32 {
	from := n*w.Stride + w.From
	return w.Data[from : from+w.K]
}

// cacheLine is the alignment of packed weights in bytes: a vector of weights
// then never lies in two cache lines.
const cacheLine = 64

// aligned returns n zeros that start at a cache line.
func aligned[T float32 | uint16 | int8](n int) []T {
	var v T
	size := int(unsafe.Sizeof(v))
	buffer := make([]T, n+cacheLine/size)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))) & (cacheLine - 1) / size
	return buffer[skip : skip+n : skip+n]
}

// Rows is a block of row vectors: row r starts at Data[r*Stride]. A stride of 0
// repeats one row.
type Rows struct {
	Data   []float32
	Stride int
}

// Row returns the first width elements of row r.
func (b Rows) Row(r, width int) []float32 {
	return b.Data[r*b.Stride : r*b.Stride+width]
}

// From returns the block without the first column columns.
func (b Rows) From(column int) Rows { return Rows{Data: b.Data[column:], Stride: b.Stride} }

// Fill sets each of the first rows rows to v, which may be shorter than the
// stride.
func (b Rows) Fill(rows int, v []float32) {
	for r := range rows {
		copy(b.Row(r, len(v)), v)
	}
}
