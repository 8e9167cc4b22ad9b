package sim

import (
	"slices"
	"time"
)

// Report is what happened in a run.
type Report struct {
	// Requests has the times of each request, in the order of the trace.
	Requests []Timing
	// Makespan is when the last request ended.
	Makespan time.Duration
	// Busy is the time that executors spent on steps and overheads, added up.
	Busy time.Duration
	// Rounds is how often an executor was given something to run.
	Rounds int
	// Steps is the number of batches computed.
	Steps int
	// Rows is the number of nodes computed and PaddedRows the number of rows
	// computed beside them.
	Rows, PaddedRows int
}

// Timing is when the stations of one request were passed.
type Timing struct {
	Arrival time.Duration
	// Joined is when an executor took up the first step with a node of the
	// request; the overheads of that step come after it.
	Joined time.Duration
	// FirstToken is when the step that emitted its first token ended; negative
	// if it emitted none.
	FirstToken time.Duration
	// End is when the request's result was there.
	End time.Duration
}

// Throughput returns the requests ended in a second of virtual time.
func (r *Report) Throughput() float64 {
	if r.Makespan == 0 {
		return 0
	}
	return float64(len(r.Requests)) / r.Makespan.Seconds()
}

// Padding returns the rows computed for each node: 1 without padding.
func (r *Report) Padding() float64 {
	if r.Rows == 0 {
		return 1
	}
	return float64(r.Rows+r.PaddedRows) / float64(r.Rows)
}

// RowsPerStep returns the mean number of nodes in a batch.
func (r *Report) RowsPerStep() float64 {
	if r.Steps == 0 {
		return 0
	}
	return float64(r.Rows) / float64(r.Steps)
}

// Latency returns the times from arrival to end.
func (r *Report) Latency() Distribution {
	return r.Distribution(func(t Timing) time.Duration { return t.End - t.Arrival })
}

// Join returns the times from arrival to the beginning of the first step.
func (r *Report) Join() Distribution {
	return r.Distribution(func(t Timing) time.Duration { return t.Joined - t.Arrival })
}

// FirstToken returns the times from arrival to the first token. Requests
// without tokens do not count.
func (r *Report) FirstToken() Distribution {
	return r.Distribution(func(t Timing) time.Duration {
		if t.FirstToken < 0 {
			return -1
		}
		return t.FirstToken - t.Arrival
	})
}

// Distribution collects a time of each request, leaving out negative ones.
func (r *Report) Distribution(of func(Timing) time.Duration) Distribution {
	d := make(Distribution, 0, len(r.Requests))
	for _, t := range r.Requests {
		if v := of(t); v >= 0 {
			d = append(d, v)
		}
	}
	slices.Sort(d)
	return d
}

// Distribution is a set of times, in rising order.
type Distribution []time.Duration

// Quantile returns the smallest time that at least the share q of all times do
// not exceed: Quantile(0.9) is p90, Quantile(1) the largest. It is 0 for an
// empty set.
func (d Distribution) Quantile(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	rank := int(q * float64(len(d)))
	if float64(rank) < q*float64(len(d)) {
		rank++
	}
	return d[min(max(rank, 1), len(d))-1]
}

// Mean returns the mean, 0 for an empty set.
func (d Distribution) Mean() time.Duration {
	if len(d) == 0 {
		return 0
	}
	var sum time.Duration
	for _, v := range d {
		sum += v
	}
	return sum / time.Duration(len(d))
}
