package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Defaults and fixed limits of what is stored.
const (
	defaultPrefix     = "infer"
	defaultStoreBytes = 1 << 30
	defaultTimeout    = 5 * time.Second
	defaultStale      = 30 * time.Second
	defaultSpare      = time.Hour
	recordHistory     = 16
	recordBytes       = 256 << 10 // of a manifest or deployment
	recordsBytes      = 64 << 20
	reportBytes       = 64 << 10
	reportsBytes      = 8 << 20
	reportTTL         = 15 * time.Second
)

// The headers of a message that the server reads out, and the statuses of those
// that end an answer.
const (
	headerStatus   = "Status"
	headerSubject  = "Nats-Subject"
	headerSequence = "Nats-Sequence"
	headerStamp    = "Nats-Time-Stamp"
	headerPending  = "Nats-Num-Pending"
	statusEnd      = "204"
	statusNone     = "404"
)

// The header and its value that delete a key of a bucket.
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
)

// apiWrongLast is the server's code for a record that is not the expected one.
const apiWrongLast = 10071

// Config says which registry, and how to ask it.
type Config struct {
	// Conn is the connection to ask on. The caller closes it after the registry's
	// last use.
	Conn *nats.Conn
	// Prefix of the fleet's subjects. Default "infer".
	Prefix string
	// Replicas of the buckets when they are made. Default 1.
	Replicas int
	// StoreBytes is the bound of the object store. 0: 1 GiB when it is made, and
	// left as it is when it is there.
	StoreBytes int64
	// Log receives what an operator waits for. Default: discarded.
	Log *slog.Logger
	// Timeout of one answer of the server. Default 5 s.
	Timeout time.Duration
	// Stale is for how long the lock's record must not have changed before it is
	// taken from its holder, who renews it six times in that. All users of a
	// registry must have the same. Default 30 s.
	Stale time.Duration
	// Spare is how long a sweep leaves parts that no version names, so that a push
	// that was interrupted can go on. Default 1 h.
	Spare time.Duration
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Stale = cmp.Or(c.Stale, defaultStale)
	c.Spare = cmp.Or(c.Spare, defaultSpare)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// validate names each field that is outside its bounds.
func (c Config) validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("field Conn: missing"))
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`).MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("field Prefix: %.64q, tokens of [A-Za-z0-9_-] wanted", c.Prefix))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("field Replicas: %d, 1 to 5 wanted", c.Replicas))
	}
	if c.StoreBytes < 0 {
		errs = append(errs, fmt.Errorf("field StoreBytes: %d, not negative wanted", c.StoreBytes))
	}
	if c.Timeout < 0 || c.Stale < 0 || c.Spare < 0 {
		errs = append(errs, fmt.Errorf("fields Timeout, Stale, Spare: %v, %v, %v, not negative wanted", c.Timeout, c.Stale, c.Spare))
	}
	return errors.Join(errs...)
}

// Registry is the registry of a fleet. It is safe for concurrent use.
type Registry struct {
	cfg     Config
	log     *slog.Logger
	js      jetstream.JetStream
	models  string // name of the object store and of the bucket of records
	workers string // name of the bucket of reports
	seen    atomic.Pointer[view]
}

// New returns the registry that cfg names. It asks the server nothing.
func New(cfg Config) (*Registry, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("registry configuration: %w", err)
	}
	js, err := jetstream.New(cfg.Conn, jetstream.WithPublishAsyncTimeout(partPatience), jetstream.WithDefaultTimeout(cfg.Timeout))
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	suffix := ""
	if cfg.Prefix != defaultPrefix {
		suffix = "_" + strings.NewReplacer("_", "__", ".", "_-").Replace(cfg.Prefix)
	}
	return &Registry{cfg: cfg, log: cfg.Log, js: js, models: "CELLMQ_MODELS" + suffix, workers: "CELLMQ_WORKERS" + suffix}, nil
}

// Ensure makes the buckets that are absent, and gives the object store its bound
// when the configuration has one. What exists is otherwise left as it is.
func (r *Registry) Ensure(ctx context.Context) error {
	err := r.ensureStore(ctx)
	if full(err) {
		return fmt.Errorf("object store %s of %d bytes: %w: %w", r.models, cmp.Or(r.cfg.StoreBytes, defaultStoreBytes), ErrNoReserve, err)
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", r.models, err)
	}
	records := jetstream.KeyValueConfig{
		Bucket: r.models, Description: "versions and deployments of cellmq", Storage: jetstream.FileStorage, Replicas: r.cfg.Replicas,
		History: recordHistory, MaxValueSize: recordBytes, MaxBytes: recordsBytes,
	}
	reports := jetstream.KeyValueConfig{
		Bucket: r.workers, Description: "what workers of cellmq have loaded", Storage: jetstream.FileStorage, Replicas: r.cfg.Replicas,
		History: 1, MaxValueSize: reportBytes, MaxBytes: reportsBytes, TTL: reportTTL,
	}
	for _, c := range []jetstream.KeyValueConfig{records, reports} {
		if err := r.ensureBucket(ctx, c); err != nil {
			return fmt.Errorf("bucket %s: %w", c.Bucket, err)
		}
	}
	return nil
}

func (r *Registry) ensureStore(ctx context.Context) error {
	c := jetstream.ObjectStoreConfig{
		Bucket: r.models, Description: "parts of cellmq's models", Storage: jetstream.FileStorage, Replicas: r.cfg.Replicas,
		MaxBytes: cmp.Or(r.cfg.StoreBytes, defaultStoreBytes),
	}
	store, err := r.js.ObjectStore(ctx, r.models)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if _, err = r.js.CreateObjectStore(ctx, c); !errors.Is(err, jetstream.ErrBucketExists) {
			return err
		}
		store, err = r.js.ObjectStore(ctx, r.models)
	}
	if err != nil || r.cfg.StoreBytes == 0 {
		return err
	}
	s, err := store.Status(ctx)
	if err != nil {
		return err
	}
	b, ok := s.(*jetstream.ObjectBucketStatus)
	if !ok {
		return fmt.Errorf("status is a %T", s)
	}
	limits := b.StreamInfo().Config
	if limits.MaxBytes == r.cfg.StoreBytes {
		return nil
	}
	limits.MaxBytes = r.cfg.StoreBytes
	_, err = r.js.UpdateStream(ctx, limits)
	return err
}

func (r *Registry) ensureBucket(ctx context.Context, c jetstream.KeyValueConfig) error {
	_, err := r.js.KeyValue(ctx, c.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
	}
	if _, err = r.js.CreateKeyValue(ctx, c); errors.Is(err, jetstream.ErrBucketExists) {
		return nil // somebody else made it in between
	}
	return err
}

// request asks the server and waits for one answer. Nobody to answer is
// [ErrNoRegistry].
func (r *Registry) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	m, err := r.cfg.Conn.RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, ErrNoRegistry
	}
	return m, err
}

// batch sends a direct get of several messages of a stream and hands each answer
// to take, until the server says that there are no more in this answer, and how
// many messages are left for another. An error of take ends it. The data belong to
// take. A stream that is absent is [ErrNoRegistry].
func (r *Registry) batch(ctx context.Context, stream, ask string, take takeFunc) (left uint64, err error) {
	inbox := r.cfg.Conn.NewInbox()
	sub, err := r.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed
	if err := r.cfg.Conn.PublishRequest(jetstream.DefaultAPIPrefix+"DIRECT.GET."+stream, inbox, []byte(ask)); err != nil {
		return 0, err
	}
	for {
		m, err := r.next(ctx, sub)
		if errors.Is(err, nats.ErrNoResponders) {
			return 0, ErrNoRegistry
		}
		if err != nil {
			return 0, err
		}
		switch status := m.Header.Get(headerStatus); status {
		case "":
		case statusNone:
			return 0, nil
		case statusEnd:
			left, err = strconv.ParseUint(m.Header.Get(headerPending), 10, 64)
			if err != nil {
				err = fmt.Errorf("messages left in the server's answer: %w", err)
			}
			return left, err
		default:
			return 0, fmt.Errorf("server: status %.8s %.64s", status, m.Header.Get("Description"))
		}
		if err := took(m, take); err != nil {
			return 0, err
		}
	}
}

// takeFunc is given a message of a stream, with its sequence and when it was stored.
type takeFunc func(subject string, seq uint64, at time.Time, data []byte) error

// took hands a message of an answer to take.
func took(m *nats.Msg, take takeFunc) error {
	seq, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence in the server's answer: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerStamp))
	if err != nil {
		return fmt.Errorf("time in the server's answer: %w", err)
	}
	return take(m.Header.Get(headerSubject), seq, at, m.Data)
}

func (r *Registry) next(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// decode reads one JSON value of at most limit bytes. Unknown keys and anything
// behind the value are [ErrMalformed], whose text has at most 64 bytes of the input.
func decode(data []byte, limit int, into any) error {
	if len(data) > limit {
		return fmt.Errorf("%d bytes, at most %d wanted: %w", len(data), limit, ErrMalformed)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%.80s: %w", err.Error(), ErrMalformed) // of which at least 16 are not of the input
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more behind the record's end: %w", ErrMalformed)
	}
	return nil
}
