package tree

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Bounds of a configuration.
const (
	MaxSize    = 1 << 13 // of a hidden state
	MaxVocab   = 1 << 20
	MaxLabels  = 1 << 16
	MaxNodes   = 1 << 20 // of a tree
	MaxEntries = 1 << 12 // a state has at most 2^26 values
)

// Defaults of what a configuration leaves out.
const (
	DefaultMaxNodes     = 1 << 16
	DefaultStateEntries = 64
)

// Config are a model's sizes, as config.json has them.
type Config struct {
	// VocabSize is how many different leaves there are.
	VocabSize int `json:"vocab_size"`
	// HiddenSize is the width of a node's state and of a leaf's embedding.
	HiddenSize int `json:"hidden_size"`
	NumLabels  int `json:"num_labels"`
	// Labels are the names of the classes; their indices when absent.
	Labels []string `json:"labels"`
	// MaxNodes is the most nodes of a tree, leaves included.
	MaxNodes int `json:"max_nodes"`
	// StateEntries is how many nodes of one tree can have a state at once.
	StateEntries int `json:"state_entries"`
}

// WithDefaults returns c with the defaults of what was left out.
func (c Config) WithDefaults() Config {
	if c.MaxNodes == 0 {
		c.MaxNodes = DefaultMaxNodes
	}
	if c.StateEntries == 0 {
		c.StateEntries = DefaultStateEntries
	}
	if c.Labels == nil && c.NumLabels > 0 && c.NumLabels <= MaxLabels {
		for i := range c.NumLabels {
			c.Labels = append(c.Labels, strconv.Itoa(i))
		}
	}
	return c
}

// Validate checks every field against its bounds and returns all that is
// wrong, joined; each error starts with the field's name in config.json.
func (c Config) Validate() error {
	var errs []error
	within := func(field string, got, least, most int) {
		if got < least || got > most {
			errs = append(errs, fmt.Errorf("%s: %d, %d to %d wanted", field, got, least, most))
		}
	}
	within("vocab_size", c.VocabSize, 1, MaxVocab)
	within("hidden_size", c.HiddenSize, 1, MaxSize)
	within("num_labels", c.NumLabels, 1, MaxLabels)
	within("max_nodes", c.MaxNodes, 1, MaxNodes)
	within("state_entries", c.StateEntries, largestNeed(c.MaxNodes), MaxEntries)
	if len(c.Labels) != c.NumLabels {
		errs = append(errs, fmt.Errorf("labels: %d, num_labels is %d", len(c.Labels), c.NumLabels))
	}
	return errors.Join(errs...)
}

// largestNeed returns the entries that any tree of at most the given number of
// nodes can be evaluated with.
func largestNeed(nodes int) int { return bits.Len(uint(max(nodes, 1)+1) / 2) }
