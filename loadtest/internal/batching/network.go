package batching

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cellmq/cellmq/cellrt"
)

// Arguments of the nodes of cells that run one after the other.
const (
	argToken cellrt.Arg = iota // that is read
	argFrom                    // entry of the state that is read, -1 for zeros
	argTo                      // entry of the state that is written
	stepArgs
)

// Arguments of the nodes of trees.
const (
	_        cellrt.Arg = iota // a leaf's argToken
	argLeft                    // entry of the left child's state; a node's own goes there
	argRight                   // entry of the right child's state; -1 at a leaf
	argNode                    // the node of the tree
	treeArgs
)

// Entries of the state. Rows that are padding work on one of their own.
const (
	entryState = iota
	entryPadding
	entries
)

// beginToken is what a decoder reads first, and what padding reads.
const beginToken = 0

// network is a program with random weights. Its encoder reads a source; its
// decoder, nil in a network that only reads, goes on from the encoder's state
// and feeds its most probable token back. A network for trees has a leaf and an
// inner cell instead.
type network struct {
	name             string
	hidden, tokens   int
	program          *cellrt.Program
	encoder, decoder *cellrt.Cell
	leaf, inner      *cellrt.Cell
}

// newNetwork builds a network. Equal arguments give equal weights.
func newNetwork(name string, hidden int, seed uint64) (*network, error) {
	n := &network{name: name, hidden: hidden, tokens: 8 * hidden}
	b := builder{network: n, layout: &cellrt.Layout{}, random: rand.New(rand.NewPCG(seed, streamWeights))}
	build := b.chain
	if name == Tree {
		build = b.tree
	}
	if err := build(); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	return n, nil
}

// chain builds the cells of a network that reads, and writes if it is one from
// sequence to sequence.
func (b *builder) chain() error {
	n := b.network
	b.h, b.c = b.layout.Add("h", entries, n.hidden), b.layout.Add("c", entries, n.hidden)
	encoder := cellrt.NewCell("encoder", b.layout, int(stepArgs))
	h := b.step(encoder)
	if n.name == LSTM {
		encoder.Expose(h)
	}
	var err error
	if n.encoder, err = encoder.Build(); err != nil {
		return err
	}
	cells := []*cellrt.Cell{n.encoder}
	if n.name == Seq2Seq {
		decoder := cellrt.NewCell("decoder", b.layout, int(stepArgs))
		decoder.Greedy(decoder.Linear(b.matrix("output", n.tokens, n.hidden), b.bias(n.tokens), cellrt.None, b.step(decoder)))
		if n.decoder, err = decoder.Build(); err != nil {
			return err
		}
		cells = append(cells, n.decoder)
	}
	n.program, err = cellrt.NewProgram(n.name, b.layout, cells...)
	return err
}

// tree builds the cells of a binary TreeLSTM. A leaf's state has an entry of
// its own, and an inner node's takes that of its left child.
func (b *builder) tree() error {
	n := b.network
	b.h, b.c = b.layout.Add("h", mostLeaves, n.hidden), b.layout.Add("c", mostLeaves, n.hidden)
	leaf := cellrt.NewCell("leaf", b.layout, int(treeArgs))
	x := leaf.Embed(b.matrix("embedding", n.tokens, n.hidden), argToken)
	h, c := leaf.TreeLeaf(b.matrix("leaf", 3*n.hidden, n.hidden), b.bias(3*n.hidden), x)
	leaf.Store(b.h, argLeft, 0, h)
	leaf.Store(b.c, argLeft, 0, c)
	leaf.Expose(h)
	inner := cellrt.NewCell("inner", b.layout, int(treeArgs))
	h, c = inner.TreeNode(b.matrix("inner", 5*n.hidden, 2*n.hidden), b.bias(5*n.hidden),
		inner.Load(b.h, argLeft), inner.Load(b.c, argLeft), inner.Load(b.h, argRight), inner.Load(b.c, argRight))
	inner.Store(b.h, argLeft, 0, h)
	inner.Store(b.c, argLeft, 0, c)
	inner.Expose(h)
	var err error
	if n.leaf, err = leaf.Build(); err != nil {
		return err
	}
	if n.inner, err = inner.Build(); err != nil {
		return err
	}
	n.program, err = cellrt.NewProgram(n.name, b.layout, n.leaf, n.inner)
	return err
}

// builder makes the cells of a network.
type builder struct {
	*network
	layout *cellrt.Layout
	h, c   cellrt.FieldID
	random *rand.Rand
}

// step adds an embedding and one LSTM step with weights of its own and returns
// the hidden state.
func (b *builder) step(cell *cellrt.CellBuilder) cellrt.Value {
	x := cell.Embed(b.matrix("embedding", b.tokens, b.hidden), argToken)
	h, c := cell.LSTM(b.matrix("input", 4*b.hidden, b.hidden), b.matrix("recurrent", 4*b.hidden, b.hidden), b.bias(4*b.hidden),
		x, cell.Load(b.h, argFrom), cell.Load(b.c, argFrom))
	cell.Store(b.h, argTo, 0, h)
	cell.Store(b.c, argTo, 0, c)
	return h
}

// matrix returns weights as PyTorch begins with them: uniform, up to the
// inverse root of the number of inputs.
func (b *builder) matrix(name string, rows, cols int) *cellrt.Matrix {
	return &cellrt.Matrix{Name: name, Rows: rows, Cols: cols, Data: b.uniform(rows*cols, cols)}
}

func (b *builder) bias(n int) []float32 { return b.uniform(n, b.hidden) }

func (b *builder) uniform(n, inputs int) []float32 {
	bound := float32(1 / math.Sqrt(float64(inputs)))
	v := make([]float32, n)
	for i := range v {
		v[i] = bound * (2*b.random.Float32() - 1)
	}
	return v
}
