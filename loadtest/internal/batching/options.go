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
	// Models are networks: [LSTM], [Seq2Seq], [Tree].
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
	// Length is that of all sources, 1 to 330. 0 draws lengths.
	Length int `json:"length"`
	// Loads are the rates that latencies are measured at, as shares of the
	// throughput of the best baseline, more than 0 and at most 2.
	Loads []float64 `json:"loads"`
	// Baselines are the servers that batch whole requests. Trees have no length:
	// they only take [Baseline].Merged.
	Baselines []Baseline `json:"baselines"`
	// Rows is the largest batch, 1 to 4096. 0 has it measured.
	Rows int `json:"rows"`
	// Shape is how servers use the cores.
	Shape cellrt.Shape `json:"shape"`
	// Seed is where weights, traces and arrivals begin.
	Seed uint64 `json:"seed"`
}

// DefaultLoads returns the loads of a short comparison.
func DefaultLoads() []float64 { return []float64{0.3, 0.5, 0.7} }

const (
	mostRequests  = 20_000
	leastRequests = 50 // that are worth a backlog
	largestHidden = 4096
	largestRows   = 4096
	longestRun    = time.Hour
	mostRounds    = 100
	mostLoads     = 20
	largestLoad   = 2
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
		switch m {
		case LSTM, Seq2Seq:
		case Tree:
			errs = append(errs, o.validateTrees())
		default:
			errs = append(errs, fmt.Errorf("model %q: want %s, %s or %s", m, LSTM, Seq2Seq, Tree))
		}
	}
	within("loads, number of,", len(o.Loads), 0, mostLoads)
	for _, l := range o.Loads {
		if !(l > 0 && l <= largestLoad) {
			errs = append(errs, fmt.Errorf("load %g: want more than 0 and at most %d", l, largestLoad))
		}
	}
	for _, b := range o.Baselines {
		within("width of "+b.String(), b.Width, 0, longestLength)
	}
	if len(o.Baselines) == 0 {
		errs = append(errs, errors.New("baselines: want at least one"))
	}
	within("hidden", o.Hidden, 1, largestHidden)
	within("requests", o.Requests, 0, mostRequests)
	within("rounds", o.Rounds, 1, mostRounds)
	within("width", o.Width, 1, longestLength)
	within("rows", o.Rows, 0, largestRows)
	within("length", o.Length, 0, longestLength)
	if o.Duration <= 0 || o.Duration > longestRun {
		errs = append(errs, fmt.Errorf("duration %s: want more than 0 and at most %s", o.Duration, longestRun))
	}
	if err := o.Shape.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// validateTrees refuses what trees cannot be served with.
func (o Options) validateTrees() error {
	if o.Length != 0 {
		return fmt.Errorf("length %d: trees have none", o.Length)
	}
	for _, b := range o.Baselines {
		if !b.Merged {
			return fmt.Errorf("baseline %s: trees have no length, want %s", b, nameMerged)
		}
	}
	return nil
}

const nameMerged = "merged"

// Baseline is a way to batch whole requests: in buckets, or merged.
type Baseline struct {
	// Merged takes requests in the order of arrival and runs nodes of one cell
	// at one depth together; the fields below do not matter.
	Merged bool
	// Width is how many lengths share a bucket; 0 is that of the options.
	Width int
	// Order is which bucket is served next.
	Order sim.Order
	// Tight pads to the longest request of the batch instead of the bucket's
	// upper bound.
	Tight bool
}

// Baselines returns all ways to serve buckets.
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
	if name == nameMerged {
		return Baseline{Merged: true}, nil
	}
	names := []string{nameMerged}
	for _, b := range Baselines() {
		if b.String() == name {
			return b, nil
		}
		names = append(names, b.String())
	}
	return Baseline{}, fmt.Errorf("baseline %q: want one of %s", name, strings.Join(names, ", "))
}

// String returns the name: "merged", or "round-robin" or "longest-queue", with
// "-tight" for batches padded to their longest request and the width if there is
// one.
func (b Baseline) String() string {
	if b.Merged {
		return nameMerged
	}
	name := "round-robin"
	if b.Order == sim.LongestQueue {
		name = "longest-queue"
	}
	if b.Tight {
		name += "-tight"
	}
	if b.Width > 0 {
		name += fmt.Sprintf(" of %d", b.Width)
	}
	return name
}

// MarshalText returns the name.
func (b Baseline) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
