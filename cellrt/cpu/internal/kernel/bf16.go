package kernel

import "math"

// bf16 returns the upper half of x, rounded to nearest even. A NaN stays one.
func bf16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 1<<6
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fromBF16 returns the float32 whose upper half is v.
func fromBF16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

func packBF16(w Weights, panels []Panel, width int) []uint16 {
	packed := packF32(w, panels, width)
	out := make([]uint16, len(packed))
	for i, v := range packed {
		out[i] = bf16(v)
	}
	return out
}

// productBF16 is the portable product of bfloat16 weights.
func productBF16(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	width := m.table.Width
	wide := make([]float32, width*m.K)
	for p := first; p < last; p++ {
		for i, v := range m.bf16[p*width*m.K : (p+1)*width*m.K] {
			wide[i] = fromBF16(v)
		}
		panel := &Matrix{K: m.K, table: m.table, f32: wide}
		at := (p - first) * width
		productF32(panel, y.From(at), init.From(at), x, rows, 0, 1)
	}
}
