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
	// Executors and Threads are the shape to begin with (see [Shape]): how many
	// steps run at the same time and how many threads each of them uses, 1 to
	// 256. Default 1.
	Executors, Threads int
	// Profile is how long [Runtime.Load] may measure a model's cells, to find
	// for each the smallest batch that brings most of the throughput (of 8 rows
	// or more), and what a row costs. [DefaultProfile] is enough for a good answer. Default 0: a
	// cell's batches are as large as MaxRows and the cell allow, and its cost
	// is estimated.
	Profile time.Duration
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
	// Tier is why the batch was of this cell.
	Tier Tier
	// Rows is the number of nodes in the batch.
	Rows int
	// Ready is the number of nodes of all cells left waiting when the step began.
	Ready int
	// Duration is the time the backend took.
	Duration time.Duration
	// Executor is the number of the executor that ran the step.
	Executor int
	// Batch are the step's nodes. They are the executor's: valid until the callback
	// returns.
	Batch []Row
}

// DefaultProfile is a good value for Config.Profile.
const DefaultProfile = 200 * time.Millisecond

const (
	defaultMaxRows = 64
	largestMaxRows = 4096
)

// WithDefaults returns the configuration with zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.MaxRows == 0 {
		c.MaxRows = defaultMaxRows
	}
	if c.Executors == 0 {
		c.Executors = 1
	}
	if c.Threads == 0 {
		c.Threads = 1
	}
	return c
}

// Validate returns every field that is out of bounds, joined.
func (c Config) Validate() error {
	var errs []error
	if c.MaxRows < 1 || c.MaxRows > largestMaxRows {
		errs = append(errs, fmt.Errorf("config MaxRows %d: want 1 to %d", c.MaxRows, largestMaxRows))
	}
	if err := c.shape().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("config: %w", err))
	}
	if c.Profile < 0 {
		errs = append(errs, fmt.Errorf("config Profile %v: want 0 or more", c.Profile))
	}
	return errors.Join(errs...)
}

func (c Config) shape() Shape { return Shape{Executors: c.Executors, Threads: c.Threads} }
