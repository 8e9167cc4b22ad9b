package batching

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/sim"
)

// The networks that can be compared.
const (
	LSTM    = "lstm"
	Seq2Seq = "seq2seq"
	Tree    = "tree"
)

// Options are what is compared and for how long.
type Options struct {
	// Models are networks: [LSTM], [Seq2Seq].
	Models []string `json:"models"`
	// Hidden is the size of embeddings and states, 1 to 4096. Vocabularies
	// have eight times as many tokens.
	Hidden int `json:"hidden"`
	// Requests is the length of the backlog, 1 to 20,000. 0 takes as many as
	// last about Duration.
	Requests int `json:"requests"`
	// Duration is how long requests arrive in a run with arrivals.
	Duration time.Duration `json:"duration_ns"`
	// Rounds is how often everything is measured, 1 to 100.
	Rounds int `json:"rounds"`
	// Width is how many lengths share a bucket, at least 1.
	Width int `json:"width"`
	// Baselines are the servers with buckets.
	Baselines []Baseline `json:"baselines"`
	// Rows is the largest batch, 1 to 4096. 0 has it measured.
	Rows int `json:"rows"`
	// Shape is how servers use the cores.
	Shape cellrt.Shape `json:"shape"`
	// Seed is where weights, traces and arrivals begin.
	Seed uint64 `json:"seed"`
}

// loads returns the loads that latencies are measured at, as shares of the
// throughput of the best buckets.
func loads() []float64 { return []float64{0.3, 0.5, 0.7} }

const (
	mostRequests  = 20_000
	leastRequests = 50 // that are worth a backlog
	largestHidden = 4096
	largestRows   = 4096
	longestRun    = time.Hour
	mostRounds    = 100
)

// Validate returns every field that is out of bounds, joined.
func (o Options) Validate() error {
	var errs []error
	within := func(name string, got, least, most int) {
		if got < least || got > most {
			errs = append(errs, fmt.Errorf("%s %d: want %d to %d", name, got, least, most))
		}
	}
	if len(o.Models) == 0 {
		errs = append(errs, errors.New("models: want at least one"))
	}
	for _, m := range o.Models {
		if m != LSTM && m != Seq2Seq {
			errs = append(errs, fmt.Errorf("model %q: want %s or %s", m, LSTM, Seq2Seq))
		}
	}
	if len(o.Baselines) == 0 {
		errs = append(errs, errors.New("baselines: want at least one"))
	}
	within("hidden", o.Hidden, 1, largestHidden)
	within("requests", o.Requests, 0, mostRequests)
	within("rounds", o.Rounds, 1, mostRounds)
	within("width", o.Width, 1, longestLength)
	within("rows", o.Rows, 0, largestRows)
	if o.Duration <= 0 || o.Duration > longestRun {
		errs = append(errs, fmt.Errorf("duration %s: want more than 0 and at most %s", o.Duration, longestRun))
	}
	if err := o.Shape.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Baseline is a way to serve buckets.
type Baseline struct {
	// Order is which bucket is served next.
	Order sim.Order
	// Tight pads to the longest request of the batch instead of the bucket's
	// upper bound.
	Tight bool
}

// Baselines returns all of them.
func Baselines() []Baseline {
	return []Baseline{
		{Order: sim.RoundRobin},
		{Order: sim.RoundRobin, Tight: true},
		{Order: sim.LongestQueue},
		{Order: sim.LongestQueue, Tight: true},
	}
}

// ParseBaseline returns the baseline with the given name.
func ParseBaseline(name string) (Baseline, error) {
	var names []string
	for _, b := range Baselines() {
		if b.String() == name {
			return b, nil
		}
		names = append(names, b.String())
	}
	return Baseline{}, fmt.Errorf("baseline %q: want one of %s", name, strings.Join(names, ", "))
}

// String returns the name: "round-robin" or "longest-queue", with "-tight" for
// batches padded to their longest request.
func (b Baseline) String() string {
	name := "round-robin"
	if b.Order == sim.LongestQueue {
		name = "longest-queue"
	}
	if b.Tight {
		name += "-tight"
	}
	return name
}

// MarshalText returns the name.
func (b Baseline) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
