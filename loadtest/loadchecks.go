package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// idle is a flag that does nothing beside others.
type idle struct {
	flag string
	when bool
	why  string
}

// refuse refuses flags that were given and would do nothing.
func (f *loadFlags) refuse(flags ...idle) error {
	var errs []error
	for _, i := range flags {
		if i.when && f.set.Changed(i.flag) {
			errs = append(errs, fmt.Errorf("--%s %s does nothing: %s", i.flag, f.set.Lookup(i.flag).Value, i.why))
		}
	}
	return errors.Join(errs...)
}

// idle refuses flags that do nothing beside the others of a load.
func (f *loadFlags) idle() error {
	law, traced := f.law(), f.trace != ""
	closed := law == workload.Closed
	return f.refuse(
		idle{"rate", closed && f.rate != 0, "closed arrivals have none"},
		idle{"rate", traced && !closed, "a trace has times of its own"},
		idle{"arrivals", traced && !closed, "a trace has times of its own"},
		idle{"burstiness", traced || law != workload.Gamma && f.burstiness != 1, "only gamma arrivals have it"},
		idle{"cancel-after", f.cancel == 0, "it goes with --cancel"},
		idle{"input-kind", f.inputFile != "", "inputs come from --input-file"},
		idle{"lengths", f.inputFile != "", "inputs come from --input-file"},
	)
}

// external refuses what is for a worker that is started, when none is.
func (f *loadFlags) external() error {
	const why = "it is for a worker that is started, and --nats-url or CELLMQ_NATS_URL names the server of others"
	return f.refuse(idle{"program", true, why}, idle{"worker-arg", true, why})
}

// patient refuses a patience that ends before a request can break the bounds.
func (f *loadFlags) patient(b record.Bounds) error {
	switch {
	case f.patience <= 0:
		return fmt.Errorf("patience %v: not positive", f.patience)
	case f.patience < b.Longest():
		return fmt.Errorf("patience %v: below the %v that --goodput allows", f.patience, b.Longest())
	}
	return nil
}

// places refuses files and directories that cannot be written, before the load.
func (f *loadFlags) places() error {
	if f.plots != "" {
		if err := os.MkdirAll(f.plots, 0o755); err != nil {
			return fmt.Errorf("plots: %w", err)
		}
	}
	if f.json == "" || f.json == "-" {
		return nil
	}
	if into, err := os.Stat(filepath.Dir(f.json)); err != nil || !into.IsDir() {
		return fmt.Errorf("report %s: no such directory", f.json)
	}
	if there, err := os.Stat(f.json); err == nil && there.IsDir() {
		return fmt.Errorf("report %s: a directory", f.json)
	}
	return nil
}

// eachRate refuses what a load at several rates cannot have.
func (f *loadFlags) eachRate(rates ...float64) error {
	if f.trace != "" || f.law() == workload.Closed {
		return errors.New("loads of several rates need arrivals with a rate: neither --trace nor closed ones")
	}
	for _, rate := range rates {
		if !(rate > 0 && rate <= workload.MostRate) {
			return fmt.Errorf("rate %g: must be above 0 and at most %g", rate, float64(workload.MostRate))
		}
	}
	return nil
}

// law is the law of arrivals that the flags mean.
func (f *loadFlags) law() string {
	switch {
	case f.arrivals != "":
		return f.arrivals
	case f.rate == 0:
		return workload.Closed
	case f.burstiness != 1:
		return workload.Gamma
	}
	return workload.Poisson
}
