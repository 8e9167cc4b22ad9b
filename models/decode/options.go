package decode

import "github.com/cellmq/cellmq/models/tokenizer"

// Bounds of options.
const (
	MaxBeamWidth = 64
	MaxLogProbs  = 20
)

// Options say how a request's output is chosen. They are checked by whoever
// makes them.
type Options struct {
	// MaxTokens is the most tokens in the output, at least 1.
	MaxTokens int
	// EndToken ends the output, or a segment's; negative when no token does.
	EndToken int32
	// Sampling draws tokens at random; the zero value is greedy.
	Sampling Sampling
	// LogProbs is how many of the most probable tokens each token carries.
	LogProbs int
	// Stops end the output, nil for none; Tokenizer gives the tokens' text and
	// is only needed with them. A search takes none.
	Stops     *tokenizer.Stops
	Tokenizer tokenizer.Tokenizer
	// BeamWidth is the number of hypotheses of a search; 0 and 1 mean none.
	BeamWidth int
	// NBest is how many hypotheses of a search are wanted, 0 to BeamWidth.
	NBest int
}

// Sampling is how tokens are drawn.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy.
	Temperature float64
	// TopK keeps that many of the most probable tokens; 0 keeps all.
	TopK int
	// TopP keeps the most probable tokens that together reach this probability;
	// 0 and 1 keep all.
	TopP float64
	// Seed is the key of the random numbers.
	Seed uint64
}
