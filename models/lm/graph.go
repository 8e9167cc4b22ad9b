package lm

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
)

// Graph continues one text. It implements [cellrt.Graph] and belongs to the
// runtime once submitted.
type Graph struct {
	model *Model
	input []int32
	read  int // tokens of the input that were pushed

	latest   cellrt.Node    // that was pushed; not with a search
	recalled []cellrt.Token // emitted before the checkpoint that the graph goes on from

	writer *decode.Writer
	search *decode.Search // nil without
	nBest  int
	best   []decode.Hypothesis
}

var _ cellrt.Resumable = (*Graph)(nil)

// Graph continues an input of one or more tokens of the vocabulary, which the
// graph keeps and which must not change. The options' end token is the
// model's, their beam no wider than MaxBeamWidth.
func (m *Model) Graph(input []int32, o decode.Options) *Graph {
	o.EndToken = m.config.EndToken()
	g := &Graph{model: m, input: input, nBest: o.NBest}
	if o.BeamWidth > 1 {
		g.search = decode.NewSearch(o, m.config.MaxBeamWidth, o.MaxTokens)
		g.search.Begin(0, o.MaxTokens)
	} else {
		g.writer = decode.NewWriter(o, m.config.VocabSize)
	}
	g.read = 1
	g.latest = m.layers(input[0], -1, 0)
	return g
}

// Start pushes the first position of the input, or what a restored graph's
// checkpoint waited for.
func (g *Graph) Start(f *cellrt.Frontier) {
	for _, t := range g.recalled {
		f.Emit(t)
	}
	g.recalled = nil
	g.push(g.latest, f)
}

// push pushes the one node that there is without a search.
func (g *Graph) push(n cellrt.Node, f *cellrt.Frontier) {
	g.latest = n
	f.Push(n)
}

// Advance pushes what node n made ready.
func (g *Graph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	switch {
	case n.Cell == g.model.program.Cells[0] && g.read < len(g.input):
		g.push(g.model.layers(g.input[g.read], 0, 0), f)
		g.read++
	case n.Cell == g.model.program.Cells[0]:
		g.push(g.model.project(n.Args[argTo]), f)
	case g.search != nil:
		g.advanceSearch(n.Args[argEntry], out, f)
	default:
		g.advanceWriter(out, f)
	}
}

// advanceWriter takes the logits that follow the last token.
func (g *Graph) advanceWriter(out cellrt.Output, f *cellrt.Frontier) {
	switch token, next := g.writer.Take(out, f); next {
	case decode.Continue:
		g.push(g.model.layers(token, 0, 0), f)
	case decode.End:
		g.writer.Finish(cellrt.Stopped, f)
	case decode.Done:
	}
}

// advanceSearch takes the logits of the row that wrote an entry.
func (g *Graph) advanceSearch(entry int32, out cellrt.Output, f *cellrt.Frontier) {
	complete, err := g.search.Take(entry, out)
	if err != nil {
		f.Fail(err)
		return
	}
	if !complete {
		return
	}
	if g.search.Step() {
		for i := range g.search.Rows() {
			r := g.search.Row(i)
			f.Push(g.model.layers(r.Token, r.From, r.To))
		}
		f.Propose(g.search.Best())
		return
	}
	g.best = g.search.Results(max(1, g.nBest))
	for _, t := range g.best[0].Tokens {
		f.Emit(t)
	}
	f.Finish(g.best[0].Reason)
}

// LogProb returns the sum of the log-probabilities of all tokens so far, an end
// token included; with a search, of the best hypothesis once there is one.
func (g *Graph) LogProb() float64 {
	switch {
	case g.writer != nil:
		return g.writer.LogProb()
	case len(g.best) > 0:
		return g.best[0].LogProb
	default:
		return 0
	}
}

// Cut returns how many bytes at the end of the output's text belong to a stop
// text.
func (g *Graph) Cut() int {
	if g.writer == nil {
		return 0
	}
	return g.writer.Cut()
}

// Alternatives returns the best hypotheses of a search that has ended, as many
// as were asked for.
func (g *Graph) Alternatives() []decode.Hypothesis { return g.best[:min(len(g.best), g.nBest)] }
