package accuracy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/zoo"
)

// Options are what is measured.
type Options struct {
	// Models are names of bundled models.
	Models []string
	// Weights are compared with float32, which is always measured first.
	Weights []cellrt.Weights
	// Samples is how many cases of each test set count, and a tenth of how many
	// bytes of held-out text. 0 is all.
	Samples int
	// Steps is how long drift is followed, Sequences in how many texts. 0 steps
	// leave it out.
	Steps, Sequences int
	// Root is the directory of the repository, which has the test sets.
	Root string
}

const (
	mostSteps     = 1000
	mostSequences = 64
)

// Validate returns every field that is out of bounds, joined.
func (o Options) Validate() error {
	var errs []error
	for _, name := range o.Models {
		if !slices.Contains(zoo.Names(), name) {
			errs = append(errs, fmt.Errorf("model %.64q: must be one of %s", name, strings.Join(zoo.Names(), ", ")))
		}
	}
	if len(o.Models) == 0 {
		errs = append(errs, errors.New("models: at least one wanted"))
	}
	between := func(what string, value, low, high int) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("%s %d: must be between %d and %d", what, value, low, high))
		}
	}
	between("samples", o.Samples, 0, 1_000_000)
	between("steps", o.Steps, 0, mostSteps)
	between("sequences", o.Sequences, 1, mostSequences)
	return errors.Join(errs...)
}

// types returns the weight types to measure, float32 first, each once.
func (o Options) types() []cellrt.Weights {
	out := []cellrt.Weights{cellrt.F32}
	for _, w := range o.Weights {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// limit returns how many of n cases count.
func (o Options) limit(n int) int {
	if o.Samples == 0 {
		return n
	}
	return min(n, o.Samples)
}
