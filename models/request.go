package models

import (
	"github.com/cellmq/cellmq/cellrt"
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
	MaxTokens   *int
	Temperature *float64
	TopK        *int
	TopP        *float64
	Seed        *uint64
	Stop        []string
	BeamWidth   *int
	NBest       *int
	LogProbs    *int
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
	// MaxTokens is the most tokens that the output can have.
	MaxTokens int

	score scorer
}

type scorer interface{ LogProb() float64 }

// LogProb returns the sum of the output's log-probabilities, those of end
// tokens included. It may be called once the graph has ended.
func (r *Request) LogProb() float64 { return r.score.LogProb() }
