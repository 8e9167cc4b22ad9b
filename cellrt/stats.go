package cellrt

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
}

// ModelStats is the state of one loaded model.
type ModelStats struct {
	Program     string
	Slots, Free int
	StateBytes  int64
	WeightBytes int64
}

// CellStats is the state of one cell of a loaded model.
type CellStats struct {
	Program, Cell string
	Steps, Rows   uint64
	Ready         int
	// MaxRows is the largest batch of the cell.
	MaxRows int
	// RowCost is what a row of such a batch takes, in nanoseconds, measured or
	// estimated. Tenants' shares of the compute are in this unit.
	RowCost int64
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
	queue.steps++
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
		ms := ModelStats{Program: m.program.Name, Slots: m.arena.slots(), Free: m.arena.available()}
		if m.executable != nil {
			ms.WeightBytes, ms.StateBytes = m.Bytes()
		}
		stats.Models = append(stats.Models, ms)
		for _, q := range m.queues {
			stats.Cells = append(stats.Cells, CellStats{
				Program: m.program.Name, Cell: q.cell.Name, Steps: q.steps, Rows: q.rows, Ready: q.length,
				MaxRows: q.maxRows, RowCost: q.cost,
			})
		}
	}
	return stats
}
