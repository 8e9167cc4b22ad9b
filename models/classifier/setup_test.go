package classifier_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/models/classifier"
	"github.com/cellmq/cellmq/models/safetensors"
)

// small is a configuration with sizes that are multiples of nothing.
func small() classifier.Config {
	return classifier.Config{
		Cell: classifier.LSTM, VocabSize: 11, EmbeddingSize: 5, HiddenSize: 7, NumLayers: 3, Residual: true,
		Ramps: 2, Labels: []string{"a", "b", "c"}, MaxInputLength: 500,
	}.WithDefaults()
}

// shapes are all kinds of model, by name.
func shapes() map[string]classifier.Config {
	all := map[string]classifier.Config{}
	for _, cell := range []string{classifier.LSTM, classifier.GRU} {
		for layers := 1; layers <= 4; layers++ {
			for _, residual := range []bool{false, true} {
				for ramps := range layers {
					c := small()
					c.Cell, c.NumLayers, c.Residual, c.Ramps = cell, layers, residual, ramps
					all[fmt.Sprintf("%s-%d-%t-%d", cell, layers, residual, ramps)] = c
				}
			}
		}
	}
	return all
}

// tensors are a model's weights under PyTorch's names.
type tensors map[string]safetensors.Values

func randomTensors(c classifier.Config) tensors {
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
	h, gates := c.HiddenSize, 4
	if c.Cell == classifier.GRU {
		gates = 3
	}
	add("embed.weight", c.VocabSize, c.EmbeddingSize)
	in := c.EmbeddingSize
	for l := range c.NumLayers {
		module := fmt.Sprintf("layers.%d.", l)
		add(module+"weight_ih_l0", gates*h, in)
		add(module+"weight_hh_l0", gates*h, h)
		add(module+"bias_ih_l0", gates*h)
		add(module+"bias_hh_l0", gates*h)
		in = h
	}
	for l := range c.Ramps {
		add(fmt.Sprintf("ramps.%d.weight", l), len(c.Labels), h)
		add(fmt.Sprintf("ramps.%d.bias", l), len(c.Labels))
	}
	add("classifier.weight", len(c.Labels), h)
	add("classifier.bias", len(c.Labels))
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

func setup(tb testing.TB, c classifier.Config) (*classifier.Model, tensors) {
	tb.Helper()
	ts := randomTensors(c)
	m, err := classifier.New("test", c, ts.file(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return m, ts
}

func randomText(rng *rand.Rand, c classifier.Config, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(c.VocabSize))
	}
	return tokens
}

// reference computes a text's logits layer by layer, in float64.
type reference struct {
	c  classifier.Config
	ts tensors
}

func (r reference) affine(weight, bias string, in []float64) []float64 {
	w, b := r.ts[weight].Data, r.ts[bias].Data
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

// logits returns the results of the ramps and the classifier, by layer; those
// of layers without either are nil.
func (r reference) logits(tokens []int32) [][]float64 {
	var x [][]float64
	for _, id := range tokens {
		e := make([]float64, r.c.EmbeddingSize)
		for k := range e {
			e[k] = float64(r.ts["embed.weight"].Data[int(id)*len(e)+k])
		}
		x = append(x, e)
	}
	var all [][]float64
	for l := range r.c.NumLayers {
		out := r.layer(l, x)
		mean := make([]float64, r.c.HiddenSize)
		for t := range out {
			for j := range mean {
				if l > 0 && r.c.Residual {
					out[t][j] += x[t][j]
				}
				mean[j] += out[t][j] / float64(len(tokens))
			}
		}
		x = out
		head := fmt.Sprintf("ramps.%d", l)
		if l == r.c.NumLayers-1 {
			head = "classifier"
		}
		var logits []float64
		if _, ok := r.ts[head+".weight"]; ok {
			logits = r.affine(head+".weight", head+".bias", mean)
		}
		all = append(all, logits)
	}
	return all
}

// layer returns a layer's recurrent outputs.
func (r reference) layer(l int, in [][]float64) [][]float64 {
	n, module := r.c.HiddenSize, fmt.Sprintf("layers.%d.", l)
	h, c := make([]float64, n), make([]float64, n)
	var out [][]float64
	for _, x := range in {
		xs := r.affine(module+"weight_ih_l0", module+"bias_ih_l0", x)
		hs := r.affine(module+"weight_hh_l0", module+"bias_hh_l0", h)
		next := make([]float64, n)
		for j := range n {
			if r.c.Cell == classifier.GRU {
				reset, update := sigmoid(xs[j]+hs[j]), sigmoid(xs[n+j]+hs[n+j])
				next[j] = (1-update)*math.Tanh(xs[2*n+j]+reset*hs[2*n+j]) + update*h[j]
				continue
			}
			c[j] = sigmoid(xs[n+j]+hs[n+j])*c[j] + sigmoid(xs[j]+hs[j])*math.Tanh(xs[2*n+j]+hs[2*n+j])
			next[j] = sigmoid(xs[3*n+j]+hs[3*n+j]) * math.Tanh(c[j])
		}
		h = next
		out = append(out, append([]float64(nil), h...))
	}
	return out
}
