package seq2seq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/tensors"
)

// Bounds of a configuration.
const (
	MaxLayers    = 16
	MaxSize      = 1 << 13 // of an embedding or a hidden state
	MaxVocab     = 1 << 20
	MaxPositions = 1 << 14 // of a source or a target
	// MaxStateValues bounds the float32 values in one sequence's state.
	MaxStateValues = 1 << 26
)

// The defaults of what a configuration leaves out.
const (
	DefaultSourceLength = 256
	DefaultBeamWidth    = 8
)

// The names of cells and attentions.
const (
	LSTM         = "lstm"
	GRU          = "gru"
	NoAttention  = "none"
	LuongGeneral = "luong_general"
)

// Config are a model's sizes, as config.json has them.
type Config struct {
	// Cell is "lstm" or "gru".
	Cell      string `json:"cell"`
	NumLayers int    `json:"num_layers"`
	// Bidirectional encoders read the source from both ends.
	Bidirectional bool `json:"bidirectional_encoder"`
	// Attention is "none" or "luong_general".
	Attention     string `json:"attention"`
	EmbeddingSize int    `json:"embedding_size"`
	// EncoderHidden is the size of one direction.
	EncoderHidden int   `json:"encoder_hidden_size"`
	DecoderHidden int   `json:"decoder_hidden_size"`
	SourceVocab   int   `json:"source_vocab_size"`
	TargetVocab   int   `json:"target_vocab_size"`
	PadToken      int32 `json:"pad_token_id"`
	BOSToken      int32 `json:"bos_token_id"`
	EOSToken      int32 `json:"eos_token_id"`
	// MaxSourceLength is the most source tokens in a request, all segments
	// together.
	MaxSourceLength int `json:"max_source_length"`
	// MaxTargetLength is the most output tokens of one segment.
	MaxTargetLength int `json:"max_target_length"`
	// MaxBeamWidth is the most hypotheses of a search. The state of a sequence
	// has room for twice as many.
	MaxBeamWidth int `json:"max_beam_width"`
}

// WithDefaults returns c with the defaults of what was left out.
func (c Config) WithDefaults() Config {
	if c.MaxSourceLength == 0 {
		c.MaxSourceLength = DefaultSourceLength
	}
	if c.MaxBeamWidth == 0 {
		c.MaxBeamWidth = DefaultBeamWidth
	}
	if c.Attention == "" {
		c.Attention = NoAttention
	}
	return c
}

// Validate checks every field against its bounds and returns all that is
// wrong, joined; each error starts with the field's name in config.json.
func (c Config) Validate() error {
	var errs []error
	oneOf := func(field, got string, allowed ...string) {
		for _, a := range allowed {
			if got == a {
				return
			}
		}
		errs = append(errs, fmt.Errorf("%s: %.32q, one of %s wanted", field, got, strings.Join(allowed, ", ")))
	}
	within := func(field string, got, least, most int) {
		if got < least || got > most {
			errs = append(errs, fmt.Errorf("%s: %d, %d to %d wanted", field, got, least, most))
		}
	}
	oneOf("cell", c.Cell, LSTM, GRU)
	oneOf("attention", c.Attention, NoAttention, LuongGeneral)
	within("num_layers", c.NumLayers, 1, MaxLayers)
	within("embedding_size", c.EmbeddingSize, 1, MaxSize)
	within("encoder_hidden_size", c.EncoderHidden, 1, MaxSize)
	within("decoder_hidden_size", c.DecoderHidden, 1, MaxSize)
	within("source_vocab_size", c.SourceVocab, 1, MaxVocab)
	within("target_vocab_size", c.TargetVocab, 1, MaxVocab)
	within("pad_token_id", int(c.PadToken), 0, max(c.TargetVocab-1, 0))
	within("bos_token_id", int(c.BOSToken), 0, max(c.TargetVocab-1, 0))
	within("eos_token_id", int(c.EOSToken), 0, max(c.TargetVocab-1, 0))
	within("max_source_length", c.MaxSourceLength, 1, MaxPositions)
	within("max_target_length", c.MaxTargetLength, 1, MaxPositions)
	within("max_beam_width", c.MaxBeamWidth, 1, decode.MaxBeamWidth)
	return errors.Join(errs...)
}

// directions returns how many directions the encoder has.
func (c Config) directions() int {
	if c.Bidirectional {
		return 2
	}
	return 1
}

// memoryWidth returns the size of the encoder's output at one position.
func (c Config) memoryWidth() int { return c.directions() * c.EncoderHidden }

// kind returns the kind of the recurrent layers.
func (c Config) kind() tensors.Kind {
	if c.Cell == GRU {
		return tensors.GRU
	}
	return tensors.LSTM
}
