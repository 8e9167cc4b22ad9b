package broker

import (
	"log/slog"
	"time"
)

// Defaults of [ClientConfig].
const (
	defaultQueueFrames   = 256
	defaultCancelTimeout = 500 * time.Millisecond
	// deadlineGrace is how long a client waits for the worker's own word after
	// the deadline.
	deadlineGrace = time.Second
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
	// newer output is then gathered in one more frame. Default 256.
	QueueFrames int
	// CancelTimeout is how long Cancel waits for an answer. Default 500 ms.
	CancelTimeout time.Duration
	// ReceiptWait is how long the server may take to confirm a durable request
	// while the client is connected; then it is published again under its id, a
	// few times, and fails with [ErrNoReceipt]. Default 2 s.
	ReceiptWait time.Duration
	// NoQueueWait is how long a durable request is published again for which the
	// server has no queue, as in an election and while JetStream starts; then it
	// is refused with the code busy. When the server or a worker says that no
	// stream captures the model it is unknown_model at once. Default 10 s.
	NoQueueWait time.Duration
	// Silence is how long a request that a worker has accepted may go without a
	// frame; then the workers are asked, and it fails with [ErrSilent] when they say
	// that the queue has it no more. A realtime request fails at once, and one
	// without a receipt when two questions found no answer. Default 60 s, which
	// should be many heartbeats and some ack waits of the workers.
	Silence time.Duration
	// QueueSilence is the same for a request that is queued, or that wants
	// nothing but its terminal frame. Until then the workers are asked after Silence,
	// and again after twice, four times and eight times as long, since the
	// answer may have been lost on the way. It also bounds the time without a frame or an
	// answer of a worker. Default 16 min, longer than the queue keeps a request.
	QueueSilence time.Duration
	// Logger. Default: discarded.
	Logger *slog.Logger
}
