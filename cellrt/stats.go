package cellrt

import "time"

// Stats is the state of a scheduler or a runtime at one moment. Counters only
// grow.
type Stats struct {
	// Shape is that of a runtime's next steps; zero for a scheduler.
	Shape Shape
	// Steps is the number of batches run.
	Steps uint64
	// Rows is the number of nodes run; Rows/Steps is the mean batch.
	Rows uint64
	// PaddedRows is the number of rows computed that were no node's.
	PaddedRows uint64
	// MaxRows is the largest number of rows in one step.
	MaxRows int
	// Tokens is the number of tokens emitted.
	Tokens uint64
	// Checkpoints is the number of checkpoints taken.
	Checkpoints uint64
	// Running is the number of sequences that have a slot.
	Running int
	// Tenants is the number of tenants that have such sequences.
	Tenants int
	// Ready is the number of nodes waiting for a step.
	Ready int
	// Submitted is the number of sequences accepted. It is the sum of Running,
	// Finished, Failed and Cancelled.
	Submitted uint64
	// Finished is the number of sequences that ended by themselves.
	Finished uint64
	// Failed is the number of sequences that their graph failed.
	Failed uint64
	// Cancelled is the number of sequences cancelled or suspended, or stopped
	// with the runtime.
	Cancelled uint64
	// Models and Cells are those loaded now, in the order of loading.
	Models []ModelStats
	Cells  []CellStats
	// Executors are those that a runtime has had, by number: an executor that
	// the shape has no more keeps its place. None for a scheduler.
	Executors []ExecutorStats
}

// ModelStats is the state of one loaded model.
type ModelStats struct {
	Program string
	// Slots is the number of sequences that have room. Of these Free are nobody's
	// and Ending are of sequences whose end is decided while nodes of theirs are
	// still with an executor; the rest are of live sequences.
	Slots, Free, Ending int
	StateBytes          int64
	WeightBytes         int64
}

// CellStats is the state of one cell of a loaded model.
type CellStats struct {
	Program, Cell string
	Steps, Rows   uint64
	// Tiers is how many of the steps ran for which reason. Their sum is Steps.
	Tiers [Tiers]uint64
	// Ready is the number of nodes waiting for a step.
	Ready int
	// MaxRows is the largest batch of the cell.
	MaxRows int
	// RowCost is what a row of such a batch takes, in nanoseconds, measured or
	// estimated. Tenants' shares of the compute are in this unit.
	RowCost int64
}

// ExecutorStats is the state of one executor.
type ExecutorStats struct {
	// Busy is the time its steps took, of the monotonic clock; a step counts when
	// it is over. It only grows.
	Busy time.Duration
	// Threads is how many its latest step used; 0 before the first one, and when
	// the executor does not run.
	Threads int
}

// Work is what was computed for one sequence.
type Work struct {
	// Steps is how many batches had nodes of the sequence.
	Steps uint64
	// Nodes is how many of its nodes ran.
	Nodes uint64
	// Rows is the sum of those batches' rows, of all sequences: Rows/Steps is the
	// mean batch that the sequence was in.
	Rows uint64
	// Busy is the sum of the times that those batches took. Where they ran at the
	// same time it is more than passed. Zero without a [Runtime].
	Busy time.Duration
}

// Work returns what was computed for the sequence. It may be called once the
// sequence has ended, and by a [Sink] at any time.
func (s *Sequence) Work() Work { return s.work.Work }

// work counts a sequence's work.
type work struct {
	Work
	last uint64 // number of the step that was counted last
}

// add counts a node that ran in a batch, the step-th.
func (w *work) add(step uint64, b *Batch) {
	w.Nodes++
	if w.last == step {
		return
	}
	w.last = step
	w.Steps++
	w.Rows += uint64(len(b.Rows))
	w.Busy += b.took
}

// counters is what a scheduler counts as it goes.
type counters struct {
	steps, rows, padded         uint64
	maxRows                     int
	tokens                      uint64
	submitted                   uint64
	finished, failed, cancelled uint64
}

// step counts a completed batch.
func (c *counters) step(b *Batch, computed int) {
	rows := len(b.Rows)
	c.steps++
	c.rows += uint64(rows)
	c.padded += uint64(max(0, computed-rows))
	c.maxRows = max(c.maxRows, rows)
	queue := b.Model.queue(b.Cell)
	queue.steps[b.tier]++
	queue.rows += uint64(rows)
}

// end counts an ended sequence.
func (c *counters) end(q *Sequence) {
	switch {
	case q.cancelled:
		c.cancelled++
	case q.err != nil:
		c.failed++
	default:
		c.finished++
	}
}

// Stats returns the scheduler's state. It allocates.
func (s *Scheduler) Stats() Stats {
	c := &s.counters
	stats := Stats{
		Steps: c.steps, Rows: c.rows, PaddedRows: c.padded, MaxRows: c.maxRows, Tokens: c.tokens, Checkpoints: s.barrier.taken, Ready: s.ready, Tenants: len(s.fair.tenants),
		Submitted: c.submitted, Finished: c.finished, Failed: c.failed, Cancelled: c.cancelled,
	}
	for _, m := range s.models {
		stats.Running += m.sequences
		ms := ModelStats{Program: m.program.Name, Slots: m.arena.slots(), Free: m.arena.available(), Ending: m.ending}
		if m.executable != nil {
			ms.WeightBytes, ms.StateBytes = m.Bytes()
		}
		stats.Models = append(stats.Models, ms)
		for _, q := range m.queues {
			cell := CellStats{
				Program: m.program.Name, Cell: q.cell.Name, Rows: q.rows, Tiers: q.steps, Ready: q.length,
				MaxRows: q.maxRows, RowCost: q.cost,
			}
			for _, n := range q.steps {
				cell.Steps += n
			}
			stats.Cells = append(stats.Cells, cell)
		}
	}
	return stats
}
