package cellrt

import "errors"

// Model is a program with an arena for its sequences, in a [Scheduler] or a
// [Runtime]. Its methods are safe for concurrent use.
type Model struct {
	program    *Program
	arena      *arena
	queues     []*readyQueue // one for each cell, by Cell.Index
	sequences  int           // submitted and not ended
	ending     int           // of these, those whose end is decided
	loaded     bool
	executable Executable // nil without a backend
	states     States     // nil unless the executable has them
	runners    []Runner   // one for each executor
}

// NewModel returns a model with its own arena of slots for [Scheduler.Add].
// [Runtime.Load] makes the models of a runtime.
func NewModel(p *Program, slots int) (*Model, error) {
	if slots < 1 || slots > maxSlots {
		return nil, errors.New("slots: want 1 to 1,000,000")
	}
	m := &Model{program: p, arena: newArena(slots)}
	for _, c := range p.Cells {
		m.queues = append(m.queues, newReadyQueue(m, c))
	}
	return m, nil
}

// maxSlots bounds the slots of a model; far beyond what a machine can serve,
// but far below what an index can hold.
const maxSlots = 1_000_000

// Program returns the program the model runs.
func (m *Model) Program() *Program { return m.program }

// Slots returns how many sequences of the model can be live at once.
func (m *Model) Slots() int { return m.arena.slots() }

// grow gives each of so many executors a runner.
func (m *Model) grow(executors int) {
	for len(m.runners) < executors {
		m.runners = append(m.runners, m.executable.NewRunner())
	}
}

// rest takes the threads of an executor's runner away. A model that was loaded
// while the executor was on its way out has no runner for it.
func (m *Model) rest(executor int) {
	if executor < len(m.runners) {
		m.runners[executor].SetThreads(1)
	}
}

// queue returns the ready queue of a cell of the model's program.
func (m *Model) queue(c *Cell) *readyQueue {
	if c == nil || c.index >= len(m.queues) || m.queues[c.index].cell != c {
		panic("cellrt: a graph pushed a node of a cell that its model's program does not have")
	}
	return m.queues[c.index]
}
