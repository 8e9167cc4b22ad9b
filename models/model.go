package models

import (
	"errors"
	"io/fs"

	"github.com/cellmq/cellmq/cellrt"
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
	program               *cellrt.Program
	limits                Limits
	parameters            int
	target                tokenizer.Tokenizer
}

// Name returns the name requests use.
func (m *Model) Name() string { return m.name }

// Version returns the configuration's version, "1" when it has none.
func (m *Model) Version() string { return m.version }

// Digest returns the SHA-256 of the model's files in hexadecimal: names and
// contents, in the order of their names.
func (m *Model) Digest() string { return m.digest }

// Family returns the model_type.
func (m *Model) Family() string { return m.family }

// Task returns what the model is for, as its configuration says.
func (m *Model) Task() string { return m.task }

// Program returns the model's cells and state layout.
func (m *Model) Program() *cellrt.Program { return m.program }

// Limits returns the bounds of a request.
func (m *Model) Limits() Limits { return m.limits }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.parameters }

// Load reads the model in fsys, whose root is the model's directory.
func Load(fsys fs.FS, name string) (*Model, error) {
	return nil, errors.New("not loaded")
}

// LoadDir loads every sub-directory of dir that has a config.json, in the
// order of their names. A model is named like its directory.
func LoadDir(dir string) ([]*Model, error) {
	return nil, errors.New("not loaded")
}

// Unfold tokenizes and checks an input and its parameters and unfolds them
// into a graph. Whatever is wrong with them is an [*InputError].
func (m *Model) Unfold(in Input, p Params) (*Request, error) {
	return nil, inputErrorf(BadRequest, "input", "empty")
}

// NewText returns a decoder of one request's output tokens. It belongs to its
// caller.
func (m *Model) NewText() *tokenizer.Text { return tokenizer.NewText(m.target) }
