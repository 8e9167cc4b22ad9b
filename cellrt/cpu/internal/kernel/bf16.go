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

// pairCount returns how many pairs of inputs a panel of k inputs holds.
func pairCount(k int) int { return (k + 1) / 2 }

// packBF16 puts the weights of two inputs side by side, so that a vector of 32
// bits in each lane widens to one of them by a shift and to the other by a
// mask.
func packBF16(w Weights, panels []Panel, width int) []uint16 {
	size := pairCount(w.K) * 2 * width
	out := aligned[uint16](len(panels) * size)
	for i, p := range panels {
		panel := out[i*size:]
		for c := range p.Count {
			for k, v := range w.output(p.First + c) {
				panel[(k/2*width+c)*2+k%2] = bf16(v)
			}
		}
	}
	return out
}

// widened is how many inputs of a panel the portable product widens at a time.
const widened = 32

// productBF16 is the portable product of bfloat16 weights.
func productBF16(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	width := m.table.Width
	var wide [widened * MaxWidth]float32
	for p := first; p < last; p++ {
		panel := m.bf16[p*pairCount(m.K)*2*width : (p+1)*pairCount(m.K)*2*width]
		at := (p - first) * width
		start := init
		for k := 0; k < m.K; k += widened {
			count := min(widened, m.K-k)
			for i := range count {
				pair := panel[(k+i)/2*2*width:]
				for c := range width {
					wide[i*width+c] = fromBF16(pair[2*c+(k+i)%2])
				}
			}
			panelChains(y, start, x.x, wide[:count*width], rows, width, at, k)
			start = y
		}
	}
}
