package seq2seq

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/safetensors"
)

// layer are the weights of one recurrent layer in one direction. An LSTM has
// the sum of its biases in inputBias.
type layer struct {
	input, recurrent         *cellrt.Matrix
	inputBias, recurrentBias []float32
}

// linear are a projection's weights. The bias may be nil.
type linear struct {
	weight *cellrt.Matrix
	bias   []float32
}

type weights struct {
	sourceEmbedding, targetEmbedding *cellrt.Matrix
	encoder                          [][]layer // by layer, then direction
	decoder                          []layer
	bridgeH, bridgeC                 linear
	attention, combine, out          linear
}

// loader takes tensors out of a file, collecting all that is wrong.
type loader struct {
	file       *safetensors.File
	taken      map[string]bool
	parameters int
	errs       []error
}

func (l *loader) fail(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// take returns the values of a tensor that must have the given shape. A shape
// that disagrees is reported before any value is converted.
func (l *loader) take(name string, shape ...int) []float32 {
	t, ok := l.file.Tensor(name)
	if !ok {
		l.fail("tensor %s: missing, shape %v wanted", name, shape)
		return nil
	}
	l.taken[name] = true
	if !slices.Equal(t.Shape, shape) {
		l.fail("tensor %s: shape %v, %v wanted", name, t.Shape, shape)
		return nil
	}
	l.parameters += t.Len()
	return t.Float32s()
}

func (l *loader) matrix(name string, rows, cols int) *cellrt.Matrix {
	return &cellrt.Matrix{Name: name, Rows: rows, Cols: cols, Data: l.take(name, rows, cols)}
}

func (l *loader) linear(name string, rows, cols int) linear {
	return linear{weight: l.matrix(name+".weight", rows, cols), bias: l.take(name+".bias", rows)}
}

// layer takes the weights that PyTorch names like "encoder.weight_ih_l0" with
// the given suffix.
func (l *loader) layer(c Config, module, suffix string, in, hidden int) layer {
	rows := c.gates() * hidden
	w := layer{
		input:         l.matrix(module+".weight_ih_"+suffix, rows, in),
		recurrent:     l.matrix(module+".weight_hh_"+suffix, rows, hidden),
		inputBias:     l.take(module+".bias_ih_"+suffix, rows),
		recurrentBias: l.take(module+".bias_hh_"+suffix, rows),
	}
	if c.Cell == LSTM && len(w.inputBias) == len(w.recurrentBias) {
		for i, b := range w.recurrentBias {
			w.inputBias[i] += b
		}
		w.recurrentBias = nil
	}
	return w
}

// loadWeights takes every tensor of a model with configuration c out of f. A
// tensor that is missing, has another shape or is not the model's is an error;
// all of them are reported together.
func loadWeights(c Config, f *safetensors.File) (*weights, int, error) {
	l := &loader{file: f, taken: make(map[string]bool)}
	w := &weights{
		sourceEmbedding: l.matrix("src_embed.weight", c.SourceVocab, c.EmbeddingSize),
		targetEmbedding: l.matrix("tgt_embed.weight", c.TargetVocab, c.EmbeddingSize),
	}
	suffixes := []string{"", "_reverse"}[:c.directions()]
	encoderIn, decoderIn := c.EmbeddingSize, c.EmbeddingSize
	for i := range c.NumLayers {
		var directions []layer
		for _, s := range suffixes {
			directions = append(directions, l.layer(c, "encoder", fmt.Sprintf("l%d%s", i, s), encoderIn, c.EncoderHidden))
		}
		w.encoder = append(w.encoder, directions)
		w.decoder = append(w.decoder, l.layer(c, "decoder", fmt.Sprintf("l%d", i), decoderIn, c.DecoderHidden))
		encoderIn, decoderIn = c.memoryWidth(), c.DecoderHidden
	}
	w.bridgeH = l.linear("bridge_h", c.DecoderHidden, c.memoryWidth())
	if c.Cell == LSTM {
		w.bridgeC = l.linear("bridge_c", c.DecoderHidden, c.memoryWidth())
	}
	if c.Attention == LuongGeneral {
		w.attention.weight = l.matrix("attn.weight", c.memoryWidth(), c.DecoderHidden)
		w.combine = l.linear("combine", c.DecoderHidden, c.DecoderHidden+c.memoryWidth())
	}
	w.out = l.linear("out", c.TargetVocab, c.DecoderHidden)
	for _, t := range f.Tensors() {
		if !l.taken[t.Name] {
			l.fail("tensor %.64s: shape %v, not part of the model", t.Name, t.Shape)
		}
	}
	return w, l.parameters, errors.Join(l.errs...)
}
