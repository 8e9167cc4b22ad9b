package models

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/seq2seq"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// Limits are the bounds of a model's requests.
type Limits struct {
	// MaxInputTokens is the most source tokens in one request.
	MaxInputTokens int
	// MaxTokens is the ceiling of max_tokens.
	MaxTokens int
}

// Model is a loaded model. It is read-only and safe for concurrent use.
type Model struct {
	name, version, digest string
	family, task          string
	limits                Limits
	source, target        tokenizer.Tokenizer
	segmented             bool // split text at white space
	seq2seq               *seq2seq.Model
	golden                []goldenCase
}

// Name returns the name requests use.
func (m *Model) Name() string { return m.name }

// Version returns the configuration's version, "1" when it has none.
func (m *Model) Version() string { return m.version }

// Digest returns the SHA-256 of the model's files in hexadecimal: names and
// contents, in the order of their names. Hidden files and sub-directories do
// not count.
func (m *Model) Digest() string { return m.digest }

// Family returns the model_type.
func (m *Model) Family() string { return m.family }

// Task returns what the model is for, as its configuration says.
func (m *Model) Task() string { return m.task }

// Program returns the model's cells and state layout.
func (m *Model) Program() *cellrt.Program { return m.seq2seq.Program() }

// Limits returns the bounds of a request.
func (m *Model) Limits() Limits { return m.limits }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.seq2seq.Parameters() }

// NewText returns a decoder of one request's output tokens. It belongs to its
// caller.
func (m *Model) NewText() *tokenizer.Text { return tokenizer.NewText(m.target) }
