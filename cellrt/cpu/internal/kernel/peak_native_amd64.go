//go:build !purego

package kernel

func avx2Peak() peak   { return peak{run: peakAVX2, operations: peakRegisters * 8 * 2} }
func avx512Peak() peak { return peak{run: peakAVX512, operations: peakRegisters * 16 * 2} }
