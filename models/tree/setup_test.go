package tree_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/tree"
)

const inner = -1 // an inner node in postorder

// small is a configuration with sizes that are multiples of nothing.
func small() tree.Config {
	return tree.Config{VocabSize: 5, HiddenSize: 7, NumLabels: 3, MaxNodes: 200, StateEntries: 7}.WithDefaults()
}

// tensors are a model's weights under PyTorch's names.
type tensors map[string]safetensors.Values

func randomTensors(c tree.Config) tensors {
	ts := tensors{}
	rng := rand.New(rand.NewPCG(42, 7))
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(0.6 * rng.NormFloat64())
		}
		ts[name] = safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: v}
	}
	h := c.HiddenSize
	add("embed.weight", c.VocabSize, h)
	add("leaf.weight", 3*h, h)
	add("leaf.bias", 3*h)
	add("node.weight", 5*h, 2*h)
	add("node.bias", 5*h)
	add("classifier.weight", c.NumLabels, h)
	add("classifier.bias", c.NumLabels)
	return ts
}

// file returns the weights as a parsed file.
func (ts tensors) file(tb testing.TB) *safetensors.File {
	tb.Helper()
	var values []safetensors.Values
	for _, v := range ts {
		values = append(values, v)
	}
	var buf bytes.Buffer
	if err := safetensors.Write(&buf, values, nil); err != nil {
		tb.Fatal(err)
	}
	f, err := safetensors.Parse(buf.Bytes())
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func setup(tb testing.TB, c tree.Config) (*tree.Model, tensors) {
	tb.Helper()
	ts := randomTensors(c)
	m, err := tree.New("test", c, ts.file(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return m, ts
}

// randomTree appends a tree with the given number of leaves in postorder. Skew
// is the share of nodes whose children differ the most in size.
func randomTree(dst []int32, rng *rand.Rand, c tree.Config, leaves int, skew float64) []int32 {
	if leaves == 1 {
		return append(dst, int32(rng.IntN(c.VocabSize)))
	}
	left := 1 + rng.IntN(leaves-1)
	if rng.Float64() < skew {
		left = 1 + rng.IntN(2)*(leaves-2)
	}
	dst = randomTree(dst, rng, c, left, skew)
	dst = randomTree(dst, rng, c, leaves-left, skew)
	return append(dst, inner)
}

// complete returns a tree of 2^depth leaves of one depth in postorder.
func complete(depth int) []int32 {
	if depth == 0 {
		return []int32{1}
	}
	below := complete(depth - 1)
	return append(slices.Concat(below, below), inner)
}

// chain returns a tree of n inner nodes, each the left or right child of the
// one above, as side says for each depth.
func chain(n int, side func(depth int) (left bool)) []int32 {
	var before, after []int32
	for d := range n {
		if side(d) {
			after = append(after, inner, 2) // in reverse
		} else {
			before = append(before, 2)
			after = append(after, inner)
		}
	}
	slices.Reverse(after)
	return slices.Concat(before, []int32{1}, after)
}

// reference computes a tree's logits by recursion, in float64.
type reference struct {
	c  tree.Config
	ts tensors
}

func (r reference) affine(module string, in []float64) []float64 {
	w, b := r.ts[module+".weight"].Data, r.ts[module+".bias"].Data
	out := make([]float64, len(b))
	for i := range out {
		out[i] = float64(b[i])
		for k, x := range in {
			out[i] += float64(w[i*len(in)+k]) * x
		}
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// logits reads the tree from its end.
func (r reference) logits(ids []int32) []float64 {
	h, _, _ := r.state(ids)
	return r.affine("classifier", h)
}

// state returns the state of the last node of ids and the nodes before its
// subtree.
func (r reference) state(ids []int32) (h, c []float64, rest []int32) {
	n := r.c.HiddenSize
	h, c = make([]float64, n), make([]float64, n)
	id, ids := ids[len(ids)-1], ids[:len(ids)-1]
	if id != inner {
		x := make([]float64, n)
		for k := range x {
			x[k] = float64(r.ts["embed.weight"].Data[int(id)*n+k])
		}
		g := r.affine("leaf", x)
		for j := range n {
			c[j] = sigmoid(g[j]) * math.Tanh(g[2*n+j])
			h[j] = sigmoid(g[n+j]) * math.Tanh(c[j])
		}
		return h, c, ids
	}
	rightH, rightC, ids := r.state(ids)
	leftH, leftC, ids := r.state(ids)
	g := r.affine("node", slices.Concat(leftH, rightH))
	for j := range n {
		c[j] = sigmoid(g[j])*math.Tanh(g[2*n+j]) + sigmoid(g[3*n+j])*leftC[j] + sigmoid(g[4*n+j])*rightC[j]
		h[j] = sigmoid(g[n+j]) * math.Tanh(c[j])
	}
	return h, c, ids
}
