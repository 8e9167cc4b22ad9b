package sim

import (
	"fmt"
	"math"
	"time"
)

// Policy decides what executors run: [Cellular], [Algorithm1], [Padded] or
// [Merged].
type Policy interface {
	// begin returns the policy's state for one run.
	begin(m Machine, trace []Request, clock *clock) (state, error)
}

// state is a policy at work. The run calls it in the order of virtual time.
type state interface {
	// arrive hands over a request that arrived now.
	arrive(request int) error
	// next appends what an idle executor runs from now on, one step after the
	// other without asking again. Nothing leaves the executor idle until the
	// next event.
	next(executor int, steps []step) []step
	// complete says that the executor's first uncompleted step ended now.
	complete(executor int) error
}

// step is what an executor does in one go.
type step struct {
	cost         time.Duration // without overheads
	batches      int           // a padded batch of requests has one for each cell time
	rows, padded int
	requests     []int32 // that take part
}

// clock is the virtual time and what it was read for.
type clock struct {
	now    time.Duration
	report *Report
}

// join notes that a step of a request begins now.
func (c *clock) join(request int32) {
	if t := &c.report.Requests[request]; t.Joined < 0 {
		t.Joined = c.now
	}
}

// emit notes that a request has a token now.
func (c *clock) emit(t *Timing) {
	if t.FirstToken < 0 {
		t.FirstToken = c.now
	}
}

// end notes that a request ends now.
func (c *clock) end(t *Timing) {
	t.End = c.now
	c.report.Makespan = c.now
}

// executor runs its steps one after the other.
type executor struct {
	steps []step // given in the current round
	first int    // the one that is running; all are done when it is len(steps)
	until time.Duration
}

func (e *executor) idle() bool { return e.first == len(e.steps) }

// never is later than every event.
const never = time.Duration(math.MaxInt64)

// run is one run at work.
type run struct {
	clock
	machine   Machine
	trace     []Request
	arrived   int
	executors []executor
	state     state
}

// Run runs a trace, whose arrivals must not fall, on a machine until every
// request has ended. It fails when the machine, the trace or the policy is
// invalid, or when the policy cannot run a shape.
func Run(m Machine, p Policy, trace []Request) (*Report, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if err := validate(m, trace); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	r := &run{machine: m, trace: trace, executors: make([]executor, m.Executors)}
	r.report = &Report{Requests: make([]Timing, len(trace))}
	for i := range trace {
		r.report.Requests[i] = Timing{Arrival: trace[i].Arrival, Joined: -1, FirstToken: -1, End: -1}
	}
	var err error
	if r.state, err = p.begin(m, trace, &r.clock); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	for r.advance() {
		if err := r.events(); err != nil {
			return nil, fmt.Errorf("simulate: at %s: %w", r.now, err)
		}
	}
	for i := range r.report.Requests {
		if r.report.Requests[i].End < 0 {
			return nil, fmt.Errorf("simulate: request %d never ended", i)
		}
	}
	return r.report, nil
}

// advance moves the clock to the next event and reports whether there is one.
func (r *run) advance() bool {
	next := never
	if r.arrived < len(r.trace) {
		next = r.trace[r.arrived].Arrival
	}
	for i := range r.executors {
		if e := &r.executors[i]; !e.idle() {
			next = min(next, e.until)
		}
	}
	if next == never {
		return false
	}
	r.now = next
	return true
}

// events handles everything that happens now.
func (r *run) events() error {
	for i := range r.executors {
		e := &r.executors[i]
		if e.idle() || e.until > r.now {
			continue
		}
		if err := r.state.complete(i); err != nil {
			return err
		}
		if e.first++; !e.idle() {
			r.start(e)
		}
	}
	for ; r.arrived < len(r.trace) && r.trace[r.arrived].Arrival <= r.now; r.arrived++ {
		if err := r.state.arrive(r.arrived); err != nil {
			return err
		}
	}
	for i := range r.executors {
		if e := &r.executors[i]; e.idle() {
			e.steps, e.first = r.state.next(i, e.steps[:0]), 0
			if !e.idle() {
				r.report.Rounds++
				e.steps[0].cost += r.machine.RoundOverhead
				r.start(e)
			}
		}
	}
	return nil
}

// start lets an executor begin its next step.
func (r *run) start(e *executor) {
	s := &e.steps[e.first]
	for _, request := range s.requests {
		r.join(request)
	}
	cost := s.cost + r.machine.StepOverhead
	e.until = r.now + cost
	r.report.Busy += cost
	r.report.Steps += s.batches
	r.report.Rows += s.rows
	r.report.PaddedRows += s.padded
}
