package broker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Priority is the queue of a durable request.
type Priority string

// The priorities, most urgent first. A request without one is [Std].
const (
	High Priority = "high"
	Std  Priority = "std"
	Low  Priority = "low"
)

// Encoding is the form of a payload. Frames use the encoding of their request.
type Encoding uint8

// The encodings. A plain-text request is answered in JSON, so its Encoding is
// [JSON].
const (
	MsgPack Encoding = iota
	JSON
)

// Mode says which frames a request wants.
type Mode string

// The modes of the Infer-Mode header.
const (
	// ModeStream sends tokens as they come.
	ModeStream Mode = "stream"
	// ModeFinal sends the terminal frame only: a plain request and its reply.
	ModeFinal Mode = "final"
	// ModeResume sends what ModeStream does, on a subject that a stream keeps for
	// a while: it can be read back. Durable requests only.
	ModeResume Mode = "resume"
)

// OnGone says what happens when nobody listens to the frames any more.
type OnGone string

// The policies of the Infer-On-Gone header.
const (
	OnGoneCancel OnGone = "cancel"
	OnGoneFinish OnGone = "finish"
)

// Input is what the model reads: a text, or token ids. A request with both is
// refused.
type Input struct {
	Text string
	IDs  []int32
	// IsIDs tells an empty list of ids from an empty text. Ids that are there need it
	// not, and have it when they were decoded.
	IsIDs bool
}

// ids reports whether the input is token ids.
func (in *Input) ids() bool { return in.IsIDs || len(in.IDs) > 0 }

// Params are the parameters of a request; nil is absent. Which of them a model
// supports is its family's matter.
type Params struct {
	MaxTokens   *int
	Temperature *float64
	TopP        *float64
	TopK        *int
	Seed        *uint64
	Stop        []string
	BeamWidth   *int
	NBest       *int
	LogProbs    *int
	// Ramps asks a classifier what each of its layers says.
	Ramps bool
	// Echo asks for the input in the final frame.
	Echo bool
	// Meta comes back untouched in the terminal frame; see [NewMeta].
	Meta Meta
}

// Request is a decoded request. The receiver of a [Delivery] owns it.
type Request struct {
	// ID names the request; [A-Za-z0-9]{8,32}.
	ID     string
	Model  string
	Client string
	// Version pins a model version; empty is any.
	Version  string
	Priority Priority
	Encoding Encoding
	Mode     Mode
	OnGone   OnGone
	// Deadline ends the whole budget of the request; zero is none.
	Deadline time.Time
	// TraceParent and TraceState are the W3C trace context as the client sent it,
	// empty or printable and not checked further.
	TraceParent, TraceState string
	// Durable tells the JetStream path from the core path.
	Durable bool
	// Reply is the subject of the frames.
	Reply string
	// Published is when the server stored the message (durable path), or when
	// it arrived here (core path).
	Published time.Time
	Input     Input
	Params    Params

	// Sequence of the message in the request stream; 0 on the core path.
	Sequence uint64
	// Hash tells apart requests of one id: the first 8 bytes, big-endian, of the
	// SHA-256 of subject, a zero byte and payload; or, if the content type is not
	// what the payload would be taken for or a version is asked for, of that
	// SHA-256, a byte for the form (0 MessagePack, 1 JSON, 2 text) and the version.
	// 0 on the core path.
	Hash uint64
	// Raw is the message as it was published, empty on the core path. It shares
	// its memory with the message, which nobody may change.
	Raw Raw
}

// Raw is a message as it was published.
type Raw struct {
	Subject string
	Header  nats.Header
	Payload []byte
}
