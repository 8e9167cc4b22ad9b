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

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Duration <= 0 {
		errs = append(errs, fmt.Errorf("duration %v: not positive", o.Duration))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"rounds", o.Rounds}, {"in flight", o.InFlight}, {"slots", o.Slots}, {"tokens", o.Tokens}, {"prompt", o.Prompt}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%s %d: below 1", f.name, f.value))
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
