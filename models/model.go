package models

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// Limits are the bounds of a model's requests.
type Limits struct {
	// MaxInputTokens is the most source tokens in one request.
	MaxInputTokens int
	// MaxTokens is the ceiling of max_tokens; 0 in families that emit no tokens.
	MaxTokens int
}

// Model is a loaded model. It is read-only but for [Model.Close] and safe for
// concurrent use.
type Model struct {
	name, version, digest string
	weightsSum            string // SHA-256 of the weights file
	kind, task            string
	limits                Limits
	target                tokenizer.Tokenizer // nil in families that emit no tokens
	family                family
	program               *cellrt.Program // the family's, with the weight type
	golden                []goldenCase
	held                  *held // shared with the same model of another weight type
}

// Name returns the name requests use.
func (m *Model) Name() string { return m.name }

// Digest returns the SHA-256 of the model's files in hexadecimal: names and
// contents, in the order of their names. Hidden files and sub-directories do
// not count, and the weight type only as far as the configuration names it.
func (m *Model) Digest() string { return m.digest }

// Family returns the model_type.
func (m *Model) Family() string { return m.kind }

// Task returns what the model is for, as its configuration says.
func (m *Model) Task() string { return m.task }

// Program returns the model's cells, state layout and weight type.
func (m *Model) Program() *cellrt.Program { return m.program }

// Cells returns the names of the model's cells, in the program's order.
func (m *Model) Cells() []string {
	names := make([]string, 0, len(m.program.Cells))
	for _, c := range m.program.Cells {
		names = append(names, c.Name)
	}
	return names
}

// Limits returns the bounds of a request.
func (m *Model) Limits() Limits { return m.limits }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.family.Parameters() }

// NewText returns a decoder of output tokens, for requests without stop texts.
// It belongs to its caller.
func (m *Model) NewText() *tokenizer.Text { return tokenizer.NewText(m.target, nil) }
