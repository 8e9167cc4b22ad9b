package classifier

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// Graph is one request's graph. It implements [cellrt.Graph] and belongs to
// the runtime once submitted.
type Graph struct {
	model  *Model
	tokens []int32
	ramps  bool

	layers []progress
	left   int         // heads that have not run
	logits [][]float32 // by layer

	restored bool // the graph goes on from a checkpoint
}

// progress is how far a layer has come.
type progress struct {
	done       int  // positions
	pushed     bool // a node is on its way
	classified bool // the head has run
}

var _ cellrt.Resumable = (*Graph)(nil)

// Graph unfolds a text of 1 to MaxInputLength tokens of the vocabulary. Ramps
// says whether the ramps run too. The graph keeps the tokens, which must not
// change.
func (m *Model) Graph(tokens []int32, ramps bool) *Graph {
	layers := m.config.NumLayers
	g := &Graph{model: m, tokens: tokens, ramps: ramps, layers: make([]progress, layers), logits: make([][]float32, layers)}
	for l := range layers {
		if g.headed(l) {
			g.left++
			g.logits[l] = make([]float32, len(m.config.Labels))
		}
	}
	return g
}

// headed says whether a head of the layer runs.
func (g *Graph) headed(layer int) bool {
	return g.model.head(layer) != nil && (g.ramps || layer == len(g.layers)-1)
}

// Logits returns the heads' results by layer, one value for each label; a layer
// whose head did not run has nil. It is nil unless the graph ended by itself.
func (g *Graph) Logits() [][]float32 {
	if g.left > 0 {
		return nil
	}
	return g.logits
}

// Start pushes the first layer at the first position, or what a restored
// graph's checkpoint waited for.
func (g *Graph) Start(f *cellrt.Frontier) {
	if g.restored {
		g.resume(f)
		return
	}
	g.push(0, f)
}

// Advance pushes what node n made ready.
func (g *Graph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	if n.Cell.Index() >= len(g.layers) {
		g.classify(int(n.Args[argHead]), out.Values, f)
		return
	}
	l := int(n.Args[argLayer])
	g.layers[l].done++
	g.layers[l].pushed = false
	g.push(l, f)
	if l > 0 {
		g.push(l-1, f) // it may have waited for room in its ring
	}
	if l < len(g.layers)-1 {
		g.push(l+1, f)
	}
	if g.layers[l].done == len(g.tokens) && g.headed(l) {
		g.pushHead(l, f)
	}
}

// pushHead pushes the head of a layer that has run at all positions.
func (g *Graph) pushHead(l int, f *cellrt.Frontier) {
	node := cellrt.Node{Cell: g.model.head(l)}
	node.Args[argCount] = int32(len(g.tokens))
	node.Args[argHead] = int32(l)
	f.Push(node)
}

// push pushes the next node of a layer if there is one, its input exists and
// its output has room.
func (g *Graph) push(l int, f *cellrt.Frontier) {
	p := &g.layers[l]
	position := p.done
	switch {
	case p.pushed || position == len(g.tokens):
		return
	case l > 0 && g.layers[l-1].done <= position:
		return
	case l < len(g.layers)-1 && position-g.layers[l+1].done >= RingSize:
		return
	}
	node := cellrt.Node{Cell: g.model.program.Cells[l]}
	node.Args[argToken] = g.tokens[position]
	node.Args[argEntry] = int32(position % RingSize)
	node.Args[argLayer] = int32(l)
	if position == 0 {
		node.Args[argPrevious] = -1
	}
	p.pushed = true
	f.Push(node)
}

// classify takes a head's result.
func (g *Graph) classify(layer int, logits []float32, f *cellrt.Frontier) {
	if !finite(logits) {
		f.Fail(cellrt.ErrNumerical)
		return
	}
	copy(g.logits[layer], logits)
	g.layers[layer].classified = true
	if g.left--; g.left == 0 {
		f.Finish(cellrt.Stopped)
	}
}

// finite reports whether all values are numbers.
func finite(values []float32) bool {
	for _, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}
