package sim

import (
	"errors"
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
)

// Cellular is cellrt.Scheduler: what a cellrt.Runtime runs, driven here by the
// virtual clock.
type Cellular struct {
	// Slots is how many requests can be live at once; others wait for a slot in
	// the order of arrival. 0 means no limit but the runtime's, 1,000,000.
	Slots int
}

const mostSlots = 1_000_000

func (p Cellular) begin(m Machine, trace []Request, c *clock) (state, error) {
	slots := p.Slots
	if slots == 0 {
		slots = min(max(1, len(trace)), mostSlots)
	}
	program, err := newProgram(m)
	if err != nil {
		return nil, fmt.Errorf("cellular: %w", err)
	}
	model, err := cellrt.NewModel(program, slots)
	if err != nil {
		return nil, fmt.Errorf("cellular: %w", err)
	}
	maxRows := 0
	for _, cell := range m.Cells {
		maxRows = max(maxRows, cell.MaxRows)
	}
	s := &cellular{
		clock: c, machine: m, trace: trace, program: program, model: model,
		scheduler: cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: maxRows, Executors: m.Executors}),
		rounds:    make([]round, m.Executors),
	}
	s.scheduler.Add(model)
	return s, nil
}

// newProgram returns a program with the machine's cells. What they compute does
// not matter: nothing runs them.
func newProgram(m Machine) (*cellrt.Program, error) {
	layout := &cellrt.Layout{}
	field := layout.Add("state", 1, 1)
	cells := make([]*cellrt.Cell, len(m.Cells))
	for i, cell := range m.Cells {
		b := cellrt.NewCell(cell.Name, layout, cellrt.MaxArgs)
		b.Store(field, cellrt.Zero, 0, b.Load(field, cellrt.Zero))
		var err error
		if cells[i], err = b.Build(); err != nil {
			return nil, err
		}
		cells[i].MaxRows, cells[i].LookAhead = cell.MaxRows, cell.LookAhead
	}
	return cellrt.NewProgram("simulated", layout, cells...)
}

// cellular is the state of a [Cellular] run.
type cellular struct {
	*clock
	machine   Machine
	trace     []Request
	program   *cellrt.Program
	model     *cellrt.Model
	scheduler *cellrt.Scheduler
	waiting   queue   // for a slot
	rounds    []round // of the executors
}

// round is the batches that an executor was given at once.
type round struct {
	flights []*flight // as many as there ever were in a round; reused
	given   int
	done    int
}

// flight is a batch at an executor.
type flight struct {
	batch    cellrt.Batch
	requests []int32 // of the batch's rows
}

// spare returns the flight that the next batch goes into.
func (r *round) spare() *flight {
	if r.given == len(r.flights) {
		r.flights = append(r.flights, &flight{})
	}
	return r.flights[r.given]
}

func (s *cellular) arrive(request int) error {
	s.waiting.push(request)
	return s.admit()
}

// admit submits the requests that wait, as far as there are slots.
func (s *cellular) admit() error {
	for !s.waiting.empty() {
		request := s.waiting.first()
		r := &s.trace[request]
		err := s.scheduler.Submit(cellrt.NewSequence(s.model,
			newGraph(request, r.Shape, s.program.Cells),
			cellrt.SequenceOptions{Owner: &s.report.Requests[request], Tenant: r.Tenant}))
		if errors.Is(err, cellrt.ErrNoSlot) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("submit request %d: %w", request, err)
		}
		s.waiting.pop()
		if err := s.collect(); err != nil {
			return err
		}
	}
	return nil
}

func (s *cellular) next(executor int, steps []step) []step {
	r := &s.rounds[executor]
	r.given, r.done = 0, 0
	f := r.spare()
	for ok := s.scheduler.Next(executor, &f.batch); ok; {
		steps = append(steps, s.step(f))
		r.given++
		last := f
		f = r.spare()
		ok = s.scheduler.Follow(&last.batch, &f.batch)
	}
	return steps
}

// step describes a batch to the run.
func (s *cellular) step(f *flight) step {
	f.requests = f.requests[:0]
	for i := range f.batch.Rows {
		f.requests = append(f.requests, f.batch.Rows[i].Args[argRequest])
	}
	rows := len(f.batch.Rows)
	return step{
		cost: s.machine.Cost(f.batch.Cell.Index(), rows), batches: 1, rows: rows, requests: f.requests,
	}
}

func (s *cellular) complete(executor int) error {
	r := &s.rounds[executor]
	b := &r.flights[r.done].batch
	r.done++
	s.scheduler.Complete(b, len(b.Rows))
	if err := s.collect(); err != nil {
		return err
	}
	return s.admit()
}

// collect takes over what the scheduler reported.
func (s *cellular) collect() error {
	for _, r := range s.scheduler.Results() {
		t := r.Sequence.Owner().(*Timing)
		if r.Err != nil {
			return fmt.Errorf("request that arrived at %s failed: %w", t.Arrival, r.Err)
		}
		if len(r.Tokens) > 0 {
			s.emit(t)
		}
		if r.Done {
			s.end(t)
		}
	}
	s.scheduler.Clear()
	return nil
}
