package batching

import "slices"

// Report is the figures of a comparison.
type Report struct {
	Host    Host    `json:"host"`
	Options Options `json:"options"`
	Models  []Model `json:"models"`
	Seconds float64 `json:"seconds"`
}

// Model is the figures of one network.
type Model struct {
	Name   string `json:"name"`
	Hidden int    `json:"hidden"`
	// Tokens is the size of its vocabularies.
	Tokens int    `json:"tokens"`
	Cells  []Cell `json:"cells"`
	// BucketRows is the largest batch of the servers with buckets: that of the
	// cell whose is largest.
	BucketRows int `json:"bucket_rows"`
	// Requests is the length of the backlog.
	Requests int `json:"requests"`
	// Saturation has the figures with a backlog, cellular first.
	Saturation []Measurement `json:"saturation"`
	// Loads has the figures with arrivals.
	Loads []Load `json:"loads"`
}

// Cell is what is known about a cell.
type Cell struct {
	Name string `json:"name"`
	// MaxRows is the largest batch.
	MaxRows int `json:"max_rows"`
	// RowMicroseconds is what a row of it takes, estimated if the size of the
	// batch was given.
	RowMicroseconds float64 `json:"row_us"`
}

// Load is the figures with one rate of arrivals.
type Load struct {
	// Share is the rate's share of the throughput of the best buckets.
	Share float64 `json:"share"`
	// Rate is in requests a second.
	Rate float64 `json:"rate"`
	// Requests is how many there are in a round.
	Requests int           `json:"requests"`
	Servers  []Measurement `json:"servers"` // cellular first
}

// Measurement is the figures of a server, medians over the rounds.
type Measurement struct {
	Server string `json:"server"`
	// Throughput is in requests a second, from the beginning of the trace to
	// its last answer.
	Throughput float64 `json:"throughput"`
	// P50, P90 and P99 are of the latency, from arrival to answer. P90 is 0 with fewer
	// than 10 requests and P99 with fewer than 100: none lies beyond it.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms,omitempty"`
	P99 float64 `json:"p99_ms,omitempty"`
	// RowsPerStep is the mean number of nodes in a step.
	RowsPerStep float64 `json:"rows_per_step"`
	// Padding is the share of the computed rows that were no node.
	Padding float64 `json:"padding"`
	// Late is p99 of the time from a request's arrival until the generator
	// handed it over, which is part of the latency.
	Late float64 `json:"late_p99_ms"`
}

// median returns the median of each figure.
func median(of []Measurement) Measurement {
	figure := func(get func(Measurement) float64) float64 {
		values := make([]float64, len(of))
		for i, m := range of {
			values[i] = get(m)
		}
		return middle(values)
	}
	return Measurement{
		Throughput:  figure(func(m Measurement) float64 { return m.Throughput }),
		P50:         figure(func(m Measurement) float64 { return m.P50 }),
		P90:         figure(func(m Measurement) float64 { return m.P90 }),
		P99:         figure(func(m Measurement) float64 { return m.P99 }),
		RowsPerStep: figure(func(m Measurement) float64 { return m.RowsPerStep }),
		Padding:     figure(func(m Measurement) float64 { return m.Padding }),
		Late:        figure(func(m Measurement) float64 { return m.Late }),
	}
}

// middle returns the median of values, which it sorts: of an even number the
// mean of the two in the middle, 0 of none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
