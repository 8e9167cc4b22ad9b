package compare

import (
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Report is the outcome of a comparison.
type Report struct {
	Date    time.Time `json:"date"`
	Host    Host      `json:"host"`
	Options Options   `json:"options"`
	// Libraries are those that were asked for, cellmq first.
	Libraries []Library `json:"libraries"`
	// Measurements are in the order in which they were made.
	Measurements []Measurement `json:"measurements"`
}

// Library is what a library said of itself.
type Library struct {
	// Contender is the name under which it was asked for.
	Contender string `json:"contender"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Unavailable is why it could not be had, empty if it could.
	Unavailable string `json:"unavailable,omitempty"`
}

// Measurement is the figures of a library for a case.
type Measurement struct {
	Case      workload.Case `json:"case"`
	Threads   int           `json:"threads"`
	Contender string        `json:"contender"`
	// Best and Median are the times of a call.
	Best   time.Duration `json:"best_ns"`
	Median time.Duration `json:"median_ns"`
	// BestGFLOPS and MedianGFLOPS count the operations of the products.
	BestGFLOPS   float64 `json:"best_gflops"`
	MedianGFLOPS float64 `json:"median_gflops"`
	// Calls is how many were timed.
	Calls int `json:"calls"`
	// RelativeError is the root mean square of the errors, relative to that of
	// the results.
	RelativeError float64 `json:"relative_error"`
	// Detail is how the library computed it, if it says so.
	Detail string `json:"detail,omitempty"`
	// Problem is why there are no figures.
	Problem string `json:"problem,omitempty"`
}

// find returns the measurement of a contender for a case, nil if there is none.
func (r *Report) find(c workload.Case, threads int, contender string) *Measurement {
	for i, m := range r.Measurements {
		if m.Case == c && m.Threads == threads && m.Contender == contender {
			return &r.Measurements[i]
		}
	}
	return nil
}
