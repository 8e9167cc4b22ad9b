package transport

import (
	"errors"
	"fmt"
	"time"
)

// Options say what is measured.
type Options struct {
	// Duration of each measurement.
	Duration time.Duration `json:"-"`
	// Rounds is how often each system is measured.
	Rounds int `json:"rounds"`
	// InFlight is the number of requests that the client has open.
	InFlight int `json:"in_flight"`
	// Slots is the number of requests that the worker runs.
	Slots int `json:"slots"`
	// Tokens of an answer, each in a frame of its own.
	Tokens int `json:"tokens"`
	// Prompt is the size of a request, bytes.
	Prompt int `json:"prompt"`
	// Program is the path of the cellmq program. Empty: it is built.
	Program string `json:"-"`
}

// The bounds of options.
const (
	longestRun   = time.Hour
	mostRounds   = 100
	mostRequests = 65_536
	mostTokens   = 10_000
	mostBytes    = 512 << 10 // with its envelope below a server's usual limit
)

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Duration <= 0 || o.Duration > longestRun {
		errs = append(errs, fmt.Errorf("duration %v: must be above 0 and at most %v", o.Duration, longestRun))
	}
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"rounds", o.Rounds, mostRounds},
		{"in flight", o.InFlight, mostRequests},
		{"slots", o.Slots, mostRequests},
		{"tokens", o.Tokens, mostTokens},
		{"prompt", o.Prompt, mostBytes},
	} {
		if f.value < 1 || f.value > f.most {
			errs = append(errs, fmt.Errorf("%s %d: must be between 1 and %d", f.name, f.value, f.most))
		}
	}
	return errors.Join(errs...)
}

// system is a way to carry requests.
type system struct {
	name    string
	cellmq  bool
	durable bool
}

// The names of the systems, in the order of the report.
const (
	plainCore     = "plain, core"
	cellmqCore    = "cellmq, core"
	plainDurable  = "plain, durable"
	cellmqDurable = "cellmq, durable"
)

func systems() []system {
	return []system{
		{name: plainCore},
		{name: cellmqCore, cellmq: true},
		{name: plainDurable, durable: true},
		{name: cellmqDurable, cellmq: true, durable: true},
	}
}
