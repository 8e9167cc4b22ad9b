//go:build !purego

package kernel

// peakRegisters is how many vectors a turn of a peak's loop multiplies and adds.
const peakRegisters = 12

func avx2Peak() peak   { return peak{run: peakAVX2, operations: peakRegisters * 8 * 2} }
func avx512Peak() peak { return peak{run: peakAVX512, operations: peakRegisters * 16 * 2} }
