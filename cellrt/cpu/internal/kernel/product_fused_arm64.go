package kernel

// chains advances the chains of neighbouring columns over all of x; w holds
// their weights, stride values apart. The compiler fuses each line.
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
