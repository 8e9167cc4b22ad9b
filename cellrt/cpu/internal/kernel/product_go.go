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

// chains advances the chains of neighbouring columns over all of x; w holds
// their weights, stride values apart.
func chains(y, init *[chainColumns]float32, x, w []float32, stride int) {
	a0, a1, a2, a3 := init[0], init[1], init[2], init[3]
	a4, a5, a6, a7 := init[4], init[5], init[6], init[7]
	for i, v := range x {
		k := (*[chainColumns]float32)(w[i*stride:])
		a0 = fma(v, k[0], a0)
		a1 = fma(v, k[1], a1)
		a2 = fma(v, k[2], a2)
		a3 = fma(v, k[3], a3)
		a4 = fma(v, k[4], a4)
		a5 = fma(v, k[5], a5)
		a6 = fma(v, k[6], a6)
		a7 = fma(v, k[7], a7)
	}
	y[0], y[1], y[2], y[3] = a0, a1, a2, a3
	y[4], y[5], y[6], y[7] = a4, a5, a6, a7
}
