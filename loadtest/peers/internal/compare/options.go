package compare

import (
	"errors"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Options are what is compared and for how long.
type Options struct {
	// Shapes are cases; their rows and weights are left out.
	Shapes []workload.Case `json:"shapes"`
	// Rows are sizes of batches.
	Rows []int `json:"rows"`
	// Weights are the ways to keep weights.
	Weights []workload.Weights `json:"weights"`
	// Threads are how many a library may use, 1 to 256.
	Threads []int `json:"threads"`
	// Rounds is how often each library is timed, 1 to 1000.
	Rounds int `json:"rounds"`
	// Duration is how long each time.
	Duration time.Duration `json:"duration_ns"`
	// Pause is how long the machine rests in between.
	Pause time.Duration `json:"pause_ns"`
}

const (
	mostThreads = 256
	mostRounds  = 1000
)

// Validate returns every field that is out of bounds, joined.
func (o Options) Validate() error {
	var errs []error
	if len(o.Shapes) == 0 || len(o.Rows) == 0 || len(o.Weights) == 0 || len(o.Threads) == 0 {
		errs = append(errs, errors.New("want at least one shape, number of rows, kind of weights and number of threads"))
	}
	for _, c := range o.cases() {
		if err := c.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s, %d rows: %w", c, c.Rows, err))
		}
	}
	for _, n := range o.Threads {
		if n < 1 || n > mostThreads {
			errs = append(errs, fmt.Errorf("threads %d: want 1 to %d", n, mostThreads))
		}
	}
	if o.Rounds < 1 || o.Rounds > mostRounds {
		errs = append(errs, fmt.Errorf("rounds %d: want 1 to %d", o.Rounds, mostRounds))
	}
	if o.Duration <= 0 || o.Pause < 0 {
		errs = append(errs, fmt.Errorf("duration %s, pause %s: want more than 0, and not less than 0", o.Duration, o.Pause))
	}
	return errors.Join(errs...)
}

// cases returns all cases, those with the same weights together.
func (o Options) cases() []workload.Case {
	var cases []workload.Case
	for _, c := range o.Shapes {
		for _, w := range o.Weights {
			for _, n := range o.Rows {
				c.Weights, c.Rows = w, n
				cases = append(cases, c)
			}
		}
	}
	return cases
}
