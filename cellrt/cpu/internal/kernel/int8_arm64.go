//go:build !purego

package kernel

import "unsafe"

const (
	// dotPanels is how many panels a tile of 8-bit codes spans at most, and
	// dotVectors how many vectors of four sums it holds at most.
	dotPanels, dotVectors = 4, 24
	// dotInputs bounds the inputs times the panels of a call, and dotProducts these
	// times its rows, so that it lasts below 100 microseconds even if its weights,
	// 256 KiB, come from memory.
	dotInputs, dotProducts = 1 << 14, 1 << 16
)

// productDot is the product of 8-bit codes with dot products of bytes. A tile
// leaves its sums, which become results row by row.
func productDot(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	_, _ = x.codes[rows*x.stride-1], x.scales[rows-1]
	width := m.table.Width
	span := max(1, dotPanels+1-rows)
	for p := first; p < last; {
		panels := share(last-p, span)
		columns := panels * width
		for r := 0; r < rows; {
			count := share(rows-r, dotVectors*4/columns)
			var sums [dotVectors * 4]int32
			m.dotSums(&sums, x, r, count, p, panels)
			for i := range count {
				at := (p - first) * width
				results := y.Row(r+i, at+columns)[at:]
				resultsNEON(results, &init.Row(r+i, at+columns)[at], &sums[i*columns], &m.int8.scales[p*width], x.scales[r+i])
			}
			r += count
		}
		p += panels
	}
}

// dotSums computes the sums of so many rows and panels, in several calls if one
// would take too long.
func (m *Matrix) dotSums(sums *[dotVectors * 4]int32, x *Input, row, rows, panel, panels int) {
	width, group := m.table.Width, int(m.table.layout)
	groups := m.table.layout.groups(m.K)
	size := groups * group * width
	most := min(dotInputs, dotProducts/rows) / panels / group
	start, startStride := &m.int8.start[panel*width], 0
	for done := 0; done < groups; done += most {
		int8Dot(rows, panels, min(most, groups-done), &x.codes[row*x.stride+done*group], x.stride,
			unsafe.SliceData(m.int8.codes[panel*size+done*group*width:]), size, start, startStride, &sums[0], panels*width*4)
		start, startStride = &sums[0], panels*width*4
	}
}

// quantizeNEON fills the codes and scales of rows from to to-1.
func quantizeNEON(in *Input, from, to int) {
	for r := from; r < to; r++ {
		x, codes := in.x.Row(r, in.width), in.codes[r*in.stride:][:in.stride]
		scale, inverse := codeScale(largestBitsNEON(x))
		in.scales[r] = scale
		if inverse == 0 {
			clear(codes)
			continue
		}
		codesNEON(x, unsafe.SliceData(codes), inverse)
	}
}
