package kernel

// quantize is the portable conversion of an input to codes, in single bytes.
func quantize(in *Input, from, to int) {
	for r := from; r < to; r++ {
		x := in.x.Row(r, in.width)
		codes := in.codes[r*in.stride:][:in.width]
		scale, inverse := codeScale(largestBits(x))
		in.scales[r] = scale
		if inverse == 0 {
			clear(codes)
			continue
		}
		for k, v := range x {
			codes[k] = byte(code(v, inverse))
		}
	}
}

// productInt8 is the portable product of 8-bit codes, in single bytes.
func productInt8(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	width := m.table.Width
	for p := first; p < last; p++ {
		w := m.int8.codes[p*width*m.K : (p+1)*width*m.K]
		scales := m.int8.scales[p*width : (p+1)*width]
		at := (p - first) * width
		for r := range rows {
			var sums [MaxWidth]int32
			addCodes(sums[:width], x.codes[r*x.stride:][:m.K], w)
			yr, ir := y.Row(r, at+width)[at:], init.Row(r, at+width)[at:]
			for c, sum := range sums[:width] {
				yr[c] = fma(float32(float32(sum)*scales[c]), x.scales[r], ir[c])
			}
		}
	}
}

// addCodes adds to the sum of each column the products of its weights' codes
// with those of a row.
func addCodes(sums []int32, row []byte, w []int8) {
	for k, v := range row {
		x := int32(int8(v))
		for c, q := range w[k*len(sums):][:len(sums)] {
			sums[c] += x * int32(q)
		}
	}
}
