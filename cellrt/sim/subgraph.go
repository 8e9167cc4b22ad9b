package sim

// subgraph is nodes of one cell in a request's graph: a stage of a chain, the
// leaves of a tree or its inner nodes.
type subgraph struct {
	request  int32
	cell     int
	emits    bool
	nodes    int     // there are
	ready    []int32 // nodes whose inputs exist or were given to the executor
	given    int     // nodes given to executors
	done     int     // nodes completed
	executor int     // that it stays on while given > done
	// loose says that no node waits for another one, so that each could be a
	// sub-graph of its own and executors can share them.
	loose bool

	stages  Chain  // of a chain: those not completed; the first is this
	tree    *Tree  // of a tree
	pending []int8 // of a tree's inner nodes: children among them that were not given

	prev, next *subgraph // in its cell's list
}

// firstSubgraph returns what of a request can run when it arrives.
func firstSubgraph(request int32, s Shape) *subgraph {
	t, ok := s.(*Tree)
	if !ok {
		return stageSubgraph(request, s.(Chain))
	}
	g := &subgraph{request: request, cell: Leaf, nodes: t.leaves, loose: true, tree: t, ready: make([]int32, t.leaves)}
	for i := range g.ready {
		g.ready[i] = int32(i)
	}
	return g
}

func stageSubgraph(request int32, stages Chain) *subgraph {
	first := stages[0]
	return &subgraph{request: request, cell: first.Cell, emits: first.Emits, nodes: first.Steps, ready: []int32{0}, stages: stages}
}

// after returns what can run when all of g has completed, nil at the end of the
// request.
func (g *subgraph) after() *subgraph {
	if g.tree == nil {
		if len(g.stages) == 1 {
			return nil
		}
		return stageSubgraph(g.request, g.stages[1:])
	}
	if g.cell == Inner || g.tree.leaves == 1 {
		return nil
	}
	t := g.tree
	inner := &subgraph{request: g.request, cell: Inner, nodes: t.Nodes() - t.leaves, tree: t, pending: make([]int8, t.Nodes()-t.leaves)}
	for node := t.leaves; node < t.Nodes(); node++ {
		if parent := t.parents[node]; parent >= 0 {
			inner.pending[int(parent)-t.leaves]++
		}
	}
	for i, children := range inner.pending {
		if children == 0 {
			inner.ready = append(inner.ready, int32(t.leaves+i))
		}
	}
	return inner
}

// free reports whether an executor can be given a node now.
func (g *subgraph) free(executor int) bool {
	return len(g.ready) > 0 && (g.loose || g.given == g.done || g.executor == executor)
}

// give takes up to n ready nodes for an executor and appends them to nodes.
func (g *subgraph) give(executor, n int, nodes []flockNode) []flockNode {
	n = min(n, len(g.ready))
	for _, node := range g.ready[:n] {
		nodes = append(nodes, flockNode{subgraph: g, node: node})
	}
	g.ready = g.ready[:copy(g.ready, g.ready[n:])]
	g.executor = executor
	g.given += n
	return nodes
}

// follow makes ready what waits for a node that was given, in later batches of
// the same executor.
func (g *subgraph) follow(node int32) {
	switch {
	case g.loose:
	case g.tree == nil:
		if g.given < g.nodes {
			g.ready = append(g.ready, 0)
		}
	default:
		parent := g.tree.parents[node]
		if parent < 0 {
			return
		}
		pending := &g.pending[int(parent)-g.tree.leaves]
		if *pending--; *pending == 0 {
			g.ready = append(g.ready, parent)
		}
	}
}

// subgraphs is a list of sub-graphs in the order of release.
type subgraphs struct{ head, tail *subgraph }

func (l *subgraphs) push(g *subgraph) {
	g.prev, g.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = g
	} else {
		l.head = g
	}
	l.tail = g
}

func (l *subgraphs) remove(g *subgraph) {
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		l.head = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		l.tail = g.prev
	}
	g.prev, g.next = nil, nil
}
