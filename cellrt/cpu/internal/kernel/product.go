package kernel

import "fmt"

// Input is a block of row vectors made ready for products with matrices of one
// format and width. Its buffers grow to the largest block it has held.
type Input struct {
	x      Rows
	width  int
	format Format
	table  *Table
	codes  []byte    // Int8: codeStride for each row
	scales []float32 // Int8: one for each row
	stride int       // of codes
}

// Reset points the input at rows rows of x, of which the first width elements
// count. Every row needs Prepare before a product reads it.
func (in *Input) Reset(t *Table, f Format, x Rows, rows, width int) {
	in.x, in.width, in.format, in.table = x, width, f, t
	if f == Int8 {
		in.resetCodes(rows)
	}
}

// Prepare makes rows from to to-1 ready. Different rows can be prepared at the
// same time. For the formats F32 and BF16 it does nothing.
func (in *Input) Prepare(from, to int) {
	if in.format == Int8 {
		in.table.quantize(in, from, to)
	}
}

// Product computes panels first to last-1 for the first rows rows of x: with
// c = (p-first)*Width + column,
//
//	y[r][c] = one chain over k of x[r][k] * m[p][k][column] that starts with init[r][c]
//
// init may be y, or, with a stride of 0, a bias for all rows. y and init have
// (last-first)*Width columns. Calls for different panels can run at the same
// time.
func (m *Matrix) Product(y, init Rows, x *Input, rows, first, last int) {
	if x.width != m.K || x.format != m.Format || x.table != m.table {
		panic(fmt.Sprintf("kernel: input of %d %v values for a matrix of %d %v inputs", x.width, x.format, m.K, m.Format))
	}
	if first < 0 || last > len(m.Panels) {
		panic(fmt.Sprintf("kernel: panels %d to %d of %d", first, last, len(m.Panels)))
	}
	if rows < 1 || first >= last {
		return
	}
	// The kernels have no bounds checks of their own.
	width := (last - first) * m.table.Width
	_, _, _ = y.Row(rows-1, width), init.Row(rows-1, width), x.x.Row(rows-1, m.K)
	if m.K == 0 {
		for r := range rows {
			copy(y.Row(r, width), init.Row(r, width))
		}
		return
	}
	switch m.Format {
	case F32:
		m.table.f32(m, y, init, x, rows, first, last)
	case BF16:
		m.table.bf16(m, y, init, x, rows, first, last)
	case Int8:
		m.table.int8(m, y, init, x, rows, first, last)
	}
}
