package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// offline runs requests of a model without a worker.
type offline struct {
	runtime *cellrt.Runtime
	loaded  *cellrt.Model
	free    chan struct{} // an entry for each slot that is taken
	tokens  atomic.Int64  // that were emitted
}

// offlineCall is a request that runs. The sink alone writes out and err before it
// closes done.
type offlineCall struct {
	out  models.Output
	err  error
	done chan struct{}
}

// offlineSink hands results to their calls.
type offlineSink struct{}

// Deliver implements [cellrt.Sink].
func (offlineSink) Deliver(results []cellrt.Result) {
	for _, r := range results {
		c, ok := r.Sequence.Owner().(*offlineCall)
		if !ok {
			continue
		}
		c.out.Tokens = append(c.out.Tokens, r.Tokens...)
		if r.Done {
			c.out.Reason, c.err = r.Reason, r.Err
			close(c.done)
		}
	}
}

// runOffline loads a model into a runtime of its own, as a worker with these
// settings does, and calls f with what runs its requests, so many at a time.
func runOffline(ctx context.Context, cfg worker.ServeConfig, m *models.Model, slots int, f func(ctx context.Context, o *offline) error) error {
	runtime, err := cellrt.New(cellrt.Config{
		MaxRows: cfg.MaxRows, Executors: cfg.Executors, Threads: cfg.Threads,
	}, cpu.New(cpu.Config{ISA: cfg.ISA}), offlineSink{})
	if err != nil {
		return err
	}
	loaded, err := runtime.Load(m.Program(), slots)
	if err != nil {
		return fmt.Errorf("load model %s: %w", m.Name(), err)
	}
	o := &offline{runtime: runtime, loaded: loaded, free: make(chan struct{}, slots)}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runtime.Run(running) }()
	err = f(ctx, o)
	stop()
	return errors.Join(err, <-ended)
}

// run is a [models.Run].
func (o *offline) run(ctx context.Context, r *models.Request) (models.Output, error) {
	select {
	case o.free <- struct{}{}:
	case <-ctx.Done():
		return models.Output{}, context.Cause(ctx)
	}
	defer func() { <-o.free }()
	c := &offlineCall{done: make(chan struct{})}
	s := cellrt.NewSequence(o.loaded, r.Graph, cellrt.SequenceOptions{Owner: c})
	if err := o.runtime.Submit(s); err != nil {
		return models.Output{}, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		o.runtime.Cancel(s, context.Cause(ctx))
		<-c.done
	}
	o.tokens.Add(int64(len(c.out.Tokens)))
	return c.out, c.err
}

// goldenRun is how a model did on its golden outputs with a weight type.
type goldenRun struct {
	Weights    string        `json:"weights"`
	Cases      int           `json:"cases"`
	Equal      int           `json:"equal"`
	Passed     bool          `json:"passed"`
	Seconds    float64       `json:"seconds"`
	Tokens     int64         `json:"tokens"`
	PerSecond  float64       `json:"tokens_per_second"`
	Mismatches []mismatch    `json:"mismatches"`
	Reason     string        `json:"reason,omitempty"` // why it did not pass
	took       time.Duration // for people
}

// mismatch is a golden output that came out otherwise.
type mismatch struct {
	Line  int    `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	Got   string `json:"got,omitempty"`
	Want  string `json:"want,omitempty"`
	Error string `json:"error"` // all of it in a sentence
}

// maxMismatches is how many golden outputs that differ are shown.
const maxMismatches = 20

// runGolden runs a model's golden outputs. What it says of the model is in the
// run; an error is of something else.
func runGolden(ctx context.Context, cfg worker.ServeConfig, m *models.Model) (goldenRun, error) {
	g := goldenRun{Weights: m.Weights().String(), Mismatches: []mismatch{}}
	err := runOffline(ctx, cfg, m, cfg.Slots, func(ctx context.Context, o *offline) error {
		began := time.Now()
		report, wrong, err := m.Mismatches(ctx, cfg.Slots, o.run, maxMismatches)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.took = time.Since(began)
		g.Cases, g.Equal, g.Passed, g.Tokens = report.Cases, report.Equal, err == nil, o.tokens.Load()
		g.Seconds = g.took.Seconds()
		g.PerSecond = float64(g.Tokens) / max(g.Seconds, 1e-9)
		if err != nil {
			g.Reason = err.Error()
		}
		for _, err := range wrong {
			one := mismatch{Error: err.Error()}
			var differs *models.GoldenError
			if errors.As(err, &differs) {
				one = mismatch{differs.Line, differs.Field, differs.Got, differs.Want, err.Error()}
			}
			g.Mismatches = append(g.Mismatches, one)
		}
		return nil
	})
	return g, err
}
