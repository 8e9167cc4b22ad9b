package tree

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// Graph is one request's graph. It implements [cellrt.Graph] and belongs to
// the runtime once submitted.
type Graph struct {
	model *Model
	ids   []int32 // in postorder, negative for an inner node
	shape shape

	started int        // leaves
	free    []int32    // entries of the state
	done    [][2]int32 // entries of each inner node's children, -1 for those not done
	logits  [][]float32
	ended   bool
}

var _ cellrt.Graph = (*Graph)(nil)

// Graph unfolds a tree of 1 to MaxNodes nodes in postorder: tokens of the
// vocabulary for leaves, a negative number after the two subtrees of an inner
// node. The graph keeps the slice, which must not change.
func (m *Model) Graph(ids []int32) *Graph {
	s := newShape(ids)
	g := &Graph{
		model: m, ids: ids, shape: s,
		free:   make([]int32, min(m.config.StateEntries, len(s.leaves))),
		done:   make([][2]int32, len(ids)),
		logits: [][]float32{make([]float32, m.config.NumLabels)},
	}
	for i := range g.free {
		g.free[i] = int32(len(g.free) - 1 - i) // a stack: the lowest on top
	}
	for i := range g.done {
		g.done[i] = [2]int32{-1, -1}
	}
	return g
}

// Logits returns the classifier's result for the root, its only layer, one
// value for each label. It is nil unless the graph ended by itself.
func (g *Graph) Logits() [][]float32 {
	if !g.ended {
		return nil
	}
	return g.logits
}

// Start pushes the first leaves.
func (g *Graph) Start(f *cellrt.Frontier) { g.startLeaves(f) }

// Advance pushes what node n made ready.
func (g *Graph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	switch n.Cell.Index() {
	case leafCell:
		g.finish(n.Args[argNode], n.Args[argEntry], f)
	case nodeCell:
		g.free = append(g.free, n.Args[argRight])
		g.finish(n.Args[argNode], n.Args[argLeft], f)
		g.startLeaves(f)
	default:
		g.end(out.Values, f)
	}
}

// startLeaves pushes leaves as long as there are entries for them.
func (g *Graph) startLeaves(f *cellrt.Frontier) {
	for len(g.free) > 0 && g.started < len(g.shape.leaves) {
		i := g.shape.leaves[g.started]
		g.started++
		node := cellrt.Node{Cell: g.model.program.Cells[leafCell]}
		node.Args[argToken] = g.ids[i]
		node.Args[argEntry] = g.free[len(g.free)-1]
		node.Args[argNode] = i
		g.free = g.free[:len(g.free)-1]
		f.Push(node)
	}
}

// finish notes that a tree node's state is in the given entry, and pushes its
// parent when the other child's is there too, or the head after the root.
func (g *Graph) finish(i, entry int32, f *cellrt.Frontier) {
	p := g.shape.parents[i]
	if p < 0 {
		node := cellrt.Node{Cell: g.model.program.Cells[headCell]}
		node.Args[argRoot] = entry
		f.Push(node)
		return
	}
	done := &g.done[p/2]
	done[p%2] = entry
	if done[0] < 0 || done[1] < 0 {
		return
	}
	node := cellrt.Node{Cell: g.model.program.Cells[nodeCell]}
	node.Args[argLeft], node.Args[argRight], node.Args[argNode] = done[0], done[1], p/2
	f.Push(node)
}

// end takes the head's result.
func (g *Graph) end(logits []float32, f *cellrt.Frontier) {
	for _, v := range logits {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			f.Fail(cellrt.ErrNumerical)
			return
		}
	}
	copy(g.logits[0], logits)
	g.ended = true
	f.Finish(cellrt.Stopped)
}
