package sim

import (
	"fmt"
	"time"
)

// Merged is the batching of frameworks that merge graphs (TensorFlow Fold,
// DyNet): an idle executor takes up to Requests requests in the order of
// arrival, merges their graphs so that the nodes of one cell at one depth run
// in one batch, and runs the merged graph to the end. Nothing is padded, but
// nobody joins and everybody's result is there when the batch ends.
type Merged struct {
	// Requests is how many requests are merged; 0 means the smallest MaxRows of
	// the machine's cells.
	Requests int
	// Build is what an executor spends on building and merging the graphs, for
	// each of their nodes, before the first of them runs.
	Build time.Duration
}

func (p Merged) begin(m Machine, trace []Request, c *clock) (state, error) {
	if p.Requests < 0 {
		return nil, fmt.Errorf("merged Requests %d: want 0 or more", p.Requests)
	}
	if p.Build < 0 {
		return nil, fmt.Errorf("merged Build %s: want 0 or more", p.Build)
	}
	limit := p.Requests
	if limit == 0 {
		limit = m.Cells[0].MaxRows
		for _, cell := range m.Cells {
			limit = min(limit, cell.MaxRows)
		}
	}
	return &merged{clock: c, limit: limit, build: p.Build, machine: m, trace: trace, flights: make([][]int32, m.Executors)}, nil
}

// merged is the state of a [Merged] run.
type merged struct {
	*clock
	limit   int
	build   time.Duration // for each node
	machine Machine
	trace   []Request
	waiting queue
	flights [][]int32 // one batch for each executor
	widths  []int     // scratch: nodes by level and cell
}

func (s *merged) arrive(request int) error {
	s.waiting.push(request)
	return nil
}

func (s *merged) next(executor int, steps []step) []step {
	if s.waiting.empty() {
		return steps
	}
	batch := s.waiting.take(s.limit, s.flights[executor][:0])
	s.flights[executor] = batch

	cells := len(s.machine.Cells)
	s.widths = s.widths[:0]
	for _, request := range batch {
		s.trace[request].Shape.levels(func(level, cell int) {
			for len(s.widths) < (level+1)*cells {
				s.widths = append(s.widths, 0)
			}
			s.widths[level*cells+cell]++
		})
	}
	whole := step{requests: batch}
	for i, nodes := range s.widths {
		whole.rows += nodes
		for nodes > 0 {
			piece := min(nodes, s.machine.Cells[i%cells].MaxRows)
			nodes -= piece
			whole.cost += s.machine.Cost(i%cells, piece)
			whole.batches++
		}
	}
	whole.cost += time.Duration(whole.rows) * s.build
	return append(steps, whole)
}

func (s *merged) complete(executor int) error {
	for _, request := range s.flights[executor] {
		t := &s.report.Requests[request]
		if chain, ok := s.trace[request].Shape.(Chain); ok && emits(chain) {
			s.emit(t)
		}
		s.end(t)
	}
	return nil
}
