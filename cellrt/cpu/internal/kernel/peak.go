package kernel

import "time"

// Peak measures how many floating-point operations a second one core does in
// this table's fused multiply-adds, two in each, when all operands are in
// registers: the bound that its products of float32 cannot pass. It takes the
// best of many short runs, some milliseconds in all.
func (t *Table) Peak() float64 {
	const turns, runs = 2000, 200
	best := time.Duration(1<<63 - 1)
	for range runs {
		start := time.Now()
		t.peak.run(turns)
		best = min(best, time.Since(start))
	}
	return float64(turns*t.peak.operations) / best.Seconds()
}

// peak is a loop of fused multiply-adds that does that many operations a turn.
type peak struct {
	run        func(turns int)
	operations int
}

// portablePeak has no registers to hold on to: it works on the nearest memory.
func portablePeak() peak {
	const inputs = 16
	var x [inputs]float32
	var w [inputs * chainColumns]float32
	for i := range w {
		x[i%inputs], w[i] = 1, 1
	}
	return peak{operations: 2 * inputs * chainColumns, run: func(turns int) {
		var y [chainColumns]float32
		for range turns {
			chains(&y, &y, x[:], w[:], chainColumns)
		}
	}}
}

// peakRegisters is how many vectors a turn of the loop in assembly multiplies
// and adds.
const peakRegisters = 12
