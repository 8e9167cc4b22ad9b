package broker

import "time"

// FrameType is the kind of a frame.
type FrameType string

// The frame types.
const (
	FrameAccepted  FrameType = "accepted"
	FrameToken     FrameType = "token"
	FrameHeartbeat FrameType = "heartbeat"
	FrameFinal     FrameType = "final"
	FrameError     FrameType = "error"
	FrameRetry     FrameType = "retry"
)

// Terminal reports whether a frame of this type ends its request.
func (t FrameType) Terminal() bool { return t == FrameFinal || t == FrameError }

// FinishReason says why a sequence ended.
type FinishReason string

// The finish reasons.
const (
	FinishStop       FinishReason = "stop"
	FinishLength     FinishReason = "length"
	FinishCancelled  FinishReason = "cancelled"
	FinishDeadline   FinishReason = "deadline"
	FinishClientGone FinishReason = "client_gone"
)

// TokenLogProb is a candidate token and its log-probability. NaN and
// infinities travel as null and come back as NaN.
type TokenLogProb struct {
	ID      int32
	LogProb float64
}

// Score is a label's probability.
type Score struct {
	Label string
	Value float64
}

// Layer is what a classifier's layer says: its ramp, or the classifier on the
// last. A layer without a ramp is zero.
type Layer struct {
	Label  string
	Scores []Score
}

// Alternative is one of the n best outputs of a search.
type Alternative struct {
	Text         string
	Tokens       []int32
	LogProb      float64
	FinishReason FinishReason
}

// Usage counts tokens.
type Usage struct {
	InputTokens  int
	OutputTokens int
}

// Timing is where a request's time went: waiting in the broker, waiting in the
// worker, until the first token (from admission), altogether (from publishing).
type Timing struct {
	Broker, Queue, FirstToken, Total time.Duration
}

// Frame is one message on a reply subject. Type says which fields count; the
// others are zero.
type Frame struct {
	Type FrameType
	// ID, Epoch, Attempt and Seq are filled in by [TokenStream].
	ID             string
	Epoch, Attempt uint64
	Seq            uint64

	// Of accepted; final has all but Worker.
	Worker, Model, Version, Digest string

	// Of token (delta, new ids) and final (whole output).
	Text   string
	Tokens []int32
	// Index is the position of the first id of a token frame.
	Index int
	// LogProbs has the candidates of each token of a token frame, best first;
	// the token itself comes last when it is none of the best. A final frame has
	// them when no token frames were wanted.
	LogProbs [][]TokenLogProb
	// Provisional marks the whole text of a search as it looks now. It takes
	// the place of the provisional one before and is no part of the output,
	// whose tokens follow. Revision counts its versions, some of which are never
	// sent.
	Provisional bool
	Revision    int

	// Phase of a heartbeat.
	Phase string

	// Final is set in a final frame.
	Final *Final
	// Error is set in an error frame.
	Error *Error
	// Meta of the request, in a final and in an error frame.
	Meta Meta
}

// Final is what only a final frame has.
type Final struct {
	FinishReason FinishReason
	// LogProb is the sum over the output, end token included; NaN when unknown.
	LogProb float64
	// Label and Scores of a classification.
	Label  string
	Scores []Score
	// Layers are what each layer says, from the first to the last, when the
	// request asked for ramps.
	Layers       []Layer
	Alternatives []Alternative
	Usage        Usage
	Timing       Timing
	// Deterministic says that another attempt gives the same output: it ended by
	// itself, and not at a moment that somebody chose.
	Deterministic bool
	// Echo is the input, when the request asked for it.
	Echo *Input
}
