package kernel

// chainColumns is how many columns of pure Go advance side by side: enough
// chains to hide the latency of an addition, few enough to stay in registers.
const chainColumns = 8

// productF32 is the portable product of float32 weights.
func productF32(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	width := m.table.Width
	for p := first; p < last; p++ {
		panelChains(y, init, x.x, m.f32[p*width*m.K:(p+1)*width*m.K], rows, width, (p-first)*width, 0)
	}
}

// panelChains advances the chains of a panel, whose outputs start at column at,
// over the inputs from k on that w holds weights for.
func panelChains(y, init, x Rows, w []float32, rows, width, at, k int) {
	count := len(w) / width
	for r := range rows {
		xr := x.Row(r, k+count)[k:]
		yr, ir := y.Row(r, at+width)[at:], init.Row(r, at+width)[at:]
		for c := 0; c < width; c += chainColumns {
			chains((*[chainColumns]float32)(yr[c:]), (*[chainColumns]float32)(ir[c:]), xr, w[c:], width)
		}
	}
}
