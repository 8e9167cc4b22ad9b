package cellrt

import (
	"errors"
	"fmt"
)

// Shape is how a [Runtime] uses its cores: Executors steps at the same time, of
// Threads threads each. Several executors suit many small steps, several
// threads few large ones. Results do not depend on it.
type Shape struct {
	// Executors is 1 to 256.
	Executors int
	// Threads is 1 to 256.
	Threads int
}

const largestShape = 256

// Validate returns every field that is out of bounds, joined.
func (s Shape) Validate() error {
	var errs []error
	if s.Executors < 1 || s.Executors > largestShape {
		errs = append(errs, fmt.Errorf("executors %d: want 1 to %d", s.Executors, largestShape))
	}
	if s.Threads < 1 || s.Threads > largestShape {
		errs = append(errs, fmt.Errorf("threads %d: want 1 to %d", s.Threads, largestShape))
	}
	return errors.Join(errs...)
}

// Reshape changes the shape of a runtime, also while it serves: steps that run
// end as they would have, every next one has the new shape, and sequences do
// not notice. It does not wait for that. It fails with [ErrStopped] after Run's
// context ended, or when the shape is out of bounds, and changes nothing then.
func (r *Runtime) Reshape(s Shape) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("reshape: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return ErrStopped
	}
	r.shape = s
	r.sched.SetExecutors(s.Executors)
	for _, m := range r.sched.models {
		m.grow(s.Executors)
	}
	if r.started {
		r.startExecutors()
	}
	r.wake.Broadcast() // those that are too many have to notice
	return nil
}

// Shape returns the shape of the next steps.
func (r *Runtime) Shape() Shape {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shape
}

// startExecutors starts the executors that the shape has and that do not run.
// The caller holds the lock.
func (r *Runtime) startExecutors() {
	for i := range r.shape.Executors {
		if i == len(r.running) {
			r.running = append(r.running, false)
			r.executorStats = append(r.executorStats, ExecutorStats{})
		}
		if !r.running[i] {
			r.running[i] = true
			e := &executor{runtime: r, number: i}
			r.executors.Go(e.run)
		}
	}
}

// retire takes note that an executor ends. The caller holds the lock.
func (r *Runtime) retire(e *executor) {
	for _, m := range r.sched.models {
		m.rest(e.number)
	}
	r.running[e.number] = false
	r.executorStats[e.number].Threads = 0
	r.wake.Signal() // what it was woken for is another's now
}
