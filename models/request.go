package models

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// Input is what a request gives the model. Exactly one field is set.
type Input struct {
	// Text is UTF-8 text, for the model's tokenizer.
	Text string
	// IDs are token ids of the source vocabulary. A slice that is empty but not
	// nil is an input without tokens. The caller keeps the slice.
	IDs []int32
}

// Params are the request's parameters under their names on the wire. A nil
// pointer is a parameter that was not given.
type Params struct {
	// RequestID names the request. It is the seed of a request that samples and
	// gives none, so that the request has one output wherever it runs.
	RequestID string

	MaxTokens   *int
	Temperature *float64
	TopK        *int
	TopP        *float64
	Seed        *uint64
	Stop        []string
	BeamWidth   *int
	NBest       *int
	LogProbs    *int

	// Ramps asks a classifier for what each of its layers says.
	Ramps bool
}

// Request is an input unfolded by a model, ready to run once.
type Request struct {
	// Model is the model that unfolded the request and that must run it.
	Model *Model
	// Graph is the request's graph of cells. The runtime owns it from the moment
	// it is submitted until its last result was delivered.
	Graph cellrt.Graph
	// InputTokens is the number of source tokens.
	InputTokens int
	// MaxTokens is the most tokens that the output can have; 0 in families that
	// answer without tokens.
	MaxTokens int

	// outcome reads the graph's results.
	outcome func() Outcome
	// sign appends what the output depends on beside the model: the input and
	// the parameters. Nil in families without checkpoints.
	sign func(dst []byte) []byte
	// stops are the texts that end the output; nil without.
	stops *tokenizer.Stops
}

// Outcome is what a request gave beside the tokens it emitted. What a family
// does not have is zero.
type Outcome struct {
	// LogProb is the sum of the output's log-probabilities, those of end tokens
	// included.
	LogProb float64
	// Cut is how many bytes at the end of the tokens' text belong to a stop
	// text, for [tokenizer.Text.Flush].
	Cut int
	// Alternatives are the n best hypotheses of a search, best first, when the
	// request asked for them. The first is the output itself.
	Alternatives []Alternative
	// Label is the most probable class: the lowest of those with the highest
	// score.
	Label string
	// Scores are the probabilities of all classes, in the model's order.
	Scores []Score
	// Layers are what each layer of a classifier says, from the first to the
	// last, when the request asked for ramps and its graph ended by itself. A
	// layer without a ramp is zero.
	Layers []Layer
	// Logits are the raw outputs of a classifier by layer; those of layers
	// without a ramp, or whose ramp was not asked for, are nil. The last layer's
	// are what Scores was made of.
	Logits [][]float32
}

// Alternative is one hypothesis of a search.
type Alternative struct {
	Tokens []cellrt.Token
	// LogProb is the sum of its log-probabilities, the end token's included.
	LogProb float64
	Reason  cellrt.Reason
}

// Score is a class with its probability.
type Score struct {
	Label       string
	Probability float32
}

// Layer is what the head of a classifier's layer says: a ramp, or the
// classifier on the last.
type Layer struct {
	// Label and Scores are as in [Outcome].
	Label  string
	Scores []Score
}

// Outcome returns what the request gave. It may be called once the graph has
// ended, whatever ended it, and the runtime delivered its last result. The
// slices in it belong to the request and must not be changed.
func (r *Request) Outcome() Outcome { return r.outcome() }

// LogProb returns the sum of the output's log-probabilities. See
// [Request.Outcome].
func (r *Request) LogProb() float64 { return r.outcome().LogProb }

// NewText returns a decoder of the request's output tokens, which holds back
// what may be the beginning of a stop text until [tokenizer.Text.Flush]. It
// belongs to its caller.
func (r *Request) NewText() *tokenizer.Text { return tokenizer.NewText(r.Model.target, r.stops) }

// Text returns the text of a whole output: tokens are all that the request
// emitted, or those of an alternative, and cut is [Outcome.Cut], 0 for an
// alternative.
func (r *Request) Text(tokens []cellrt.Token, cut int) string {
	t := r.NewText()
	return string(t.Flush(t.Append(nil, tokens...), cut))
}
