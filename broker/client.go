package broker

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// ClientConfig describes a [Client]. The zero value of a field means its
// default.
type ClientConfig struct {
	// Name of the client, the last token of its subjects; [A-Za-z0-9_-]{1,64}.
	// Default: "c" and a random suffix.
	Name string
	// Prefix of all subjects. Default "infer".
	Prefix string
	// QueueFrames bounds the frames that wait for a slow reader, per request;
	// older token frames give way. Default 256.
	QueueFrames int
	// CancelTimeout is how long Cancel waits for an answer. Default 500 ms.
	CancelTimeout time.Duration
	// Logger. Default: discarded.
	Logger *slog.Logger
}

// RequestOptions are a request's parameters and how it is carried. The zero
// value is a durable MessagePack request of priority std that streams.
type RequestOptions struct {
	Input  Input
	Params Params
	// Payload, when set, is sent as it is instead of Input and Params.
	Payload []byte
	// ContentType of the payload; default by Encoding, or sniffed by the
	// worker when Payload is set.
	ContentType string
	// Encoding of the request and its frames.
	Encoding Encoding
	// ID of the request; default a new one.
	ID       string
	Priority Priority
	Mode     Mode
	OnGone   OnGone
	Version  string
	// Deadline is the whole budget; zero: the context's deadline, if any.
	Deadline    time.Time
	TraceParent string
	// Realtime takes the core path: lowest latency, no persistence.
	Realtime bool
}

// Client publishes requests and reads their token streams. It is safe for
// concurrent use.
type Client struct{}

// NewClient returns a client on nc, which it does not own. One subscription
// serves all its requests.
func NewClient(nc *nats.Conn, cfg ClientConfig) (*Client, error) {
	return nil, errors.New("new client: not connected")
}

// Dial connects to url as a client does: reconnecting for ever, failing at
// once when no server answers at the start.
func Dial(ctx context.Context, url, name string, opts ...nats.Option) (*nats.Conn, error) {
	return nil, errors.New("dial: not connected")
}

// Name is the client's name.
func (c *Client) Name() string { return "" }

// Request publishes a request and returns its stream at once; a refusal is the
// stream's error. Errors returned here mean that nothing was published.
// When ctx ends the request is cancelled.
func (c *Client) Request(ctx context.Context, model string, opts RequestOptions) (*Stream, error) {
	return nil, ErrClosed
}

// CancelReply is the answer to a cancel request.
type CancelReply struct {
	ID    string
	State CancelState
}

// Cancel asks the workers to stop a request of this client. State is
// [CancelUnknown] when no worker answers in time: it may be queued, and then
// ends when a worker takes it.
func (c *Client) Cancel(ctx context.Context, id string) (CancelReply, error) {
	return CancelReply{}, ErrClosed
}

// Close ends the subscription; open streams end with [ErrClosed]. Requests
// under way are not cancelled.
func (c *Client) Close() error { return nil }

// Stream is the token stream of one request, read by one goroutine.
type Stream struct{}

// ID is the id of the request.
func (s *Stream) ID() string { return "" }

// Frames yields the frames in order, duplicates of earlier attempts left out,
// and ends with the terminal one: a final frame, or an error frame together
// with its [*Error]. Breaking the loop cancels the request, and so does the end
// of the request's context.
func (s *Stream) Frames() iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) { yield(Frame{}, ErrClosed) }
}

// Final reads on to the final frame and returns it, or the error that ended
// the request.
func (s *Stream) Final() (Frame, error) { return Frame{}, ErrClosed }

// Cancel ends the request, unless it has ended.
func (s *Stream) Cancel() {}
