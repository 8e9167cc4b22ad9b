package seq2seq_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/seq2seq"
)

// tensors are a model's weights under PyTorch's names.
type tensors map[string]safetensors.Values

// randomTensors returns weights for a configuration, large enough that the
// outputs vary.
func randomTensors(c seq2seq.Config, seed uint64) tensors {
	ts := tensors{}
	rng := rand.New(rand.NewPCG(seed, 7))
	add := func(name string, scale float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(scale * rng.NormFloat64())
		}
		ts[name] = safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: v}
	}
	gates, width, suffixes := 4, c.EncoderHidden, []string{""}
	if c.Cell == seq2seq.GRU {
		gates = 3
	}
	if c.Bidirectional {
		width, suffixes = 2*width, []string{"", "_reverse"}
	}
	layer := func(module, suffix string, in, hidden int) {
		add(module+".weight_ih_"+suffix, 0.6, gates*hidden, in)
		add(module+".weight_hh_"+suffix, 0.6, gates*hidden, hidden)
		add(module+".bias_ih_"+suffix, 0.3, gates*hidden)
		add(module+".bias_hh_"+suffix, 0.3, gates*hidden)
	}
	add("src_embed.weight", 1, c.SourceVocab, c.EmbeddingSize)
	add("tgt_embed.weight", 1, c.TargetVocab, c.EmbeddingSize)
	in, out := c.EmbeddingSize, c.EmbeddingSize
	for l := range c.NumLayers {
		for _, s := range suffixes {
			layer("encoder", fmt.Sprintf("l%d%s", l, s), in, c.EncoderHidden)
		}
		layer("decoder", fmt.Sprintf("l%d", l), out, c.DecoderHidden)
		in, out = width, c.DecoderHidden
	}
	bridges := []string{"bridge_h", "bridge_c"}
	if c.Cell == seq2seq.GRU {
		bridges = bridges[:1]
	}
	for _, b := range bridges {
		add(b+".weight", 0.5, c.DecoderHidden, width)
		add(b+".bias", 0.2, c.DecoderHidden)
	}
	if c.Attention == seq2seq.LuongGeneral {
		add("attn.weight", 0.5, width, c.DecoderHidden)
		add("combine.weight", 0.5, c.DecoderHidden, c.DecoderHidden+width)
		add("combine.bias", 0.2, c.DecoderHidden)
	}
	add("out.weight", 1.2, c.TargetVocab, c.DecoderHidden)
	add("out.bias", 0.5, c.TargetVocab)
	return ts
}

// file returns the weights as a parsed file.
func (ts tensors) file(t *testing.T) *safetensors.File {
	t.Helper()
	var values []safetensors.Values
	for _, v := range ts {
		values = append(values, v)
	}
	var buf bytes.Buffer
	if err := safetensors.Write(&buf, values, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// reference computes whole outputs in float64 from the published equations: no
// cells, no graph, no slots.
type reference struct {
	c  seq2seq.Config
	ts tensors
}

type hiddenState struct{ h, c []float64 }

// decode returns the greedy output of one source, its log-probability with
// that of the end token, and whether it was cut.
func (r reference) decode(source []int32) (tokens []int32, logProb float64, cut bool) {
	memory, last := r.encode(source)
	state := make([]hiddenState, r.c.NumLayers)
	for l := range state {
		state[l].h = tanh(r.affine("bridge_h", last[l].h))
		if r.c.Cell == seq2seq.LSTM {
			state[l].c = r.affine("bridge_c", last[l].c)
		}
	}
	input := r.c.BOSToken
	for range r.c.MaxTargetLength {
		y := r.row("tgt_embed.weight", input)
		for l := range state {
			state[l] = r.step("decoder", fmt.Sprintf("l%d", l), y, state[l])
			y = state[l].h
		}
		if r.c.Attention == seq2seq.LuongGeneral {
			y = tanh(r.affine("combine", slices.Concat(y, r.context(y, memory))))
		}
		logits := r.affine("out", y)
		best, total := 0, 0.0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
			total += math.Exp(v)
		}
		logProb += logits[best] - math.Log(total)
		input = int32(best)
		if input == r.c.EOSToken {
			return tokens, logProb, false
		}
		tokens = append(tokens, input)
	}
	return tokens, logProb, true
}

// encode returns the last layer's outputs by position and each layer's last
// states, both directions concatenated.
func (r reference) encode(source []int32) (outputs [][]float64, last []hiddenState) {
	for _, id := range source {
		outputs = append(outputs, r.row("src_embed.weight", id))
	}
	n := len(source)
	for l := range r.c.NumLayers {
		next := make([][]float64, n)
		var end hiddenState
		for d, suffix := range []string{"", "_reverse"} {
			if d == 1 && !r.c.Bidirectional {
				break
			}
			s := hiddenState{h: make([]float64, r.c.EncoderHidden), c: make([]float64, r.c.EncoderHidden)}
			for i := range n {
				p := i
				if d == 1 {
					p = n - 1 - i
				}
				s = r.step("encoder", fmt.Sprintf("l%d%s", l, suffix), outputs[p], s)
				next[p] = append(next[p], s.h...)
			}
			end.h, end.c = append(end.h, s.h...), append(end.c, s.c...)
		}
		outputs = next
		last = append(last, end)
	}
	return outputs, last
}

func (r reference) step(module, suffix string, x []float64, s hiddenState) hiddenState {
	gi := r.product(module+".weight_ih_"+suffix, module+".bias_ih_"+suffix, x)
	gh := r.product(module+".weight_hh_"+suffix, module+".bias_hh_"+suffix, s.h)
	n := len(s.h)
	out := hiddenState{h: make([]float64, n), c: make([]float64, n)}
	for j := range n {
		gate := func(g int) float64 { return 1 / (1 + math.Exp(-gi[g*n+j]-gh[g*n+j])) }
		if r.c.Cell == seq2seq.GRU {
			candidate := math.Tanh(gi[2*n+j] + gate(0)*gh[2*n+j])
			out.h[j] = (1-gate(1))*candidate + gate(1)*s.h[j]
			continue
		}
		out.c[j] = gate(1)*s.c[j] + gate(0)*math.Tanh(gi[2*n+j]+gh[2*n+j])
		out.h[j] = gate(3) * math.Tanh(out.c[j])
	}
	return out
}

func (r reference) context(y []float64, memory [][]float64) []float64 {
	query := r.product("attn.weight", "", y)
	out := make([]float64, len(query))
	total := 0.0
	for _, m := range memory {
		score := 0.0
		for k, v := range m {
			score += v * query[k]
		}
		total += math.Exp(score)
		for k, v := range m {
			out[k] += math.Exp(score) * v
		}
	}
	for k := range out {
		out[k] /= total
	}
	return out
}

func (r reference) row(name string, i int32) []float64 {
	cols := r.ts[name].Shape[1]
	var out []float64
	for _, v := range r.ts[name].Data[int(i)*cols : (int(i)+1)*cols] {
		out = append(out, float64(v))
	}
	return out
}

func (r reference) affine(name string, x []float64) []float64 {
	return r.product(name+".weight", name+".bias", x)
}

func (r reference) product(weight, bias string, x []float64) []float64 {
	w := r.ts[weight]
	out := make([]float64, w.Shape[0])
	for i := range out {
		if bias != "" {
			out[i] = float64(r.ts[bias].Data[i])
		}
		for k, v := range x {
			out[i] += float64(w.Data[i*w.Shape[1]+k]) * v
		}
	}
	return out
}

func tanh(v []float64) []float64 {
	for i := range v {
		v[i] = math.Tanh(v[i])
	}
	return v
}
