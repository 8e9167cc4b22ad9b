package seq2seq

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// Graph is one request's graph. It implements [cellrt.Graph] and belongs to
// the runtime once submitted.
type Graph struct {
	model    *Model
	segments [][]int32
	bound    int // of all tokens

	source []int32 // the current segment
	next   int     // index of the segment after it
	chains []chain // the encoder's, in the order of its cells
	left   int     // chains that have not reached their end

	tokens  int // of all segments
	written int // of the current segment
	cut     bool
	broken  bool // a boundary lies before the next token
	sum     float64
}

// chain is how far one encoder cell has come in the current segment.
type chain struct {
	done   int
	pushed bool // a node is on its way
}

var _ cellrt.Graph = (*Graph)(nil)

// Graph unfolds a source of one or more segments, none of them empty, of
// tokens of the source vocabulary, together at most MaxSourceLength, into at
// most maxTokens output tokens. The graph keeps the segments, which must not
// change.
func (m *Model) Graph(segments [][]int32, maxTokens int) *Graph {
	return &Graph{model: m, segments: segments, bound: maxTokens, chains: make([]chain, m.encoders)}
}

// LogProb returns the sum of the log-probabilities of all tokens so far, end
// tokens included.
func (g *Graph) LogProb() float64 { return g.sum }

// Start pushes the first nodes of the first segment.
func (g *Graph) Start(f *cellrt.Frontier) { g.encode(f) }

// Advance pushes what node n made ready.
func (g *Graph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	switch i := n.Cell.Index(); {
	case i < g.model.encoders:
		g.advanceChain(i, f)
	case n.Cell == g.model.bridge():
		g.decode(g.model.config.BOSToken, f)
	default:
		g.advanceDecoder(out, f)
	}
}

// encode starts the next segment.
func (g *Graph) encode(f *cellrt.Frontier) {
	g.source = g.segments[g.next]
	g.next++
	g.written = 0
	clear(g.chains)
	g.left = len(g.chains)
	for i := range min(g.model.config.directions(), len(g.chains)) {
		g.push(i, f)
	}
}

// advanceChain counts a node of chain i and pushes what waited for it: the
// chain's next node, the next layer's at a position that is now complete, or
// the bridge.
func (g *Graph) advanceChain(i int, f *cellrt.Frontier) {
	c := &g.chains[i]
	c.done++
	c.pushed = false
	if c.done < len(g.source) {
		g.push(i, f)
	} else {
		g.left--
	}
	if above := i - i%2 + 2; above < len(g.chains) {
		g.push(above, f)
		g.push(above+1, f)
	}
	if g.left == 0 {
		f.Push(cellrt.Node{Cell: g.model.bridge()})
	}
}

// push pushes the next node of chain i if there is one and its inputs exist.
func (g *Graph) push(i int, f *cellrt.Frontier) {
	c := &g.chains[i]
	n := len(g.source)
	if c.pushed || c.done == n {
		return
	}
	position := c.done
	if i%2 == 1 { // a backward chain starts at the end
		position = n - 1 - c.done
	}
	if below := i - i%2 - 2; below >= 0 {
		if g.chains[below].done <= position || g.chains[below+1].done < n-position {
			return
		}
	}
	node := cellrt.Node{Cell: g.model.program.Cells[i]}
	node.Args[argToken] = g.source[position]
	node.Args[argPosition] = int32(position)
	if c.done == 0 {
		node.Args[argPrevious] = -1
	}
	c.pushed = true
	f.Push(node)
}

// decode pushes the decoder's node that follows the given token.
func (g *Graph) decode(token int32, f *cellrt.Frontier) {
	node := cellrt.Node{Cell: g.model.decoder()}
	node.Args[argInput] = token
	node.Args[argLength] = int32(len(g.source))
	f.Push(node)
}

// advanceDecoder takes the token that a decoder node chose.
func (g *Graph) advanceDecoder(out cellrt.Output, f *cellrt.Frontier) {
	if math.IsNaN(float64(out.LogProb)) {
		f.Fail(cellrt.ErrNumerical)
		return
	}
	g.sum += float64(out.LogProb)
	if out.Token == g.model.config.EOSToken {
		g.endSegment(f)
		return
	}
	f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb, Break: g.broken})
	g.broken = false
	g.tokens++
	g.written++
	switch {
	case g.tokens == g.bound:
		f.Finish(cellrt.Length)
	case g.written == g.model.config.MaxTargetLength:
		g.cut = true
		g.endSegment(f)
	default:
		g.decode(out.Token, f)
	}
}

// endSegment goes on with the next segment or ends the graph.
func (g *Graph) endSegment(f *cellrt.Frontier) {
	switch {
	case g.next < len(g.segments):
		g.broken = true
		g.encode(f)
	case g.cut:
		f.Finish(cellrt.Length)
	default:
		f.Finish(cellrt.Stopped)
	}
}
