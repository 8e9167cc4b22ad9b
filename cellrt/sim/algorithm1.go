package sim

import "fmt"

// Algorithm1 is the scheduler of BatchMaker (EuroSys'18, Algorithm 1), as far
// as public descriptions of it tell, to compare [Cellular] with. Requests fall
// into sub-graphs of one cell each: the stages of a chain, each leaf of a tree
// and all its inner nodes. An idle executor takes the cell with the highest
// priority among those with a full batch ready; if there is none, among those
// that no executor runs; if there is none, among all with anything ready. It is
// given up to LookAhead batches of that cell at once: a node is ready when those
// before it in its sub-graph were given to the same executor, on which the
// sub-graph stays while nodes of it wait there. A sub-graph is ready when those
// before it have completed.
type Algorithm1 struct {
	// Priority is the priority of each cell. Without it the cell with the
	// oldest request is taken instead.
	Priority []int
	// Shared leaves out the second choice: executors share a cell even when
	// another one with something ready is idle.
	Shared bool
	// LookAhead is how many batches are given at once; 0 means 1.
	LookAhead int
	// MinRows is the smallest batch worth giving ahead of its turn; 0 means 1.
	MinRows int
}

func (p Algorithm1) begin(m Machine, trace []Request, c *clock) (state, error) {
	if p.Priority != nil && len(p.Priority) != len(m.Cells) {
		return nil, fmt.Errorf("algorithm 1 Priority: %d priorities for %d cells", len(p.Priority), len(m.Cells))
	}
	p.LookAhead, p.MinRows = max(1, p.LookAhead), max(1, p.MinRows)
	return &algorithm1{
		clock: c, policy: p, machine: m, trace: trace,
		released: make([]subgraphs, len(m.Cells)), running: make([]int, len(m.Cells)), eligible: make([]int, len(m.Cells)),
		flights: make([][]flock, m.Executors),
	}, nil
}

// flock is one batch at an executor.
type flock struct {
	cell     int
	nodes    []flockNode
	requests []int32 // of the nodes
}

// flockNode is a row of a batch.
type flockNode struct {
	subgraph *subgraph
	node     int32 // of a tree
}

// algorithm1 is the state of an [Algorithm1] run.
type algorithm1 struct {
	*clock
	policy   Algorithm1
	machine  Machine
	trace    []Request
	released []subgraphs // by cell
	running  []int       // batches of each cell at executors
	eligible []int       // scratch: nodes of each cell for an executor
	flights  [][]flock   // of each executor, in order
}

func (s *algorithm1) arrive(request int) error {
	s.release(firstSubgraph(int32(request), s.trace[request].Shape))
	return nil
}

func (s *algorithm1) release(g *subgraph) {
	s.released[g.cell].push(g)
}

func (s *algorithm1) next(executor int, steps []step) []step {
	cell := s.choose(executor)
	if cell < 0 {
		return steps
	}
	for i := range s.policy.LookAhead {
		least := 1
		if i > 0 {
			least = s.policy.MinRows
		}
		f, ok := s.form(executor, cell, least)
		if !ok {
			break
		}
		s.flights[executor] = append(s.flights[executor], f)
		s.running[cell]++
		rows := len(f.nodes)
		steps = append(steps, step{
			cost: s.machine.Cost(cell, rows), batches: 1, rows: rows, requests: f.requests,
		})
	}
	return steps
}

// choose returns the cell that an executor runs next, -1 for none.
func (s *algorithm1) choose(executor int) int {
	for cell := range s.released {
		s.eligible[cell] = s.count(executor, cell)
	}
	if cell := s.best(executor, func(cell int) bool { return s.eligible[cell] >= s.machine.Cells[cell].MaxRows }); cell >= 0 {
		return cell
	}
	if !s.policy.Shared {
		if cell := s.best(executor, func(cell int) bool { return s.running[cell] == 0 }); cell >= 0 {
			return cell
		}
	}
	return s.best(executor, func(int) bool { return true })
}

// best returns the first cell in the policy's order that has something for the
// executor and that a tier admits, -1 for none.
func (s *algorithm1) best(executor int, admits func(cell int) bool) int {
	best := -1
	for cell := range s.released {
		if s.eligible[cell] > 0 && admits(cell) && (best < 0 || s.before(executor, cell, best)) {
			best = cell
		}
	}
	return best
}

// before reports whether cell a comes before cell b.
func (s *algorithm1) before(executor, a, b int) bool {
	if s.policy.Priority != nil {
		return s.policy.Priority[a] > s.policy.Priority[b]
	}
	return s.oldest(executor, a) < s.oldest(executor, b)
}

// oldest returns the oldest request with a node of a cell for the executor.
func (s *algorithm1) oldest(executor, cell int) int32 {
	oldest := int32(len(s.trace))
	for g := s.released[cell].head; g != nil; g = g.next {
		if g.request < oldest && g.free(executor) {
			oldest = g.request
		}
	}
	return oldest
}

// count returns how many nodes of a cell the executor can be given, up to a
// full batch.
func (s *algorithm1) count(executor, cell int) int {
	n, most := 0, s.machine.Cells[cell].MaxRows
	for g := s.released[cell].head; g != nil && n < most; g = g.next {
		if g.free(executor) {
			n += len(g.ready)
		}
	}
	return min(n, most)
}

// form gives the executor a batch of a cell if it has at least least rows.
func (s *algorithm1) form(executor, cell, least int) (flock, bool) {
	rows := s.count(executor, cell)
	if rows < least {
		return flock{}, false
	}
	f, most := flock{cell: cell, nodes: make([]flockNode, 0, rows), requests: make([]int32, 0, rows)}, s.machine.Cells[cell].MaxRows
	for g := s.released[cell].head; g != nil && len(f.nodes) < most; g = g.next {
		if g.free(executor) {
			f.nodes = g.give(executor, most-len(f.nodes), f.nodes)
		}
	}
	for _, n := range f.nodes {
		n.subgraph.follow(n.node)
		f.requests = append(f.requests, n.subgraph.request)
	}
	return f, true
}

func (s *algorithm1) complete(executor int) error {
	f := s.flights[executor][0]
	s.flights[executor] = append(s.flights[executor][:0], s.flights[executor][1:]...)
	s.running[f.cell]--
	for _, n := range f.nodes {
		g := n.subgraph
		t := &s.report.Requests[g.request]
		if g.emits {
			s.emit(t)
		}
		if g.done++; g.done < g.nodes {
			continue
		}
		s.released[f.cell].remove(g)
		if next := g.after(); next != nil {
			s.release(next)
		} else {
			s.end(t)
		}
	}
	return nil
}
