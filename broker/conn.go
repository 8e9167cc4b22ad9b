package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config describes a worker's connection and the streams behind it. The zero
// value of a field means its default, see [Config.WithDefaults].
type Config struct {
	// URL of the NATS server, comma separated for several. Default
	// nats://127.0.0.1:4222. Ignored when Server is set.
	URL string
	// Server is an embedded server to connect to in-process.
	Server *Server
	// Name of the connection, shown by the server. Default "cellmq".
	Name string
	// Options are appended to the connection's own (credentials, TLS).
	Options []nats.Option
	// RetryConnect keeps trying when no server answers at the start, until the
	// context ends. Otherwise Connect fails at once.
	RetryConnect bool
	// Logger receives connection events. Default: discarded.
	Logger *slog.Logger

	// Prefix of all subjects. Default "infer".
	Prefix string
	// ReplyPrefixes are the subject prefixes that the Infer-Reply-To header may
	// name. Default {"_INBOX."}; set to an empty, non-nil slice to allow none.
	ReplyPrefixes []string
	// MaxPayload bounds a request's payload, bytes. Default 1 MiB less 64 KiB
	// of headroom for headers; never above what the server takes.
	MaxPayload int
	// AckWait is how long a lease lasts without extension. Default 10 s.
	AckWait time.Duration
	// LeaseMargin is how long before the server does a lease counts itself
	// lost. Default AckWait/10.
	LeaseMargin time.Duration
	// Stream holds the limits of the request queue.
	Stream StreamConfig
}

// StreamConfig holds the limits of the request stream. The zero value of a
// field means its default.
type StreamConfig struct {
	// Name of the stream. Default "INFER".
	Name string
	// Replicas of the stream and its consumers. Default 1.
	Replicas int
	// MaxMessages in the whole queue; more are refused with busy. Default 20000.
	MaxMessages int64
	// MaxBytes in the whole queue; more are refused with busy. Default 256 MiB.
	MaxBytes int64
	// MaxPerClient is the quota: messages of one client to one model and
	// priority; more are refused with quota_exceeded. Default 4096.
	MaxPerClient int64
	// MaxAge of a queued message. Default 15 min.
	MaxAge time.Duration
	// Duplicates is the window in which a request id is accepted once.
	// Default 2 min.
	Duplicates time.Duration
	// MaxDeliver is the number of attempts. Default 3.
	MaxDeliver int
	// MaxAckPending bounds the leases of one model and priority over all
	// workers. Default 4096.
	MaxAckPending int
}

// Conn is a worker's connection. It is safe for concurrent use.
type Conn struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
}

// Connect connects, reconnects for ever afterwards, and checks that the server
// has JetStream ([ErrNoJetStream] when not). The caller closes the connection.
func Connect(ctx context.Context, cfg Config) (*Conn, error) {
	return nil, errors.New("not connected")
}

// Connected reports whether the connection is up now.
func (c *Conn) Connected() bool { return false }

// NATS returns the underlying connection, for clients that share it.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// Close sends what is buffered, waits for that at most as long as ctx lives,
// and closes the connection. Open streams must have ended before.
func (c *Conn) Close(ctx context.Context) error { return nil }

// EnsureStreams makes sure that the request stream exists and captures the
// subjects of models beside those it captured before. It changes limits to the
// configured ones, and never deletes or recreates a stream.
func (c *Conn) EnsureStreams(ctx context.Context, models []string) error {
	return errors.New("ensure streams: not connected")
}

// EnsureConsumers makes sure that the three pull consumers of each model
// exist. It never deletes or recreates one.
func (c *Conn) EnsureConsumers(ctx context.Context, models []string) error {
	return errors.New("ensure consumers: not connected")
}
