//go:build !purego

package kernel

// neonTilings returns the tilings of NEON. Its 32 registers hold 24
// accumulators. A product takes as many panels at once as gives it 12 of them or
// more, with any number of rows: a core needs 8 to 16 chains to be busy. Nothing
// fetches ahead, as the weights of one or a few panels are read in order.
//
// Calls are half as long as on amd64, because cores with NEON are narrower.
func neonTilings() (*tiling[float32], *tiling[uint16]) {
	f := newTiling[float32](16, []int{0, 4, 3, 2, 1})
	fillF32NEON(f)
	h := newTiling[uint16](16, []int{0, 4, 3, 2, 1})
	fillBF16NEON(h)
	f.cut, f.rowCut = f.cut/2, f.rowCut/2
	h.cut, h.rowCut = h.cut/2, h.rowCut/2
	return f, h
}
