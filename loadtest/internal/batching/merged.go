package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

// merged serves whole batches of requests in the order of arrival: an executor
// that is free takes some, and runs the nodes of one cell at one depth of their
// graphs together, depth by depth. Nothing is padded, and finding the nodes of
// the next depth is all that merging costs. Everybody's answer is there when the
// batch ends.
type merged struct {
	network *network
	loaded  cellrt.Executable
	shape   cellrt.Shape
	rows    int // of the largest batch, and requests that are merged

	pool
	waiting []*answer // the pool's mu guards them
}

// unfolding is what a request computes, node by node.
type unfolding interface {
	// first appends the nodes that wait for no other.
	first(nodes []cellrt.Node) []cellrt.Node
	// after takes the output of a node over and appends what waited for it last.
	after(n cellrt.Node, out *cellrt.Output, nodes []cellrt.Node) []cellrt.Node
	// sum returns the digest of the output.
	sum() uint64
}

func newUnfolding(n *network, r *request) unfolding {
	if n.leaf != nil {
		w := newTreeWalk(n, r)
		return &w
	}
	w := newWalk(n, r)
	return &w
}

// newMerged loads a network for batches of at most rows nodes.
func newMerged(n *network, b cellrt.Backend, shape cellrt.Shape, rows int) (*merged, error) {
	loaded, err := b.Load(n.program, rows*shape.Executors)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", n.name, err)
	}
	s := &merged{network: n, loaded: loaded, shape: shape, rows: rows}
	s.wake.L = &s.mu
	return s, nil
}

// run serves until ctx ends. What waits then gets no answer.
func (s *merged) run(ctx context.Context) error {
	var executors []func()
	for i := range s.shape.Executors {
		e := &mergedExecutor{server: s, slot: int32(i * s.rows), runner: s.loaded.NewRunner()}
		executors = append(executors, e.run)
	}
	return s.serve(ctx, executors)
}

// submit implements [server].
func (s *merged) submit(_ context.Context, arrived []answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range arrived {
		s.waiting = append(s.waiting, &arrived[i])
	}
	s.wake.Broadcast()
	return nil
}

// mergedNode is a node of one of the requests of a batch.
type mergedNode struct {
	request int
	node    cellrt.Node
}

// mergedExecutor runs one batch after the other, on slots of its own.
type mergedExecutor struct {
	server *merged
	slot   int32 // the first
	runner cellrt.Runner

	batch  []*answer
	graphs []unfolding
	// level has the nodes of one depth, by cell; next those of the one after.
	level, next [][]mergedNode
	rows        []cellrt.Row
	out         []cellrt.Output
	nodes       []cellrt.Node // scratch
	counts      counts        // of the batch
}

func (e *mergedExecutor) run() {
	cells := len(e.server.network.program.Cells)
	e.level, e.next = make([][]mergedNode, cells), make([][]mergedNode, cells)
	e.rows, e.out = make([]cellrt.Row, e.server.rows), make([]cellrt.Output, e.server.rows)
	e.runner.SetThreads(e.server.shape.Threads)
	defer e.runner.SetThreads(1)
	for e.wait() {
		e.serve()
	}
}

// wait waits for a batch and takes it. It reports false when the server stops.
func (e *mergedExecutor) wait() bool {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && !s.stopped {
		s.wake.Wait()
	}
	n := min(s.rows, len(s.waiting))
	e.batch = append(e.batch[:0], s.waiting[:n]...)
	clear(s.waiting[:n])
	s.waiting = s.waiting[n:]
	return !s.stopped
}

// serve runs the batch.
func (e *mergedExecutor) serve() {
	e.graphs, e.counts = e.graphs[:0], counts{}
	for i, a := range e.batch {
		e.graphs = append(e.graphs, newUnfolding(e.server.network, a.request))
		e.push(i, e.graphs[i].first(e.nodes[:0]))
	}
	for e.descend() {
		for cell := range e.level {
			for nodes := e.level[cell]; len(nodes) > 0; {
				n := min(len(nodes), e.server.rows)
				e.step(e.server.network.program.Cells[cell], nodes[:n])
				nodes = nodes[n:]
			}
		}
	}
	e.server.add(e.counts)
	now := time.Now()
	for i, a := range e.batch {
		a.end(now, e.graphs[i].sum(), nil)
	}
}

// push adds nodes of a request to the next depth.
func (e *mergedExecutor) push(request int, nodes []cellrt.Node) {
	for _, n := range nodes {
		cell := n.Cell.Index()
		e.next[cell] = append(e.next[cell], mergedNode{request: request, node: n})
	}
	e.nodes = nodes
}

// descend goes to the next depth and reports whether it has nodes.
func (e *mergedExecutor) descend() (any bool) {
	e.level, e.next = e.next, e.level
	for cell := range e.next {
		e.next[cell] = e.next[cell][:0]
		any = any || len(e.level[cell]) > 0
	}
	return any
}

// step runs nodes of a cell together.
func (e *mergedExecutor) step(cell *cellrt.Cell, nodes []mergedNode) {
	rows, out := e.rows[:len(nodes)], e.out[:len(nodes)]
	for i, n := range nodes {
		rows[i] = cellrt.Row{Slot: e.slot + int32(n.request), Args: n.node.Args}
	}
	e.runner.Run(cell, rows, out)
	for i, n := range nodes {
		e.push(n.request, e.graphs[n.request].after(n.node, &out[i], e.nodes[:0]))
	}
	e.counts.steps++
	e.counts.rows += uint64(len(nodes))
}
