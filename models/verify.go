package models

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/cellrt"
)

// GoldenReport says how a model did on its golden inputs.
type GoldenReport struct {
	// Cases is how many there are.
	Cases int
	// Equal is how many gave the recorded output. With float32 weights it is all
	// of them when the model passes.
	Equal int
}

// GoldenCases returns how many golden inputs the model has.
func (m *Model) GoldenCases() int { return len(m.golden) }

// SelfMade reports whether any golden output was recorded by cellmq itself (see
// [Model.Record]) and not by who trained the model.
func (m *Model) SelfMade() bool {
	return slices.ContainsFunc(m.golden, func(c goldenCase) bool { return c.SelfMade })
}

// Golden outputs are recorded with float32 weights. Another weight type rounds
// each weight, so a choice between two close candidates may go the other way
// and numbers move.
const (
	// leastEqualPercent is the least share of equal outputs with other weight
	// types. Rounding to 8 bits changes none of the bundled models' golden
	// outputs; weights that it ruins change most.
	leastEqualPercent = 75
	// numberShare is which part of its size a number may be off beside the
	// line's tolerance.
	numberShare = 1.0 / 8
	// leastLogProb is the least size that counts for a log-probability.
	leastLogProb = 4
)

// VerifyGolden runs the model's golden inputs, atOnce of them at a time. Run is
// called from several goroutines. A model without golden.jsonl passes.
//
// With float32 weights every output has to be the one recorded, else the error
// is the [*GoldenError] of the first that differs. With another weight type
// three quarters of the outputs have to be: tokens, text, label and
// finish_reason are equal, each logit is within an eighth of the line's largest
// and each log-probability within an eighth of its own size, or of 4 if that is
// larger. Below that the error wraps the first [*GoldenError]. That finds
// weights that the type does not suit, but not every damaged file: a model with
// a bias negated may pass. Whoever serves another type than float32 verifies
// with float32 too. An input that cannot be run at all is an error with every
// weight type.
func (m *Model) VerifyGolden(ctx context.Context, atOnce int, run Run) (GoldenReport, error) {
	report, _, err := m.Mismatches(ctx, atOnce, run, 0)
	return report, err
}

// Mismatches runs the golden inputs like [Model.VerifyGolden] and returns its
// report and error too, and beside them what was wrong with each line that was
// not equal, in the order of the lines, at most limit of them: a [*GoldenError],
// or what kept the line from being run.
func (m *Model) Mismatches(ctx context.Context, atOnce int, run Run, limit int) (GoldenReport, []error, error) {
	errs := make([]error, len(m.golden))
	var cases errgroup.Group
	cases.SetLimit(max(atOnce, 1))
	for i, c := range m.golden {
		cases.Go(func() error {
			errs[i] = m.verify(ctx, run, c)
			return nil // judged below
		})
	}
	_ = cases.Wait()
	report := GoldenReport{Cases: len(m.golden)}
	var wrong []error
	for _, err := range errs {
		switch {
		case err == nil:
			report.Equal++
		case len(wrong) < limit:
			wrong = append(wrong, err)
		}
	}
	return report, wrong, m.judge(report, errs)
}

// judge says why a model does not pass with these errors of its lines; nil when
// it does.
func (m *Model) judge(report GoldenReport, errs []error) error {
	var first error
	for _, err := range errs {
		_, differs := errors.AsType[*GoldenError](err)
		switch {
		case err == nil:
		case !differs || m.Weights() == cellrt.F32:
			return err
		case first == nil:
			first = err
		}
	}
	if least := ceilPercent(report.Cases, leastEqualPercent); report.Equal < least {
		return fmt.Errorf("%d of %d golden outputs are equal with %s weights, at least %d wanted: %w",
			report.Equal, report.Cases, m.Weights(), least, first)
	}
	return nil
}

// ceilPercent returns so many percent of n, rounded up.
func ceilPercent(n, percent int) int { return (n*percent + 99) / 100 }

// allowance returns how far a number of the given size may be off.
func (m *Model) allowance(c goldenCase, size float64) float64 {
	if m.Weights() == cellrt.F32 {
		return c.Tolerance
	}
	return c.Tolerance + numberShare*size
}

// largest returns the largest absolute value.
func largest(values []float32) float64 {
	if len(values) == 0 {
		return 0
	}
	return float64(max(slices.Max(values), -slices.Min(values)))
}
