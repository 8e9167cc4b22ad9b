package cellrt

import (
	"errors"
	"fmt"
	"time"
)

// Config is how a [Runtime] runs. The zero value means the defaults.
type Config struct {
	// MaxRows is the largest number of rows in a step, 1 to 4096. Default 64.
	MaxRows int
	// Executors is how many steps run at the same time, 1 to 256. Default 1.
	Executors int
	// Trace is called as the runtime works. Default: nothing.
	Trace Trace
}

// Trace is a set of optional callbacks for measurements.
type Trace struct {
	// Step is called after each step, on the executor's goroutine and without
	// a lock; with several executors, at the same time. It delays the next step.
	Step func(StepTrace)
}

// StepTrace describes one step.
type StepTrace struct {
	Program, Cell string
	// Rows is the number of nodes in the batch.
	Rows int
	// Ready is the number of nodes of all cells left waiting when the step began.
	Ready int
	// Duration is the time the backend took.
	Duration time.Duration
}

const (
	defaultMaxRows   = 64
	defaultExecutors = 1
	largestMaxRows   = 4096
	largestExecutors = 256
)

// WithDefaults returns the configuration with zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.MaxRows == 0 {
		c.MaxRows = defaultMaxRows
	}
	if c.Executors == 0 {
		c.Executors = defaultExecutors
	}
	return c
}

// Validate returns every field that is out of bounds, joined.
func (c Config) Validate() error {
	var errs []error
	if c.MaxRows < 1 || c.MaxRows > largestMaxRows {
		errs = append(errs, fmt.Errorf("config MaxRows %d: want 1 to %d", c.MaxRows, largestMaxRows))
	}
	if c.Executors < 1 || c.Executors > largestExecutors {
		errs = append(errs, fmt.Errorf("config Executors %d: want 1 to %d", c.Executors, largestExecutors))
	}
	return errors.Join(errs...)
}
