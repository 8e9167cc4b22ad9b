package classifier

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/internal/tensors"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Model is a loaded model of the family: its program of cells. It is read-only
// and safe for concurrent use.
type Model struct {
	config     Config
	program    *cellrt.Program
	parameters int
	states     []state // by layer
}

// New builds the cells of a model from its configuration, with defaults
// filled in, and its tensors. The file may be dropped afterwards.
func New(name string, c Config, f *safetensors.File) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w, parameters, err := takeWeights(c, f)
	if err != nil {
		return nil, err
	}
	b := newBuilder(c, w)
	if err := b.build(); err != nil {
		return nil, err
	}
	program, err := cellrt.NewProgram(name, b.layout, b.cells...)
	if err != nil {
		return nil, fmt.Errorf("build program: %w", err)
	}
	return &Model{config: c, program: program, parameters: parameters, states: b.states}, nil
}

// Config returns the model's configuration.
func (m *Model) Config() Config { return m.config }

// Program returns the model's cells: one for each layer, one for each ramp,
// and the classifier, in this order.
func (m *Model) Program() *cellrt.Program { return m.program }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.parameters }

// head returns the cell that classifies the sum of a layer, nil when the layer
// has none.
func (m *Model) head(layer int) *cellrt.Cell {
	cells := m.program.Cells
	switch {
	case layer == m.config.NumLayers-1:
		return cells[len(cells)-1]
	case layer < m.config.Ramps:
		return cells[m.config.NumLayers+layer]
	default:
		return nil
	}
}

type weights struct {
	embedding  *cellrt.Matrix
	layers     []tensors.Recurrent
	ramps      []tensors.Linear
	classifier tensors.Linear
}

func takeWeights(c Config, f *safetensors.File) (weights, int, error) {
	t := tensors.NewTaker(f)
	w := weights{embedding: t.Matrix("embed.weight", c.VocabSize, c.EmbeddingSize)}
	in := c.EmbeddingSize
	for i := range c.NumLayers {
		w.layers = append(w.layers, t.Recurrent(c.kind(), fmt.Sprintf("layers.%d", i), "l0", in, c.HiddenSize))
		in = c.HiddenSize
	}
	for i := range c.Ramps {
		w.ramps = append(w.ramps, t.Linear(fmt.Sprintf("ramps.%d", i), len(c.Labels), c.HiddenSize))
	}
	w.classifier = t.Linear("classifier", len(c.Labels), c.HiddenSize)
	parameters, err := t.Finish()
	return w, parameters, err
}

// Arguments of a layer's node.
const (
	argToken    cellrt.Arg = iota // the token; no operation above the first layer reads it
	argEntry                      // of the rings: the position modulo their size
	argPrevious                   // -1 at the first position, else 0
	argLayer                      // the layer, for the graph; no operation reads it
	layerArgs   = 4
)

// Arguments of a head's node.
const (
	argCount cellrt.Arg = 0 // number of positions
	argHead  cellrt.Arg = 1 // the layer, for the graph; no operation reads it
	headArgs            = 2
)

// builder builds the layout and the cells of a model.
type builder struct {
	config Config
	w      weights
	layout *cellrt.Layout
	states []state // by layer
	cells  []*cellrt.Cell
	errs   brief.List
}

// state names a layer's fields. A GRU has no c, the last layer no ring.
type state struct{ h, c, sum, ring cellrt.FieldID }

func newBuilder(c Config, w weights) *builder {
	b := &builder{config: c, w: w, layout: &cellrt.Layout{}}
	for i := range c.NumLayers {
		name := fmt.Sprintf("layer.%d", i)
		s := state{h: b.layout.Add(name+".h", 1, c.HiddenSize)}
		if c.Cell == LSTM {
			s.c = b.layout.Add(name+".c", 1, c.HiddenSize)
		}
		s.sum = b.layout.Add(name+".sum", 1, c.HiddenSize)
		if i < c.NumLayers-1 {
			s.ring = b.layout.Add(name+".ring", RingSize, c.HiddenSize)
		}
		b.states = append(b.states, s)
	}
	return b
}

// build builds the cells in the order of the program.
func (b *builder) build() error {
	for i := range b.config.NumLayers {
		b.buildLayer(i)
	}
	for i, ramp := range b.w.ramps {
		b.buildHead(fmt.Sprintf("ramp.%d", i), i, ramp)
	}
	b.buildHead("classifier", b.config.NumLayers-1, b.w.classifier)
	return b.errs.Err()
}

// buildLayer builds the cell of one position of a layer.
func (b *builder) buildLayer(i int) {
	cb := cellrt.NewCell(fmt.Sprintf("layer.%d", i), b.layout, layerArgs)
	s, w := b.states[i], b.w.layers[i]
	var x cellrt.Value
	if i == 0 {
		x = cb.Embed(b.w.embedding, argToken)
	} else {
		x = cb.Load(b.states[i-1].ring, argEntry)
	}
	h := cb.Load(s.h, argPrevious)
	if b.config.Cell == GRU {
		h = cb.GRU(w.Input, w.Hidden, w.InputBias, w.RecurrentBias, x, h)
	} else {
		var c cellrt.Value
		h, c = cb.LSTM(w.Input, w.Hidden, w.InputBias, x, h, cb.Load(s.c, argPrevious))
		cb.Store(s.c, cellrt.Zero, 0, c)
	}
	cb.Store(s.h, cellrt.Zero, 0, h)
	out := h
	if i > 0 && b.config.Residual {
		out = cb.Add(h, x)
	}
	cb.Store(s.sum, cellrt.Zero, 0, cb.Add(cb.Load(s.sum, argPrevious), out))
	if i < b.config.NumLayers-1 {
		cb.Store(s.ring, argEntry, 0, out)
	}
	b.finish(cb)
}

// buildHead builds the cell that classifies the mean of a layer's outputs.
func (b *builder) buildHead(name string, layer int, w tensors.Linear) {
	cb := cellrt.NewCell(name, b.layout, headArgs)
	mean := cb.Mean(cb.Load(b.states[layer].sum, cellrt.Zero), argCount)
	cb.Expose(cb.Linear(w.Weight, w.Bias, cellrt.None, mean))
	b.finish(cb)
}

func (b *builder) finish(cb *cellrt.CellBuilder) {
	cell, err := cb.Build()
	b.errs.Add(err)
	b.cells = append(b.cells, cell)
}
