package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// mostGates is the most gates a recurrent operation has.
const mostGates = 5

// gateOrder is the order of a group's panels: which block of outputs of the
// matrix each one is of.
type gateOrder struct {
	count int
	gates [mostGates]int
}

// inOrder returns an order of the given gates.
func inOrder(gates ...int) gateOrder {
	o := gateOrder{count: len(gates)}
	copy(o.gates[:], gates)
	return o
}

// packKey names a range of columns of a matrix, packed in some order. A zero
// order means plain panels.
type packKey struct {
	matrix  *cellrt.Matrix
	from, k int
	order   gateOrder
	hidden  int
}

// pack returns the block of a matrix, packed at most once. A step that holds it
// calls hold. It fails when the matrix has more inputs than the format can sum.
func (c *compiler) pack(key packKey) (*block, error) {
	if m := c.packed[key]; m != nil {
		return m, nil
	}
	if c.format == kernel.Int8 && key.k > kernel.MaxInt8Inputs {
		return nil, fmt.Errorf("matrix %.64q has %d inputs: at most %d with weight type %v", key.matrix.Name, key.k, kernel.MaxInt8Inputs, c.format)
	}
	panels := c.table.Plain(key.matrix.Rows)
	if key.order.count > 0 {
		panels = c.table.Interleaved(key.order.gates[:key.order.count], key.hidden)
	}
	m := c.packPanels(key, panels)
	c.packed[key] = m
	return m, nil
}

func (c *compiler) packPanels(key packKey, panels []kernel.Panel) *block {
	if c.shares == nil {
		return matrixBlock(c.table.Outline(c.format, key.k, panels))
	}
	w := kernel.Weights{Data: key.matrix.Data, Stride: key.matrix.Cols, From: key.from, K: key.k}
	return c.shares.get(matrixKey(c.format, w, panels), func() *block {
		return matrixBlock(c.table.Pack(c.format, w, panels))
	})
}

// hold notes that a step holds a block.
func (c *compiler) hold(b *block) *block {
	if !c.held[b] {
		c.held[b] = true
		c.blocks = append(c.blocks, b)
		c.bytes += b.bytes
	}
	return b
}

// keep returns a vector or table with the values of v for a step to hold: v
// itself, which nobody changes any more, unless there are such values already.
func (c *compiler) keep(v []float32) []float32 {
	if len(v) == 0 {
		return nil
	}
	if c.shares == nil {
		return c.hold(valuesBlock(v)).values
	}
	return c.hold(c.shares.get(valuesKey(v), func() *block { return valuesBlock(v) })).values
}

// keepEmbedding returns a copy of an embedding table for a step to hold.
// Several cells may share it.
func (c *compiler) keepEmbedding(m *cellrt.Matrix) []float32 {
	b := c.embeddings[m]
	switch {
	case b != nil:
	case c.shares == nil:
		b = &block{bytes: int64(m.Rows) * int64(m.Cols) * 4}
	default:
		b = c.shares.get(valuesKey(m.Data), func() *block {
			v := make([]float32, len(m.Data))
			copy(v, m.Data)
			return valuesBlock(v)
		})
	}
	c.embeddings[m] = b
	return c.hold(b).values
}

// input is a value that products read.
type input struct {
	value  cellrt.Value
	width  int
	number int  // among the inputs of the cell
	first  bool // nothing has made it ready before
}

// input returns what a product needs to read v.
func (c *cellCompiler) input(v cellrt.Value) input {
	number, known := c.inputs[v]
	if !known {
		number = len(c.inputs)
		c.inputs[v] = number
	}
	return input{value: v, width: c.cell.Width(v), number: number, first: !known}
}

// prepare makes an input ready for products, once in a batch.
func (b *batch) prepare(in *input) {
	if !in.first {
		return
	}
	b.inputs[in.number].Reset(b.table, b.format, b.value(in.value), len(b.rows), in.width)
	if b.format == kernel.Int8 {
		b.eachRow(in, in.width*copyWork)
	}
}

// pieces prepares rows.
func (in *input) pieces(b *batch, _, from, to int) { b.inputs[in.number].Prepare(from, to) }

// source returns a prepared input.
func (b *batch) source(in *input) *kernel.Input { return &b.inputs[in.number] }
