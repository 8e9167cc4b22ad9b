package accuracy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// Report is what was measured.
type Report struct {
	Samples   int      `json:"samples"` // 0: all
	Steps     int      `json:"steps"`
	Sequences int      `json:"sequences"`
	Seconds   float64  `json:"seconds"`
	Golden    []Golden `json:"golden"`
	Figures   []Figure `json:"figures"`
	Drift     []Drift  `json:"drift"`
}

// Golden is how a model does on its golden outputs.
type Golden struct {
	Model   string `json:"model"`
	Weights string `json:"weights"`
	Cases   int    `json:"cases"`
	Equal   int    `json:"equal"`
	// Refused says that a worker would not serve it.
	Refused bool `json:"refused"`
}

// Measure measures on b what o asks for. Progress is told, in words, what comes
// next.
func Measure(ctx context.Context, b cellrt.Backend, o Options, progress func(string)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	begun := time.Now()
	r := &Report{Samples: o.Samples, Steps: o.Steps, Sequences: o.Sequences}
	for _, name := range o.Models {
		m, err := zoo.Load(name)
		if err != nil {
			return nil, err
		}
		e, err := o.readExam(name)
		if err != nil {
			return nil, fmt.Errorf("test sets of %s: %w", name, err)
		}
		if err := r.examine(ctx, b, m, o.types(), e, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := r.drift(ctx, b, m, o, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	r.Seconds = time.Since(begun).Seconds()
	return r, nil
}

// examine gives a model its test sets and golden inputs, with each weight type.
func (r *Report) examine(ctx context.Context, b cellrt.Backend, m *models.Model, types []cellrt.Weights, e exam, progress func(string)) error {
	var sheets [][]sheet // by weight type
	for _, w := range types {
		progress(fmt.Sprintf("%s with %v", m.Name(), w))
		m := m.WithWeights(w)
		err := serve(ctx, b, m, func(ctx context.Context, s *server) error {
			golden, err := m.VerifyGolden(ctx, slots, s.run)
			if _, differs := errors.AsType[*models.GoldenError](err); err != nil && !differs {
				return err
			}
			r.Golden = append(r.Golden, Golden{
				Model: m.Name(), Weights: w.String(), Cases: golden.Cases, Equal: golden.Equal, Refused: err != nil,
			})
			answered, err := e(ctx, s)
			sheets = append(sheets, answered)
			return err
		})
		if err != nil {
			return err
		}
	}
	for k := range sheets[0] {
		var same []sheet
		for _, s := range sheets {
			same = append(same, s[k])
		}
		r.Figures = append(r.Figures, figure(m.Name(), types, same))
	}
	return nil
}

// drift follows the models that feed back what they write.
func (r *Report) drift(ctx context.Context, b cellrt.Backend, m *models.Model, o Options, progress func(string)) error {
	if m.Limits().MaxTokens == 0 || o.Steps == 0 || len(o.types()) < 2 {
		return nil
	}
	progress(fmt.Sprintf("%s: drift over %d steps", m.Name(), o.Steps))
	lectures, err := o.lectures(ctx, b, m)
	if err != nil {
		return err
	}
	drift, err := follow(ctx, b, m, o.types(), lectures, o.Steps)
	r.Drift = append(r.Drift, drift...)
	return err
}
