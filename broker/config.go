package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Defaults of [Config] and [StreamConfig].
const (
	defaultPrefix   = "infer"
	headerHeadroom  = 64 << 10
	defaultAckWait  = 10 * time.Second
	minAckWait      = 100 * time.Millisecond
	defaultStream   = "INFER"
	defaultMessages = 20_000
	defaultBytes    = 256 << 20
	defaultQuota    = 4096
	defaultMaxAge   = 15 * time.Minute
	defaultWindow   = 2 * time.Minute
	defaultPending  = 4096
	// defaultDeliver leaves a request that workers give up after 5 failures room
	// for 8 deliveries each, and for any number of hand-backs that may happen.
	defaultDeliver = 8*5 + 1024

	defaultKeep    = 15 * time.Minute
	defaultFinals  = 200_000
	defaultFrames  = 10 * time.Minute
	defaultRecords = 64 << 20 // bytes of each store
	advisoryBytes  = 8 << 20
	defaultLetters = 10_000
	defaultDead    = 7 * 24 * time.Hour
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
	// Inbox is the prefix of the connection's inboxes, without a dot at its end. An
	// own one lets permissions keep others out of them. Default: "_INBOX".
	Inbox string
	// Leave is called when the server says that it is about to stop; see
	// [Conn.Move]. It must not block. Nil: the server ends the connection in time.
	Leave func()
	// RetryConnect keeps trying when no server answers at the start, until the
	// context ends. Otherwise Connect fails at once.
	RetryConnect bool
	// Logger receives connection events. Default: discarded.
	Logger *slog.Logger

	// Prefix of all subjects. Default "infer".
	Prefix string
	// ReplyPrefixes are the subject prefixes that the Infer-Reply-To header may
	// name; an empty, non-nil slice allows none. Default "_INBOX.", and none while
	// the server wants users to authenticate: the header would get around their
	// permissions.
	ReplyPrefixes []string
	// MaxPayload bounds a request's payload, bytes. Default 1 MiB less 64 KiB
	// of headroom for headers; never above what the server takes.
	MaxPayload int
	// AckWait is how long a lease lasts without extension, at least 100 ms.
	// Default 10 s.
	AckWait time.Duration
	// LeaseMargin is how long before the server does a lease counts itself
	// lost; less than half of AckWait. Default AckWait/10.
	LeaseMargin time.Duration
	// Stream holds the limits of the request queue.
	Stream StreamConfig
}

// StreamConfig holds the limits of the request stream. The zero value of a
// field means its default.
type StreamConfig struct {
	// Name of the stream. Default "INFER".
	Name string
	// Replicas of the stream and its consumers, 1 to 5. Default 1.
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
	// Duplicates is the window in which a request id is accepted once; at most
	// MaxAge. Default 2 min.
	Duplicates time.Duration
	// MaxAckPending bounds the leases of one model and priority over all
	// workers. Default 4096.
	MaxAckPending int
	// MaxDeliver is how often the server delivers a request; -1 is without bound.
	// It must be well above what the workers allow, who count failures and tell
	// the client: it stops a request that kills every worker before it can count,
	// and what is left to do then is told by [Conn.Advisories]. Default 1064.
	MaxDeliver int

	// Finals are the terminal frames of durable requests, in the stream <Name>_FINAL.
	// Default 200000 messages, 64 MiB, and MaxAge but at least 15 min; the age
	// must not be below MaxAge.
	Finals StoreConfig
	// States of interrupted requests, in <Name>_STATE. Default no bound of their
	// number, 64 MiB, and MaxAge but at least 15 min.
	States StoreConfig
	// Out are the frames of requests in mode resume, in <Name>_OUT, in the server's memory.
	// Default no bound of their number, 64 MiB, 10 min.
	Out StoreConfig
	// Letters are dead letters, in <Name>_DLQ. Default 10000 messages, 64 MiB,
	// 7 days.
	Letters StoreConfig
}

// StoreConfig holds the limits of a stream that keeps records. The oldest
// record gives way to a new one. The zero value of a field means its default.
type StoreConfig struct {
	// MaxMessages; -1 is without bound.
	MaxMessages int64
	// MaxBytes.
	MaxBytes int64
	// MaxAge of a record.
	MaxAge time.Duration
}

