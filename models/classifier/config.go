package classifier

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cellmq/cellmq/models/internal/tensors"
)

// Bounds of a configuration. With them a state has less than 2^23 values.
const (
	MaxLayers      = 64
	MaxSize        = 1 << 13 // of an embedding or a hidden state
	MaxVocab       = 1 << 20
	MaxLabels      = 1 << 16
	MaxInputLength = 1 << 20
)

// DefaultInputLength is the longest input of a model that does not say.
const DefaultInputLength = 1 << 14

// RingSize is how many positions a layer can be ahead of the next one.
const RingSize = 8

// The names of cells and of the one way to pool.
const (
	LSTM = "lstm"
	GRU  = "gru"
	Mean = "mean"
)

// Config are a model's sizes, as config.json has them.
type Config struct {
	// Cell is "lstm" or "gru".
	Cell          string `json:"cell"`
	VocabSize     int    `json:"vocab_size"`
	EmbeddingSize int    `json:"embedding_size"`
	HiddenSize    int    `json:"hidden_size"`
	NumLayers     int    `json:"num_layers"`
	// Residual models add a layer's input to its output from the second layer
	// on.
	Residual bool `json:"residual"`
	// Pooling is "mean", over time.
	Pooling string `json:"pooling"`
	// Ramps is how many layers have a ramp, the lowest ones.
	Ramps int `json:"ramps"`
	// Labels are the names of the classes.
	Labels []string `json:"labels"`
	// MaxInputLength is the most tokens of a request.
	MaxInputLength int `json:"max_input_length"`
}

// WithDefaults returns c with the defaults of what was left out.
func (c Config) WithDefaults() Config {
	if c.MaxInputLength == 0 {
		c.MaxInputLength = DefaultInputLength
	}
	if c.Pooling == "" {
		c.Pooling = Mean
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
	oneOf("pooling", c.Pooling, Mean)
	within("vocab_size", c.VocabSize, 1, MaxVocab)
	within("embedding_size", c.EmbeddingSize, 1, MaxSize)
	within("hidden_size", c.HiddenSize, 1, MaxSize)
	within("num_layers", c.NumLayers, 1, MaxLayers)
	within("ramps", c.Ramps, 0, max(c.NumLayers-1, 0))
	within("labels", len(c.Labels), 1, MaxLabels)
	within("max_input_length", c.MaxInputLength, 1, MaxInputLength)
	return errors.Join(errs...)
}

// kind returns the kind of the recurrent layers.
func (c Config) kind() tensors.Kind {
	if c.Cell == GRU {
		return tensors.GRU
	}
	return tensors.LSTM
}
