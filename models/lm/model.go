package lm

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/tensors"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Arguments of a layers node.
const (
	argToken   cellrt.Arg = iota
	argFrom               // entry of the state it reads, -1 at the start of a text
	argTo                 // entry of the state it writes
	layersArgs = 3
)

// layersAhead is how many positions of a text may be given out at once: the next
// one is known while the input is read, and no other cell waits for its turn.
const layersAhead = 4

// Arguments of a project node.
const (
	argEntry    cellrt.Arg = iota // entry of the state it reads
	projectArgs            = 1
)

// Model is a loaded model of the family: its program of cells. It is read-only
// and safe for concurrent use.
type Model struct {
	config     Config
	program    *cellrt.Program
	parameters int
	states     []state // by layer
}

type weights struct {
	embedding *cellrt.Matrix
	layers    []tensors.Recurrent
	out       tensors.Linear
}

// state names the fields of a layer's state. A GRU has no c.
type state struct{ h, c cellrt.FieldID }

// New builds the cells of a model from its configuration, with defaults
// filled in, and its tensors. The file may be dropped afterwards.
func New(name string, c Config, f *safetensors.File) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w, parameters, err := loadWeights(c, f)
	if err != nil {
		return nil, err
	}
	layout := &cellrt.Layout{}
	states := make([]state, c.NumLayers)
	entries := decode.Entries(c.MaxBeamWidth)
	for i := range states {
		states[i].h = layout.Add(fmt.Sprintf("layer.%d.h", i), entries, c.HiddenSize)
		if c.Cell == LSTM {
			states[i].c = layout.Add(fmt.Sprintf("layer.%d.c", i), entries, c.HiddenSize)
		}
	}
	if size := layout.Size(); size > MaxStateValues {
		return nil, fmt.Errorf("max_beam_width: a sequence's state has %d values, at most %d wanted", size, MaxStateValues)
	}
	layers, err := buildLayers(layout, w, states)
	if err != nil {
		return nil, err
	}
	project, err := buildProject(layout, w, states)
	if err != nil {
		return nil, err
	}
	program, err := cellrt.NewProgram(name, layout, layers, project)
	if err != nil {
		return nil, fmt.Errorf("build program: %w", err)
	}
	return &Model{config: c, program: program, parameters: parameters, states: states}, nil
}

// loadWeights takes every tensor of a model with configuration c out of f.
func loadWeights(c Config, f *safetensors.File) (*weights, int, error) {
	t := tensors.NewTaker(f)
	w := &weights{embedding: t.Matrix("embed.weight", c.VocabSize, c.EmbeddingSize)}
	in := c.EmbeddingSize
	for i := range c.NumLayers {
		w.layers = append(w.layers, t.Recurrent(c.kind(), "rnn", fmt.Sprintf("l%d", i), in, c.HiddenSize))
		in = c.HiddenSize
	}
	w.out = t.Linear("out", c.VocabSize, c.HiddenSize)
	parameters, err := t.Finish()
	return w, parameters, err
}

// buildLayers builds the cell of one position.
func buildLayers(layout *cellrt.Layout, w *weights, states []state) (*cellrt.Cell, error) {
	cb := cellrt.NewCell("layers", layout, layersArgs)
	x := cb.Embed(w.embedding, argToken)
	for i, l := range w.layers {
		h := cb.Load(states[i].h, argFrom)
		if l.RecurrentBias != nil {
			x = cb.GRU(l.Input, l.Hidden, l.InputBias, l.RecurrentBias, x, h)
		} else {
			var c cellrt.Value
			x, c = cb.LSTM(l.Input, l.Hidden, l.InputBias, x, h, cb.Load(states[i].c, argFrom))
			cb.Store(states[i].c, argTo, 0, c)
		}
		cb.Store(states[i].h, argTo, 0, x)
	}
	cell, err := cb.Build()
	if err != nil {
		return nil, err
	}
	cell.LookAhead = layersAhead
	return cell, nil
}

// buildProject builds the cell that makes a position's logits.
func buildProject(layout *cellrt.Layout, w *weights, states []state) (*cellrt.Cell, error) {
	cb := cellrt.NewCell("project", layout, projectArgs)
	logits := cb.Linear(w.out.Weight, w.out.Bias, cellrt.None, cb.Load(states[len(states)-1].h, argEntry))
	cb.Greedy(logits)
	cb.Expose(logits)
	return cb.Build()
}

// Config returns the model's configuration.
func (m *Model) Config() Config { return m.config }

// Program returns the model's cells: layers and project.
func (m *Model) Program() *cellrt.Program { return m.program }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.parameters }

// layers returns the node that reads a token.
func (m *Model) layers(token, from, to int32) cellrt.Node {
	n := cellrt.Node{Cell: m.program.Cells[0]}
	n.Args[argToken], n.Args[argFrom], n.Args[argTo] = token, from, to
	return n
}

// project returns the node that makes the logits of an entry of the state.
func (m *Model) project(entry int32) cellrt.Node {
	n := cellrt.Node{Cell: m.program.Cells[1]}
	n.Args[argEntry] = entry
	return n
}
