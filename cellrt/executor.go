package cellrt

import (
	"runtime"
	"time"
)

// executor runs batches, one after the other. It has a runner of each model to
// itself, under its number.
type executor struct {
	runtime *Runtime
	number  int
	threads int
	crowded bool // the shape leaves no core free
	ready   int  // nodes left waiting when the round began

	round  []*flight // batches given out at once; the scratch of earlier ones stays
	length int       // of the round
}

// flight is a batch on its way.
type flight struct {
	batch    Batch
	runner   Runner
	computed int
}

// run is the life of an executor.
func (e *executor) run() {
	for e.next() {
		for _, f := range e.round[:e.length] {
			e.step(f)
		}
		e.complete()
		e.yield()
		e.trace()
		e.forget()
	}
}

// next waits for batches. It returns false when the executor has to end,
// because the runtime stops or its shape has fewer executors.
func (e *executor) next() bool {
	r := e.runtime
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.stopping && e.number < r.shape.Executors {
		if e.take() {
			e.threads = r.shape.Threads
			r.executorStats[e.number].Threads = e.threads
			e.crowded = r.shape.Executors*r.shape.Threads >= runtime.GOMAXPROCS(0)
			if e.ready = r.sched.Ready(); e.ready > 0 {
				r.wake.Signal() // another executor can take them
			}
			return true
		}
		r.wake.Wait()
	}
	r.retire(e)
	return false
}

// take asks the scheduler for a batch and those that may follow it.
func (e *executor) take() bool {
	s := e.runtime.sched
	if !s.Next(e.number, &e.flight(0).batch) {
		return false
	}
	e.length = 1
	for s.Follow(&e.flight(e.length-1).batch, &e.flight(e.length).batch) {
		e.length++
	}
	for _, f := range e.round[:e.length] {
		f.runner = f.batch.Model.runners[e.number]
	}
	return true
}

// flight returns the flight with the given number, at most one more than there
// are.
func (e *executor) flight(i int) *flight {
	if i == len(e.round) {
		e.round = append(e.round, &flight{})
	}
	return e.round[i]
}

// step runs one batch.
func (e *executor) step(f *flight) {
	began := time.Now()
	f.runner.SetThreads(e.threads)
	f.computed = f.runner.Run(f.batch.Cell, f.batch.Rows, f.batch.Outputs)
	f.batch.took = time.Since(began)
}

// complete takes the outputs over and delivers what came of them.
func (e *executor) complete() {
	r := e.runtime
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range e.round[:e.length] {
		r.executorStats[e.number].Busy += f.batch.took
		r.sched.Complete(&f.batch, f.computed)
	}
	r.deliver()
}

// yield lets those run that the results were delivered to, and whoever else has
// waited for a core during the step. Where executors have all cores nobody
// else has one before the Go scheduler takes it from them, which it does after
// 10 ms, many steps. With a core to spare a yield would only wake it up.
func (e *executor) yield() {
	if e.crowded {
		runtime.Gosched()
	}
}

func (e *executor) trace() {
	report := e.runtime.cfg.Trace.Step
	if report == nil {
		return
	}
	for _, f := range e.round[:e.length] {
		report(StepTrace{
			Program: f.batch.Model.program.Name, Cell: f.batch.Cell.Name,
			Tier: f.batch.tier, Rows: len(f.batch.Rows), Ready: e.ready, Duration: f.batch.took,
			Executor: e.number, Batch: f.batch.Rows,
		})
	}
}

// forget lets go of what the round ran: an executor that waits keeps no
// unloaded model in memory.
func (e *executor) forget() {
	for _, f := range e.round[:e.length] {
		f.batch.Model, f.batch.Cell, f.runner = nil, nil, nil
	}
	e.length = 0
}
