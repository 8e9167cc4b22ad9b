package seq2seq

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
)

// Graph is one request's graph. It implements [cellrt.Graph] and belongs to
// the runtime once submitted.
type Graph struct {
	model    *Model
	segments [][]int32

	source []int32 // the current segment
	next   int     // index of the segment after it
	chains []chain // the encoder's, in the order of its cells
	left   int     // chains that have not reached their end

	writer  *decode.Writer // nil with a search
	bridged bool           // the decoder has its first state; not with a search
	token   int32          // the decoder's latest input; not with a search
	written int            // tokens of the current segment
	cut     bool           // a segment reached its bound

	restored bool           // the graph goes on from a checkpoint
	recalled []cellrt.Token // emitted before it

	beam *beam // nil without a search
}

// chain is how far one encoder cell has come in the current segment.
type chain struct {
	done   int
	pushed bool // a node is on its way
}

var _ cellrt.Resumable = (*Graph)(nil)

// Graph unfolds a source of one or more segments, none of them empty, of
// tokens of the source vocabulary, together at most MaxSourceLength. The graph
// keeps the segments, which must not change. The options' end token is the
// model's, their beam no wider than MaxBeamWidth.
func (m *Model) Graph(segments [][]int32, o decode.Options) *Graph {
	o.EndToken = m.config.EOSToken
	g := &Graph{model: m, segments: segments, chains: make([]chain, m.encoders)}
	if o.BeamWidth > 1 {
		g.beam = newBeam(m.config, o)
	} else {
		g.writer = decode.NewWriter(o, m.config.TargetVocab)
	}
	return g
}

// LogProb returns the sum of the log-probabilities of all tokens so far, end
// tokens included; with a search, of the best hypotheses of the segments so
// far.
func (g *Graph) LogProb() float64 {
	if g.beam != nil {
		return g.beam.sum
	}
	return g.writer.LogProb()
}

// Cut returns how many bytes at the end of the output's text belong to a stop
// text.
func (g *Graph) Cut() int {
	if g.beam != nil {
		return 0
	}
	return g.writer.Cut()
}

// Alternatives returns the best hypotheses of a search that has ended, as many
// as were asked for.
func (g *Graph) Alternatives() []decode.Hypothesis {
	if g.beam == nil {
		return nil
	}
	return g.beam.alternatives(len(g.segments))
}

// Start pushes the first nodes of the first segment, or what a restored
// graph's checkpoint waited for.
func (g *Graph) Start(f *cellrt.Frontier) {
	if g.restored {
		g.resume(f)
		return
	}
	g.encode(f)
}

// Advance pushes what node n made ready.
func (g *Graph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	switch i := n.Cell.Index(); {
	case i < g.model.encoders:
		g.advanceChain(i, f)
	case n.Cell == g.model.bridge() && g.beam == nil:
		g.bridged = true
		g.write(g.model.config.BOSToken, f)
	case n.Cell == g.model.bridge():
		g.decode(g.beam.begin(g.model.config), f)
	case g.beam == nil:
		g.advanceWriter(out, f)
	default:
		g.advanceBeam(n.Args[argTo], out, f)
	}
}

// encode starts the next segment.
func (g *Graph) encode(f *cellrt.Frontier) {
	g.begin()
	for i := range min(g.model.config.directions(), len(g.chains)) {
		g.push(i, f)
	}
}

// begin makes the next segment the current one.
func (g *Graph) begin() {
	g.source = g.segments[g.next]
	g.next++
	g.bridged, g.written = false, 0
	clear(g.chains)
	g.left = len(g.chains)
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

// decode pushes the decoder's node of a row.
func (g *Graph) decode(r decode.Row, f *cellrt.Frontier) {
	node := cellrt.Node{Cell: g.model.decoder()}
	node.Args[argInput] = r.Token
	node.Args[argLength] = int32(len(g.source))
	node.Args[argFrom], node.Args[argTo] = r.From, r.To
	f.Push(node)
}

// advanceWriter takes a decoder node's output without a search. The state
// stays in entry 0.
func (g *Graph) advanceWriter(out cellrt.Output, f *cellrt.Frontier) {
	token, next := g.writer.Take(out, f)
	switch {
	case next == decode.Done:
	case g.ends(next):
		g.endSegment(f)
	default:
		g.write(token, f)
	}
}

// ends takes note of a choice of the writer and reports whether the current
// segment ends with it.
func (g *Graph) ends(next decode.Next) bool {
	if next == decode.End {
		return true
	}
	g.written++
	if g.written == g.model.config.MaxTargetLength {
		g.cut = true
		return true
	}
	return false
}

// write pushes the decoder's node after a token without a search.
func (g *Graph) write(token int32, f *cellrt.Frontier) {
	g.token = token
	g.decode(decode.Row{Token: token}, f)
}

// endSegment goes on with the next segment or ends the graph.
func (g *Graph) endSegment(f *cellrt.Frontier) {
	switch {
	case g.next < len(g.segments):
		g.writer.Break()
		g.encode(f)
	case g.cut:
		g.writer.Finish(cellrt.Length, f)
	default:
		g.writer.Finish(cellrt.Stopped, f)
	}
}
