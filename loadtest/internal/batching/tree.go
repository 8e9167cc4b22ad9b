package batching

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// treeWalk is the way of one request through a network for trees. It is what
// the request computes, whatever it shares its batches with.
type treeWalk struct {
	network *network
	request *request
	parents []int32 // of nodes; -1 at the root
	entries []int32 // of the state, where nodes leave theirs
	missing []int8  // children of each inner node that are not there
	digest  uint64  // of the output
}

func newTreeWalk(n *network, r *request) treeWalk {
	leaves := len(r.source)
	w := treeWalk{
		network: n, request: r, digest: fnvOffset, parents: make([]int32, r.nodes()),
		entries: make([]int32, r.nodes()), missing: make([]int8, len(r.children)),
	}
	w.parents[r.nodes()-1] = -1
	for i := range r.source {
		w.entries[i] = int32(i)
	}
	for i, c := range r.children {
		w.entries[leaves+i], w.missing[i] = w.entries[c[0]], 2
		w.parents[c[0]], w.parents[c[1]] = int32(leaves+i), int32(leaves+i)
	}
	return w
}

// leaf returns the node of a leaf.
func (w *treeWalk) leaf(i int) cellrt.Node {
	n := cellrt.Node{Cell: w.network.leaf}
	n.Args[argToken], n.Args[argLeft], n.Args[argRight], n.Args[argNode] = w.request.source[i], int32(i), -1, int32(i)
	return n
}

// take takes the output of a node over and returns its parent's node if that
// has both children now.
func (w *treeWalk) take(n cellrt.Node, out *cellrt.Output) (parent cellrt.Node, ok bool) {
	p := w.parents[n.Args[argNode]]
	if p < 0 {
		for _, v := range out.Values {
			w.digest = (w.digest ^ uint64(math.Float32bits(v))) * fnvPrime
		}
		return parent, false
	}
	inner := int(p) - len(w.request.source)
	if w.missing[inner]--; w.missing[inner] > 0 {
		return parent, false
	}
	c := w.request.children[inner]
	parent.Cell = w.network.inner
	parent.Args[argLeft], parent.Args[argRight], parent.Args[argNode] = w.entries[c[0]], w.entries[c[1]], p
	return parent, true
}

// root reports whether a node is the last one.
func (w *treeWalk) root(n cellrt.Node) bool { return w.parents[n.Args[argNode]] < 0 }

func (w *treeWalk) sum() uint64 { return w.digest }

// treeGraph is a tree that the runtime computes. It implements [graph].
type treeGraph struct{ treeWalk }

// Start implements [cellrt.Graph].
func (g *treeGraph) Start(f *cellrt.Frontier) {
	for i := range g.request.source {
		f.Push(g.leaf(i))
	}
}

// Advance implements [cellrt.Graph].
func (g *treeGraph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	if parent, ok := g.take(n, &out); ok {
		f.Push(parent)
	} else if g.root(n) {
		f.Finish(cellrt.Stopped)
	}
}

// first implements [unfolding].
func (w *treeWalk) first(nodes []cellrt.Node) []cellrt.Node {
	for i := range w.request.source {
		nodes = append(nodes, w.leaf(i))
	}
	return nodes
}

// after implements [unfolding].
func (w *treeWalk) after(n cellrt.Node, out *cellrt.Output, nodes []cellrt.Node) []cellrt.Node {
	if parent, ok := w.take(n, out); ok {
		nodes = append(nodes, parent)
	}
	return nodes
}
