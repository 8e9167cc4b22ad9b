package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// lstmGates are those of an LSTM: panels [i f g o].
type lstmGates struct {
	c          cellrt.Value
	outH, outC output
}

func (c *cellCompiler) lstm(i int, op cellrt.LSTM) (step, error) {
	hidden := c.cell.Width(op.H)
	order := inOrder(0, 1, 2, 3)
	g := &lstmGates{c: op.C, outH: c.output(i, op.OutH), outC: c.output(i, op.OutC)}
	return c.recurrent(hidden, blocks(op.Bias, order), []part{
		{matrix: op.Input, x: op.X, order: order},
		{matrix: op.Recurrent, x: op.H, order: order},
	}, g)
}

func (g *lstmGates) apply(b *batch, block kernel.Rows, from, to int) {
	c := b.value(g.c)
	for r := range b.rows {
		outC, outH := g.outC.at(b, r, from, to), g.outH.at(b, r, from, to)
		b.table.LSTM(block.Row(r, block.Stride), c.Row(r, to)[from:], outC, outH)
		g.outC.spread(b, r, from, to, outC)
		g.outH.spread(b, r, from, to, outH)
	}
}

// gruGates are those of a GRU: panels [nx r z nh].
type gruGates struct {
	h    cellrt.Value
	outH output
}

// gru compiles a GRU, whose gates are r, z, n. The input part of n stays apart
// from its recurrent part, so the block has four panels; the orders let each
// product have three neighbouring ones.
func (c *cellCompiler) gru(i int, op cellrt.GRU) (step, error) {
	hidden := c.cell.Width(op.H)
	in, rec := blocks(op.InputBias, inOrder(0, 1, 2)), blocks(op.RecurrentBias, inOrder(0, 1, 2))
	sum := func(x, y []float32) []float32 {
		out := make([]float32, len(x))
		for i := range out {
			out[i] = x[i] + y[i]
		}
		return out
	}
	bias := [][]float32{in[2], sum(in[0], rec[0]), sum(in[1], rec[1]), rec[2]}
	g := &gruGates{h: op.H, outH: c.output(i, op.OutH)}
	return c.recurrent(hidden, bias, []part{
		{matrix: op.Input, x: op.X, order: inOrder(2, 0, 1)},
		{matrix: op.Recurrent, x: op.H, order: inOrder(0, 1, 2), column: 1},
	}, g)
}

func (g *gruGates) apply(b *batch, block kernel.Rows, from, to int) {
	h := b.value(g.h)
	for r := range b.rows {
		out := g.outH.at(b, r, from, to)
		b.table.GRU(block.Row(r, block.Stride), h.Row(r, to)[from:], out)
		g.outH.spread(b, r, from, to, out)
	}
}

// leafGates are those of a leaf of a tree: panels [i o u].
type leafGates struct {
	outH, outC output
}

func (c *cellCompiler) treeLeaf(i int, op cellrt.TreeLeaf) (step, error) {
	hidden := c.cell.Width(op.OutH)
	order := inOrder(0, 1, 2)
	g := &leafGates{outH: c.output(i, op.OutH), outC: c.output(i, op.OutC)}
	return c.recurrent(hidden, blocks(op.Bias, order), []part{{matrix: op.Weight, x: op.X, order: order}}, g)
}

func (g *leafGates) apply(b *batch, block kernel.Rows, from, to int) {
	for r := range b.rows {
		outC, outH := g.outC.at(b, r, from, to), g.outH.at(b, r, from, to)
		b.table.TreeLeaf(block.Row(r, block.Stride), outH, outC)
		g.outC.spread(b, r, from, to, outC)
		g.outH.spread(b, r, from, to, outH)
	}
}

// nodeGates are those of an inner node of a tree: panels [i o u left-f
// right-f].
type nodeGates struct {
	left, right cellrt.Value // cell states
	outH, outC  output
}

func (c *cellCompiler) treeNode(i int, op cellrt.TreeNode) (step, error) {
	hidden := c.cell.Width(op.OutH)
	order := inOrder(0, 1, 2, 3, 4)
	g := &nodeGates{left: op.LeftC, right: op.RightC, outH: c.output(i, op.OutH), outC: c.output(i, op.OutC)}
	return c.recurrent(hidden, blocks(op.Bias, order), []part{
		{matrix: op.Weight, x: op.LeftH, order: order},
		{matrix: op.Weight, x: op.RightH, from: hidden, order: order},
	}, g)
}

func (g *nodeGates) apply(b *batch, block kernel.Rows, from, to int) {
	left, right := b.value(g.left), b.value(g.right)
	for r := range b.rows {
		outC, outH := g.outC.at(b, r, from, to), g.outH.at(b, r, from, to)
		b.table.TreeNode(block.Row(r, block.Stride), left.Row(r, to)[from:], right.Row(r, to)[from:], outH, outC)
		g.outC.spread(b, r, from, to, outC)
		g.outH.spread(b, r, from, to, outH)
	}
}

// blocks cuts a bias into those of the gates, in the given order.
func blocks(bias []float32, order gateOrder) [][]float32 {
	hidden := len(bias) / order.count
	var out [][]float32
	for _, gate := range order.gates[:order.count] {
		out = append(out, bias[gate*hidden:(gate+1)*hidden])
	}
	return out
}
