package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// treeLeafStep computes leaves of trees. When their input is an embedding with
// a small table the whole product is looked up.
type treeLeafStep struct {
	op     cellrt.TreeLeaf
	hidden int
	input  inputPart
	gates  cellrt.Value
}

func (c *cellCompiler) treeLeaf(op cellrt.TreeLeaf) step {
	hidden := c.cell.Width(op.OutH)
	w := c.packLinear(op.Weight)
	parts := c.inputParts(op.X, []*kernel.Matrix{w}, [][]float32{op.Bias})
	return &treeLeafStep{op: op, hidden: hidden, input: parts[0], gates: c.temporary(3 * hidden)}
}

func (s *treeLeafStep) run(b *batch) {
	s.input.run(b, b.value(s.gates))
	b.eachRow(s, 4*s.hidden*activationWork)
}

// rows applies the gates.
func (s *treeLeafStep) rows(b *batch, from, to int) {
	gates, outH, outC := b.value(s.gates), b.value(s.op.OutH), b.value(s.op.OutC)
	for r := from; r < to; r++ {
		kernel.TreeLeaf(gates.Row(r, 3*s.hidden), outH.Row(r, s.hidden), outC.Row(r, s.hidden))
	}
}

// treeNodeStep computes inner nodes of trees.
type treeNodeStep struct {
	op     cellrt.TreeNode
	hidden int
	weight *kernel.Matrix
	bias   []float32
	gates  cellrt.Value
}

func (c *cellCompiler) treeNode(op cellrt.TreeNode) step {
	hidden := c.cell.Width(op.OutH)
	return &treeNodeStep{
		op: op, hidden: hidden, weight: c.packLinear(op.Weight), bias: c.keep(op.Bias), gates: c.temporary(5 * hidden),
	}
}

func (s *treeNodeStep) run(b *batch) {
	gates := b.value(s.gates)
	gates.Fill(len(b.rows), s.bias)
	b.accumulate(s.weight, gates, b.value(s.op.LeftH), 0, s.hidden)
	b.accumulate(s.weight, gates, b.value(s.op.RightH), s.hidden, s.hidden)
	b.eachRow(s, 6*s.hidden*activationWork)
}

// rows applies the gates.
func (s *treeNodeStep) rows(b *batch, from, to int) {
	gates := b.value(s.gates)
	left, right := b.value(s.op.LeftC), b.value(s.op.RightC)
	outH, outC := b.value(s.op.OutH), b.value(s.op.OutC)
	for r := from; r < to; r++ {
		kernel.TreeNode(gates.Row(r, 5*s.hidden), left.Row(r, s.hidden), right.Row(r, s.hidden),
			outH.Row(r, s.hidden), outC.Row(r, s.hidden))
	}
}
