package sim

import "github.com/cellmq/cellmq/cellrt"

// The arguments of the nodes that a simulated request pushes: which request of
// the trace it is, and which node of a tree.
const (
	argRequest = 0
	argNode    = 1
)

// newGraph returns the graph of one request.
func newGraph(request int, s Shape, cells []*cellrt.Cell) cellrt.Graph {
	switch s := s.(type) {
	case Chain:
		return &chainGraph{request: int32(request), stages: s, cells: cells}
	case *Tree:
		return &treeGraph{request: int32(request), tree: s, cells: cells}
	default:
		panic("sim: unknown shape")
	}
}

// chainGraph unfolds a [Chain].
type chainGraph struct {
	request int32
	stages  Chain // those not completed; the first is running
	step    int   // of the first stage
	cells   []*cellrt.Cell
}

func (g *chainGraph) Start(f *cellrt.Frontier) { g.push(f) }

func (g *chainGraph) Advance(_ cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	if g.stages[0].Emits {
		f.Emit(cellrt.Token{})
	}
	if g.step++; g.step == g.stages[0].Steps {
		g.stages, g.step = g.stages[1:], 0
	}
	if len(g.stages) == 0 {
		f.Finish(cellrt.Stopped)
		return
	}
	g.push(f)
}

func (g *chainGraph) push(f *cellrt.Frontier) {
	f.Push(cellrt.Node{Cell: g.cells[g.stages[0].Cell], Args: [cellrt.MaxArgs]int32{argRequest: g.request}})
}

// treeGraph unfolds a [Tree]: all its leaves at once, and each inner node when
// its second child is there.
type treeGraph struct {
	request int32
	tree    *Tree
	cells   []*cellrt.Cell
	halves  []bool // by inner node: one child is there
}

func (g *treeGraph) Start(f *cellrt.Frontier) {
	g.halves = make([]bool, g.tree.Nodes()-g.tree.leaves)
	for node := range g.tree.leaves {
		g.push(f, node)
	}
}

func (g *treeGraph) Advance(n cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	parent := int(g.tree.parents[n.Args[argNode]])
	if parent < 0 {
		f.Finish(cellrt.Stopped)
		return
	}
	if half := &g.halves[parent-g.tree.leaves]; !*half {
		*half = true
		return
	}
	g.push(f, parent)
}

func (g *treeGraph) push(f *cellrt.Frontier, node int) {
	f.Push(cellrt.Node{
		Cell: g.cells[g.tree.cell(node)],
		Args: [cellrt.MaxArgs]int32{argRequest: g.request, argNode: int32(node)},
	})
}
