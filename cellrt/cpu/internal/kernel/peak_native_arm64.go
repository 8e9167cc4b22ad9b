//go:build !purego

package kernel

func neonPeak() peak { return peak{run: peakNEON, operations: peakRegisters * 4 * 2} }
