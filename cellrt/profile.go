package cellrt

import (
	"math"
	"time"
)

// measurement is what was found out about a cell. Zero fields are not known.
type measurement struct {
	rows    int   // the smallest batch that brings most of the throughput
	rowCost int64 // of a row of it, in nanoseconds
}

// profiledRows returns the sizes of batches that are measured, two for each
// doubling: 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
func profiledRows(i int) int {
	size := 1 << ((i + 1) / 2)
	if i > 0 && i%2 == 0 {
		size += size / 2
	}
	return size
}

const (
	// profiledShare is how much of the peak throughput a batch has to bring. A
	// larger batch makes every row in it wait longer for little.
	profiledShare = 0.9
	// profiledLeast is how few rows a batch is limited to at most, even if fewer
	// bring as much: tenants need places and threads need work.
	profiledLeast = 8
	// profiledRuns is how often a size is measured at most; the fastest counts,
	// since everything else the machine does only adds to a time.
	profiledRuns = 5
	// profiledSizes is for how many sizes there is time to measure well.
	profiledSizes = 12
	// profiledFlat is after how many sizes that bring less than profiledGain
	// more than the best so far the measuring ends.
	profiledFlat = 3
	profiledGain = 1.02
)

// profile measures the cells of a model that nothing runs yet, on the slots of
// its arena, whose contents do not matter before a sequence stores something.
// It measures for about as long as budget, and at most one batch of each cell longer.
// After each batch it calls rest with the time that this took, and what rest takes
// is not of the budget. A cell that it cannot make up arguments for is left out.
func profile(m *Model, threads, maxRows int, budget time.Duration, rest func(time.Duration)) {
	runner := m.runners[0]
	m.profiled = threads
	runner.SetThreads(threads)
	defer runner.SetThreads(1)
	for i, q := range m.queues {
		share := budget / time.Duration(len(m.queues)-i)
		began := time.Now()
		p := profiler{runner: runner, cell: q.cell, layout: m.program.Layout, deadline: began.Add(share), perSize: share / profiledSizes, rest: rest}
		limit := min(maxRows, m.Slots()) // rows must not share a slot
		if q.cell.MaxRows > 0 {
			limit = min(limit, q.cell.MaxRows)
		}
		q.measured = p.measure(limit)
		switch {
		case q.measured.rows == limit:
			q.measured.rows = 0 // larger ones may bring more; they could not be measured
		case q.measured.rows > 0:
			q.measured.rows = max(q.measured.rows, profiledLeast)
		}
		budget -= time.Since(began) - p.rested
	}
}

// profiler measures one cell.
type profiler struct {
	runner   Runner
	cell     *Cell
	layout   *Layout
	deadline time.Time
	perSize  time.Duration // after which a size has been run often enough
	rest     func(time.Duration)
	rested   time.Duration // in rest
}

// measure runs batches of growing size until they stop bringing more.
func (p *profiler) measure(limit int) measurement {
	args, ok := probeArgs(p.cell, p.layout)
	if !ok {
		return measurement{}
	}
	rows, out := make([]Row, limit), make([]Output, limit)
	for i := range rows {
		rows[i] = Row{Slot: int32(i), Args: args.row(i)}
	}
	var sizes []int
	var times []time.Duration
	best, flat := 0.0, 0 // rows a nanosecond, and sizes since it grew
	for i := 0; ; i++ {
		n := min(profiledRows(i), limit)
		took := p.fastest(rows[:n], out[:n])
		sizes, times = append(sizes, n), append(times, took)
		rate := float64(n) / float64(took)
		if flat++; rate > best*profiledGain {
			flat = 0
		}
		best = max(best, rate)
		if n == limit || flat == profiledFlat {
			break
		}
		if time.Now().After(p.deadline) {
			// Nobody knows what larger batches bring.
			return measurement{rowCost: max(1, int64(took)/int64(n))}
		}
	}
	for i, n := range sizes {
		if float64(n)/float64(times[i]) >= profiledShare*best {
			return measurement{rows: n, rowCost: max(1, int64(times[i])/int64(n))}
		}
	}
	return measurement{}
}

// fastest returns the shortest time of a few runs, at least a nanosecond. The
// first one grows the runner's memory and counts only if there is no time for
// a second.
func (p *profiler) fastest(rows []Row, out []Output) time.Duration {
	enough := time.Now().Add(p.perSize)
	shortest := time.Duration(math.MaxInt64)
	for run := range profiledRuns + 1 {
		began := time.Now()
		p.runner.Run(p.cell, rows, out)
		ended := time.Now()
		p.rest(ended.Sub(began))
		rested := time.Since(ended)
		p.rested, p.deadline = p.rested+rested, p.deadline.Add(rested)
		late := ended.After(enough)
		enough = enough.Add(rested)
		if run > 0 || late {
			shortest = min(shortest, max(1, ended.Sub(began)))
		}
		if late {
			break
		}
	}
	return shortest
}

// argRange is what an argument of a cell's nodes can be.
type argRange struct {
	low, high int
	// spread asks for another value in each row, as tokens have.
	spread bool
	// long asks for about half of the most, as the length of a source has.
	long bool
}

// probe is the ranges of a cell's arguments.
type probe [MaxArgs]argRange

// probeArgs finds out what arguments nodes of a cell can have by looking at
// what its operations do with them. It reports false when there is no value
// for one.
func probeArgs(c *Cell, layout *Layout) (probe, bool) {
	var p probe
	for i := range p {
		p[i] = argRange{low: -1, high: math.MaxInt32}
	}
	bound := func(a Arg, low, high int) *argRange {
		if a == Zero {
			return &argRange{}
		}
		r := &p[a]
		r.low, r.high = max(r.low, low), min(r.high, high)
		return r
	}
	for _, op := range c.ops {
		switch op := op.(type) {
		case Embed:
			bound(op.ID, 0, op.Table.Rows-1).spread = true
		case Load:
			bound(op.Index, 0, layout.Field(op.Field).Count-1)
		case Store:
			bound(op.Index, 0, layout.Field(op.Field).Count-1)
		case Attend:
			bound(op.Length, 1, layout.Field(op.Memory).Count).long = true
		case Mean:
			bound(op.Count, 1, math.MaxInt32)
		}
	}
	for _, r := range p {
		if r.low > r.high {
			return p, false
		}
	}
	return p, true
}

// row returns arguments for a row.
func (p *probe) row(i int) [MaxArgs]int32 {
	const stride = 7919 // a prime: neighbouring rows look up distant ones
	var args [MaxArgs]int32
	for a, r := range p {
		v := max(0, r.low)
		switch {
		case r.long:
			v = max(v, (r.high+1)/2)
		case r.spread:
			v += i * stride % (r.high - v + 1)
		}
		args[a] = int32(v)
	}
	return args
}
