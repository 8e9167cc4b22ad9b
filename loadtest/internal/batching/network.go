package batching

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cellmq/cellmq/cellrt"
)

// Arguments of the nodes of all cells.
const (
	argToken cellrt.Arg = iota // that is read
	argFrom                    // entry of the state that is read, -1 for zeros
	argTo                      // entry of the state that is written
	stepArgs
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
// and feeds its most probable token back.
type network struct {
	name             string
	hidden, tokens   int
	program          *cellrt.Program
	encoder, decoder *cellrt.Cell
}

// newNetwork builds a network. Equal arguments give equal weights.
func newNetwork(name string, hidden int, seed uint64) (*network, error) {
	n := &network{name: name, hidden: hidden, tokens: 8 * hidden}
	b := builder{network: n, layout: &cellrt.Layout{}, random: rand.New(rand.NewPCG(seed, streamWeights))}
	b.h, b.c = b.layout.Add("h", entries, hidden), b.layout.Add("c", entries, hidden)

	encoder := cellrt.NewCell("encoder", b.layout, int(stepArgs))
	h := b.step(encoder)
	if name == LSTM {
		encoder.Expose(h)
	}
	var err error
	if n.encoder, err = encoder.Build(); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	cells := []*cellrt.Cell{n.encoder}
	if name == Seq2Seq {
		decoder := cellrt.NewCell("decoder", b.layout, int(stepArgs))
		decoder.Greedy(decoder.Linear(b.matrix("output", n.tokens, hidden), b.bias(n.tokens), cellrt.None, b.step(decoder)))
		if n.decoder, err = decoder.Build(); err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
		cells = append(cells, n.decoder)
	}
	if n.program, err = cellrt.NewProgram(name, b.layout, cells...); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	return n, nil
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
