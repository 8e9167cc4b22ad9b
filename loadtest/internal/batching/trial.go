package batching

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// server is one side of the comparison.
type server interface {
	// submit hands over requests that have arrived. It may wait while the
	// server is full.
	submit(ctx context.Context, arrived []answer) error
	// counts returns what has been computed so far.
	counts() counts
}

// counts is what a server computed.
type counts struct {
	steps, rows, padded uint64
}

func (c counts) since(before counts) counts {
	return counts{steps: c.steps - before.steps, rows: c.rows - before.rows, padded: c.padded - before.padded}
}

// answer is what becomes of a request in a trial. The server that has it
// writes it until it ends it.
type answer struct {
	request *request
	trial   *trial
	digest  uint64
	ended   time.Duration // since the beginning of the trial
	err     error
}

// end is the server's last word on a request: its output is there now.
func (a *answer) end(now time.Time, digest uint64, err error) {
	a.digest, a.err = digest, err
	a.ended = now.Sub(a.trial.began)
	if a.trial.left.Add(-1) == 0 {
		close(a.trial.done)
	}
}

// trial is a trace on a server.
type trial struct {
	answers []answer // in the order of the trace
	began   time.Time
	left    atomic.Int64 // answers that have not ended
	done    chan struct{}
	late    sim.Distribution // how long after its arrival each request was handed over
	counts  counts
}

func newTrial(trace []request) *trial {
	t := &trial{answers: make([]answer, len(trace)), done: make(chan struct{}), late: make(sim.Distribution, 0, len(trace))}
	for i := range trace {
		t.answers[i] = answer{request: &trace[i], trial: t}
	}
	t.left.Store(int64(len(trace)))
	return t
}

// run serves the trace, which is not empty, and returns when every request has
// its answer.
func (t *trial) run(ctx context.Context, s server) error {
	runtime.GC() // what others left behind is not this server's
	before := s.counts()
	t.began = time.Now()
	if err := t.generate(ctx, s); err != nil {
		return err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.counts = s.counts().since(before)
	slices.Sort(t.late)
	var errs []error
	for i := range t.answers {
		if err := t.answers[i].err; err != nil {
			errs = append(errs, fmt.Errorf("request %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// generate hands the requests over as they arrive, together if they do.
func (t *trial) generate(ctx context.Context, s server) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := 0; next < len(t.answers); {
		if wait := t.answers[next].request.arrival - time.Since(t.began); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		first, now := next, time.Since(t.began)
		for next < len(t.answers) && t.answers[next].request.arrival <= now {
			t.late = append(t.late, now-t.answers[next].request.arrival)
			next++
		}
		if err := s.submit(ctx, t.answers[first:next]); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
	}
	return nil
}

// sameAnswers fails when an answer differs from that of another trial of the
// same trace.
func (t *trial) sameAnswers(as *trial) error {
	for i := range t.answers {
		if t.answers[i].digest != as.answers[i].digest {
			return fmt.Errorf("the answers to request %d, of %d nodes, differ", i, t.answers[i].request.nodes())
		}
	}
	return nil
}

// measure turns a trial that ended into figures.
func (t *trial) measure() Measurement {
	latency := make(sim.Distribution, len(t.answers))
	makespan := time.Duration(0)
	for i := range t.answers {
		a := &t.answers[i]
		latency[i] = a.ended - a.request.arrival
		makespan = max(makespan, a.ended)
	}
	slices.Sort(latency)
	beyond := func(q float64) float64 { // 0 where no request lies beyond
		if float64(len(latency))*(1-q) < 1-1e-9 {
			return 0
		}
		return milliseconds(latency.Quantile(q))
	}
	c := t.counts
	return Measurement{
		Throughput:  float64(len(t.answers)) / makespan.Seconds(),
		P50:         milliseconds(latency.Quantile(0.5)),
		P90:         beyond(0.9),
		P99:         beyond(0.99),
		RowsPerStep: float64(c.rows) / float64(max(c.steps, 1)),
		Padding:     float64(c.padded) / float64(max(c.rows+c.padded, 1)),
		Late:        milliseconds(t.late.Quantile(0.99)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
