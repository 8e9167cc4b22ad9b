package lm

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
	MaxPositions = 1 << 20 // of an input or an output
	// MaxStateValues bounds the float32 values in one sequence's state.
	MaxStateValues = 1 << 26
)

// The defaults of what a configuration leaves out.
const (
	DefaultInputLength  = 1 << 15
	DefaultOutputLength = 1024
	DefaultBeamWidth    = 8
)

// The names of cells.
const (
	LSTM = "lstm"
	GRU  = "gru"
)

// Config are a model's sizes, as config.json has them.
type Config struct {
	// Cell is "lstm" or "gru".
	Cell          string `json:"cell"`
	NumLayers     int    `json:"num_layers"`
	VocabSize     int    `json:"vocab_size"`
	EmbeddingSize int    `json:"embedding_size"`
	HiddenSize    int    `json:"hidden_size"`
	// EOSToken ends an output. Without one only a bound or a stop text does.
	EOSToken *int32 `json:"eos_token_id"`
	// MaxInputLength is the most tokens of an input.
	MaxInputLength int `json:"max_input_length"`
	// MaxOutputLength is the most tokens of an output.
	MaxOutputLength int `json:"max_output_length"`
	// MaxBeamWidth is the most hypotheses of a search. The state of a sequence
	// has room for twice as many.
	MaxBeamWidth int `json:"max_beam_width"`
}

// WithDefaults returns c with the defaults of what was left out.
func (c Config) WithDefaults() Config {
	if c.MaxInputLength == 0 {
		c.MaxInputLength = DefaultInputLength
	}
	if c.MaxOutputLength == 0 {
		c.MaxOutputLength = DefaultOutputLength
	}
	if c.MaxBeamWidth == 0 {
		c.MaxBeamWidth = DefaultBeamWidth
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
	within("num_layers", c.NumLayers, 1, MaxLayers)
	within("vocab_size", c.VocabSize, 1, MaxVocab)
	within("embedding_size", c.EmbeddingSize, 1, MaxSize)
	within("hidden_size", c.HiddenSize, 1, MaxSize)
	if c.EOSToken != nil {
		within("eos_token_id", int(*c.EOSToken), 0, max(c.VocabSize-1, 0))
	}
	within("max_input_length", c.MaxInputLength, 1, MaxPositions)
	within("max_output_length", c.MaxOutputLength, 1, MaxPositions)
	within("max_beam_width", c.MaxBeamWidth, 1, decode.MaxBeamWidth)
	return errors.Join(errs...)
}

// EndToken returns the token that ends an output, -1 when none does.
func (c Config) EndToken() int32 {
	if c.EOSToken == nil {
		return -1
	}
	return *c.EOSToken
}

// kind returns the kind of the recurrent layers.
func (c Config) kind() tensors.Kind {
	if c.Cell == GRU {
		return tensors.GRU
	}
	return tensors.LSTM
}
