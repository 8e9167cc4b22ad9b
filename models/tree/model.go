package tree

import (
	"errors"
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/tensors"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Model is a loaded model of the family: its program of cells. It is read-only
// and safe for concurrent use.
type Model struct {
	config     Config
	program    *cellrt.Program
	parameters int
}

// The cells, in the order of the program.
const (
	leafCell = iota
	nodeCell
	headCell
)

// Arguments of nodes. The runtime carries argNode for the graph; no operation
// reads it.
const (
	argToken  cellrt.Arg = 0 // of a leaf
	argEntry  cellrt.Arg = 1 // of a leaf: where its state goes
	argLeft   cellrt.Arg = 0 // of an inner node: its left child's entry, and where its own state goes
	argRight  cellrt.Arg = 1 // of an inner node: its right child's entry
	argNode   cellrt.Arg = 2 // of both: the tree node's index in postorder
	stateArgs            = 3
	argRoot   cellrt.Arg = 0 // of the head: the root's entry
	headArgs             = 1
)

// New builds the cells of a model from its configuration, with defaults
// filled in, and its tensors. The file may be dropped afterwards.
func New(name string, c Config, f *safetensors.File) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := tensors.NewTaker(f)
	w := weights{
		embedding:  t.Matrix("embed.weight", c.VocabSize, c.HiddenSize),
		leaf:       t.Linear("leaf", 3*c.HiddenSize, c.HiddenSize),
		node:       t.Linear("node", 5*c.HiddenSize, 2*c.HiddenSize),
		classifier: t.Linear("classifier", c.NumLabels, c.HiddenSize),
	}
	parameters, err := t.Finish()
	if err != nil {
		return nil, err
	}
	program, err := build(name, c, w)
	if err != nil {
		return nil, fmt.Errorf("build program: %w", err)
	}
	return &Model{config: c, program: program, parameters: parameters}, nil
}

type weights struct {
	embedding              *cellrt.Matrix
	leaf, node, classifier tensors.Linear
}

// build builds the cells in the order of the program.
func build(name string, c Config, w weights) (*cellrt.Program, error) {
	layout := &cellrt.Layout{}
	h := layout.Add("h", c.StateEntries, c.HiddenSize)
	s := layout.Add("c", c.StateEntries, c.HiddenSize)

	lb := cellrt.NewCell("leaf", layout, stateArgs)
	outH, outC := lb.TreeLeaf(w.leaf.Weight, w.leaf.Bias, lb.Embed(w.embedding, argToken))
	lb.Store(h, argEntry, 0, outH)
	lb.Store(s, argEntry, 0, outC)
	leaf, leafErr := lb.Build()

	nb := cellrt.NewCell("node", layout, stateArgs)
	outH, outC = nb.TreeNode(w.node.Weight, w.node.Bias,
		nb.Load(h, argLeft), nb.Load(s, argLeft), nb.Load(h, argRight), nb.Load(s, argRight))
	nb.Store(h, argLeft, 0, outH)
	nb.Store(s, argLeft, 0, outC)
	node, nodeErr := nb.Build()

	hb := cellrt.NewCell("head", layout, headArgs)
	hb.Expose(hb.Linear(w.classifier.Weight, w.classifier.Bias, cellrt.None, hb.Load(h, argRoot)))
	head, headErr := hb.Build()

	if err := errors.Join(leafErr, nodeErr, headErr); err != nil {
		return nil, err
	}
	return cellrt.NewProgram(name, layout, leaf, node, head)
}

// Config returns the model's configuration.
func (m *Model) Config() Config { return m.config }

// Program returns the model's cells: leaf, node and head.
func (m *Model) Program() *cellrt.Program { return m.program }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.parameters }
