package lm

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// ScoreGraph measures how probable a text is. It emits no tokens. It implements
// [cellrt.Graph] and belongs to the runtime once submitted.
type ScoreGraph struct {
	model *Model
	input []int32
	read  int // tokens of the input that were pushed
	sum   float64
}

var _ cellrt.Graph = (*ScoreGraph)(nil)

// ScoreGraph scores an input of one or more tokens of the vocabulary, which the
// graph keeps and which must not change.
func (m *Model) ScoreGraph(input []int32) *ScoreGraph { return &ScoreGraph{model: m, input: input} }

// LogProb returns the sum of the log-probabilities of the input's second and
// later tokens, each given all before it.
func (g *ScoreGraph) LogProb() float64 { return g.sum }

// Start pushes the first position of the input.
func (g *ScoreGraph) Start(f *cellrt.Frontier) {
	g.read = 1
	f.Push(g.model.layers(g.input[0], -1, 0))
}

// Advance pushes what node n made ready. Positions and projections alternate.
func (g *ScoreGraph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	if n.Cell == g.model.program.Cells[0] && g.read < len(g.input) {
		f.Push(g.model.project(0))
		return
	}
	if n.Cell == g.model.program.Cells[1] {
		if math.IsNaN(float64(out.LogProb)) {
			f.Fail(cellrt.ErrNumerical)
			return
		}
		g.sum += float64(out.LogProbOf(g.input[g.read]))
		g.read++
	}
	if g.read == len(g.input) {
		f.Finish(cellrt.Stopped)
		return
	}
	f.Push(g.model.layers(g.input[g.read-1], 0, 0))
}
