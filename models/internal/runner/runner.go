package runner

import (
	"context"
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

// Runner runs requests. It is safe for concurrent use.
type Runner struct {
	runtime *cellrt.Runtime
	models  map[*cellrt.Program]*loaded
}

// loaded is a model in the runtime.
type loaded struct {
	model *cellrt.Model
	free  chan struct{} // one entry for each slot that is not taken
}

// call is a request on its way. Only the sink writes out and err, before it
// closes done.
type call struct {
	out  models.Output
	err  error
	done chan struct{}
}

// sink hands results to their calls.
type sink struct{}

// Deliver adds each result to its call and ends the calls that are done.
func (sink) Deliver(results []cellrt.Result) {
	for _, r := range results {
		c := r.Sequence.Owner().(*call)
		c.out.Tokens = append(c.out.Tokens, r.Tokens...)
		if r.Done {
			c.out.Reason, c.err = r.Reason, r.Err
			close(c.done)
		}
	}
}

// New returns a runner for a program with the given number of slots, and for
// more programs with as many each. Nothing runs until [Runner.Serve] does.
func New(p *cellrt.Program, slots int, cfg cellrt.Config, more ...*cellrt.Program) (*Runner, error) {
	rt, err := cellrt.New(cfg, cpu.New(cpu.Config{SplitWork: 1}), sink{})
	if err != nil {
		return nil, fmt.Errorf("make runtime: %w", err)
	}
	r := &Runner{runtime: rt, models: make(map[*cellrt.Program]*loaded)}
	for _, p := range append([]*cellrt.Program{p}, more...) {
		m, err := rt.Load(p, slots)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", p.Name, err)
		}
		l := &loaded{model: m, free: make(chan struct{}, slots)}
		for range slots {
			l.free <- struct{}{}
		}
		r.models[p] = l
	}
	return r, nil
}

// Serve runs the executors until ctx ends.
func (r *Runner) Serve(ctx context.Context) error { return r.runtime.Run(ctx) }

// Reshape changes the runtime's shape while it serves.
func (r *Runner) Reshape(s cellrt.Shape) error { return r.runtime.Reshape(s) }

// Stats returns the runtime's counters.
func (r *Runner) Stats() cellrt.Stats { return r.runtime.Stats() }

// Run runs a request of one of the programs to its end, waiting for a free
// slot. It is a [models.Run].
func (r *Runner) Run(ctx context.Context, req *models.Request) (models.Output, error) {
	l := r.models[req.Model.Program()]
	select {
	case <-l.free:
	case <-ctx.Done():
		return models.Output{}, context.Cause(ctx)
	}
	defer func() { l.free <- struct{}{} }()
	c := &call{done: make(chan struct{})}
	s := cellrt.NewSequence(l.model, req.Graph, cellrt.SequenceOptions{Owner: c})
	if err := r.runtime.Submit(s); err != nil {
		return models.Output{}, fmt.Errorf("submit: %w", err)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		r.runtime.Cancel(s, context.Cause(ctx))
		<-c.done
	}
	return c.out, c.err
}
