package oracle

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

func (o *Oracle) treeLeaf(op cellrt.TreeLeaf) (h, c []float64) {
	g := affine(op.Weight, op.Bias, o.values[op.X])
	n := len(g) / 3
	h, c = make([]float64, n), make([]float64, n)
	for j := range n {
		c[j] = sigmoid(g[j]) * math.Tanh(g[2*n+j])
		h[j] = sigmoid(g[n+j]) * math.Tanh(c[j])
	}
	return h, c
}

func (o *Oracle) treeNode(op cellrt.TreeNode) (h, c []float64) {
	left, right := o.values[op.LeftH], o.values[op.RightH]
	n := len(left)
	g := affine(op.Weight, op.Bias, append(append([]float64(nil), left...), right...))
	h, c = make([]float64, n), make([]float64, n)
	for j := range n {
		c[j] = sigmoid(g[j])*math.Tanh(g[2*n+j]) +
			sigmoid(g[3*n+j])*o.values[op.LeftC][j] + sigmoid(g[4*n+j])*o.values[op.RightC][j]
		h[j] = sigmoid(g[n+j]) * math.Tanh(c[j])
	}
	return h, c
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] + b[i]
	}
	return out
}

func divide(sum []float64, count int) []float64 {
	out := make([]float64, len(sum))
	for i, v := range sum {
		out[i] = v / float64(count)
	}
	return out
}

func singles(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
