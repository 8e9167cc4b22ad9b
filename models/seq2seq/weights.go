package seq2seq

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/tensors"
	"github.com/cellmq/cellmq/models/safetensors"
)

type weights struct {
	sourceEmbedding, targetEmbedding *cellrt.Matrix
	encoder                          [][]tensors.Recurrent // by layer, then direction
	decoder                          []tensors.Recurrent
	bridgeH, bridgeC                 tensors.Linear
	attention, combine, out          tensors.Linear
}

// loadWeights takes every tensor of a model with configuration c out of f. A
// tensor that is missing, has another shape or is not the model's is an error;
// the first of each are reported together.
func loadWeights(c Config, f *safetensors.File) (*weights, int, error) {
	t, kind := tensors.NewTaker(f), c.kind()
	w := &weights{
		sourceEmbedding: t.Matrix("src_embed.weight", c.SourceVocab, c.EmbeddingSize),
		targetEmbedding: t.Matrix("tgt_embed.weight", c.TargetVocab, c.EmbeddingSize),
	}
	suffixes := []string{"", "_reverse"}[:c.directions()]
	encoderIn, decoderIn := c.EmbeddingSize, c.EmbeddingSize
	for i := range c.NumLayers {
		var directions []tensors.Recurrent
		for _, s := range suffixes {
			directions = append(directions, t.Recurrent(kind, "encoder", fmt.Sprintf("l%d%s", i, s), encoderIn, c.EncoderHidden))
		}
		w.encoder = append(w.encoder, directions)
		w.decoder = append(w.decoder, t.Recurrent(kind, "decoder", fmt.Sprintf("l%d", i), decoderIn, c.DecoderHidden))
		encoderIn, decoderIn = c.memoryWidth(), c.DecoderHidden
	}
	w.bridgeH = t.Linear("bridge_h", c.DecoderHidden, c.memoryWidth())
	if c.Cell == LSTM {
		w.bridgeC = t.Linear("bridge_c", c.DecoderHidden, c.memoryWidth())
	}
	if c.Attention == LuongGeneral {
		w.attention.Weight = t.Matrix("attn.weight", c.memoryWidth(), c.DecoderHidden)
		w.combine = t.Linear("combine", c.DecoderHidden, c.DecoderHidden+c.memoryWidth())
	}
	w.out = t.Linear("out", c.TargetVocab, c.DecoderHidden)
	parameters, err := t.Finish()
	return w, parameters, err
}
