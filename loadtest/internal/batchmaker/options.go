package batchmaker

import (
	"fmt"
	"strings"
)

// Options are what is run.
type Options struct {
	// Scale is how much of it.
	Scale Scale
	// Seed is where lengths, trees and arrivals begin.
	Seed uint64
}

// Scale is how many requests a run has.
type Scale string

// The scales.
const (
	// Quick has few requests: percentiles beyond p90 rest on a handful.
	Quick Scale = "quick"
	// Full is the scale of the committed report.
	Full Scale = "full"
)

// Scales returns all of them.
func Scales() []Scale { return []Scale{Quick, Full} }

// Validate refuses an unknown scale.
func (o Options) Validate() error {
	var names []string
	for _, s := range Scales() {
		if s == o.Scale {
			return nil
		}
		names = append(names, string(s))
	}
	return fmt.Errorf("scale %q: want %s", o.Scale, strings.Join(names, " or "))
}

// requests returns how many requests a run has on the slowest machine.
func (s Scale) requests() int {
	if s == Quick {
		return 150
	}
	return 2000
}