// WithDefaults returns cfg with its zero fields replaced by the defaults.
func (cfg Config) WithDefaults() Config {
	orDefault(&cfg.URL, nats.DefaultURL)
	orDefault(&cfg.Name, "cellmq")
	orDefault(&cfg.Prefix, defaultPrefix)
	orDefault(&cfg.MaxPayload, defaultMaxPayload-headerHeadroom)
	orDefault(&cfg.AckWait, defaultAckWait)
	orDefault(&cfg.LeaseMargin, cfg.AckWait/10)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &cfg.Stream
	orDefault(&s.Name, defaultStream)
	orDefault(&s.Replicas, 1)
	orDefault(&s.MaxMessages, defaultMessages)
	orDefault(&s.MaxBytes, defaultBytes)
	orDefault(&s.MaxPerClient, defaultQuota)
	orDefault(&s.MaxAge, defaultMaxAge)
	orDefault(&s.Duplicates, min(defaultWindow, s.MaxAge))
	orDefault(&s.MaxAckPending, defaultPending)
	orDefault(&s.MaxDeliver, defaultDeliver)
	s.Finals.orDefault(defaultFinals, max(defaultKeep, s.MaxAge))
	s.States.orDefault(-1, max(defaultKeep, s.MaxAge))
	s.Out.orDefault(-1, defaultFrames)
	s.Letters.orDefault(defaultLetters, defaultDead)
	return cfg
}

func (s *StoreConfig) orDefault(messages int64, age time.Duration) {
	orDefault(&s.MaxMessages, messages)
	orDefault(&s.MaxBytes, defaultRecords)
	orDefault(&s.MaxAge, age)
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every field that is out of its bounds.
func (cfg Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if _, err := newSubjects(cfg.Prefix); err != nil {
		errs = append(errs, err)
	}
	check(cfg.MaxPayload > 0, "max payload %d: not positive", cfg.MaxPayload)
	check(cfg.AckWait >= minAckWait, "ack wait %v: below %v", cfg.AckWait, minAckWait)
	check(cfg.LeaseMargin >= 0 && cfg.LeaseMargin < cfg.AckWait/2, "lease margin %v: not in [0, ack wait/2)", cfg.LeaseMargin)
	s := cfg.Stream
	check(ValidClient(s.Name), "stream name %q: not [A-Za-z0-9_-]{1,%d}", s.Name, maxClientName)
	check(s.Replicas >= 1 && s.Replicas <= 5, "stream replicas %d: not in 1..5", s.Replicas)
	check(s.MaxMessages > 0, "stream max messages %d: not positive", s.MaxMessages)
	check(s.MaxBytes > 0, "stream max bytes %d: not positive", s.MaxBytes)
	check(s.MaxPerClient > 0, "stream max per client %d: not positive", s.MaxPerClient)
	check(s.MaxAge >= time.Second, "stream max age %v: below 1s", s.MaxAge)
	check(s.Duplicates >= 100*time.Millisecond && s.Duplicates <= s.MaxAge, "stream duplicates %v: not in [100ms, max age]", s.Duplicates)
	check(s.MaxAckPending >= 1, "stream max ack pending %d: below 1", s.MaxAckPending)
	check(s.MaxDeliver == -1 || s.MaxDeliver >= 1, "stream max deliver %d: neither -1 nor positive", s.MaxDeliver)
	check(s.Finals.MaxAge >= s.MaxAge, "finals max age %v: below the stream's max age %v", s.Finals.MaxAge, s.MaxAge)
	for _, store := range []struct {
		name string
		cfg  StoreConfig
	}{{"finals", s.Finals}, {"states", s.States}, {"out", s.Out}, {"letters", s.Letters}} {
		check(store.cfg.MaxMessages == -1 || store.cfg.MaxMessages > 0, "%s max messages %d: neither -1 nor positive", store.name, store.cfg.MaxMessages)
		check(store.cfg.MaxBytes > 0, "%s max bytes %d: not positive", store.name, store.cfg.MaxBytes)
		check(store.cfg.MaxAge >= time.Second, "%s max age %v: below 1s", store.name, store.cfg.MaxAge)
	}
	return errors.Join(errs...)
}
