package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How streams are ensured.
const (
	ensureTries = 8               // when another worker's update undid ours
	ensureFor   = time.Minute     // while the cluster has no leader, or not all of its servers
	ensureWait  = 5 * time.Second // for one answer
	ensurePause = 500 * time.Millisecond
	storeWindow = 100 * time.Millisecond // of deduplication, where there is nothing to deduplicate
	outMessages = 4096                   // frames of one request that can be read back
)

// EnsureStreams makes sure that the request stream exists and captures the
// subjects of models beside those it captured before, and that the streams of
// finals, states, frames, letters and advisories exist. It changes limits to the
// configured ones, but makes no stream of records smaller, which would drop some of
// them, and never deletes or recreates a stream or takes a subject from it. Several workers may do this at once: each checks its subjects after the
// update and repeats it when another's update lost them. While a cluster has no
// leader it tries again, for up to a minute. A sealed stream is refused with [ErrSealed],
// except those of letters and frames, without which requests are answered all the
// same. Without models it does nothing.
func (c *Conn) EnsureStreams(ctx context.Context, models []string) error {
	want, err := c.modelSubjects(models)
	if err != nil {
		return fmt.Errorf("ensure stream %s: %w", c.cfg.Stream.Name, err)
	}
	if len(want) == 0 {
		return nil
	}
	if err := c.ensure(ctx, c.requestStream(want)); err != nil {
		return err
	}
	return c.ensureStores(ctx)
}

// ensureStores makes sure that the streams beside the request stream exist. A
// server that has no room for the frames of mode resume, or that has them and is
// away, is no failure: they cannot be read back then. A sealed stream keeps none of
// the others from being made.
func (c *Conn) ensureStores(ctx context.Context) error {
	var sealed error
	for _, s := range c.storeStreams() {
		err := c.ensure(ctx, s)
		if errors.Is(err, ErrSealed) {
			if !s.dispensable {
				sealed = errors.Join(sealed, err)
			}
			c.log.Error("stream is sealed and takes no records", slog.String("stream", s.fixed.Name))
			continue
		}
		if err != nil && s.optional && ctx.Err() == nil && (noRoom(err) || c.passes(err)) {
			c.log.Warn("stream not there, mode resume cannot be read back", slog.String("stream", s.fixed.Name), slog.Any("error", err))
			continue
		}
		if err != nil {
			return err
		}
	}
	return sealed
}

// errLostUpdate: the stream lacks our subjects or bounds after an update.
var errLostUpdate = errors.New("stream update was overwritten")

func (c *Conn) modelSubjects(models []string) ([]string, error) {
	var subjects []string
	for _, m := range models {
		if !ValidModel(m) {
			return nil, fmt.Errorf("model %q is not [a-z0-9-]{1,%d}", m, maxModelName)
		}
		subjects = append(subjects, c.subjects.requestsOf(m)...)
	}
	return subjects, nil
}

// stream is a stream that must exist.
type stream struct {
	// fixed is what cannot be changed later: name, storage, retention, whether
	// publications are confirmed.
	fixed jetstream.StreamConfig
	// subjects it must capture, beside others.
	subjects []string
	// limits sets everything else.
	limits func(*jetstream.StreamConfig)
	// optional: the server may have no room for it.
	optional bool
	// records: it keeps records, and is never made smaller.
	records bool
	// dispensable: requests are answered when it is sealed.
	dispensable bool
}

// requestStream is the queue of the requests.
func (c *Conn) requestStream(want []string) stream {
	s := c.cfg.Stream
	return stream{
		fixed:    jetstream.StreamConfig{Name: s.Name, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy},
		subjects: want,
		limits: func(cfg *jetstream.StreamConfig) {
			cfg.Description = "cellmq requests"
			cfg.Replicas = s.Replicas
			cfg.Discard = jetstream.DiscardNew
			cfg.DiscardNewPerSubject = true
			cfg.MaxMsgs = s.MaxMessages
			cfg.MaxBytes = s.MaxBytes
			cfg.MaxMsgsPerSubject = s.MaxPerClient
			cfg.MaxAge = s.MaxAge
			cfg.MaxMsgSize = int32(min(c.nc.MaxPayload(), 64<<20))
			cfg.Duplicates = s.Duplicates
			cfg.AllowMsgTTL = true
			cfg.AllowDirect = true
		},
	}
}

// storeStreams are the streams that keep records. Losing the frames of mode
// resume costs no answer, so they are in memory and on one server.
func (c *Conn) storeStreams() []stream {
	s, p := &c.cfg.Stream, string(c.subjects)
	file := func(name string, retention jetstream.RetentionPolicy) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: name, Storage: jetstream.FileStorage, Retention: retention}
	}
	return []stream{
		{
			fixed: file(s.finals(), jetstream.LimitsPolicy), subjects: []string{p + ".final.*.*"}, records: true,
			limits: keep("cellmq finals", s.Replicas, &s.Finals, 1, storeWindow),
		},
		{
			fixed: file(s.states(), jetstream.LimitsPolicy), subjects: []string{p + ".state.*.*"}, records: true,
			limits: keep("cellmq states of interrupted requests", s.Replicas, &s.States, 1, storeWindow),
		},
		{
			fixed: file(s.letters(), jetstream.LimitsPolicy), subjects: []string{p + ".dlq.*"}, records: true, dispensable: true,
			limits: keep("cellmq dead letters", s.Replicas, &s.Letters, -1, time.Hour),
		},
		{
			fixed: file(s.advisories(), jetstream.WorkQueuePolicy), subjects: []string{s.advisorySubject("*")}, records: true,
			limits: keep("cellmq requests that are delivered no more", s.Replicas,
				&StoreConfig{MaxMessages: 10_000, MaxBytes: advisoryBytes, MaxAge: 24 * time.Hour}, -1, storeWindow),
		},
		{
			fixed:    jetstream.StreamConfig{Name: s.out(), Storage: jetstream.MemoryStorage, NoAck: true},
			subjects: []string{p + ".outr.*.*"}, optional: true, records: true, dispensable: true,
			limits: keep("cellmq frames of mode resume", 1, &s.Out, outMessages, storeWindow),
		},
	}
}

// keep sets the limits of a stream of records.
func keep(description string, replicas int, s *StoreConfig, perSubject int64, window time.Duration) func(*jetstream.StreamConfig) {
	return func(cfg *jetstream.StreamConfig) {
		cfg.Description = description
		cfg.Replicas = replicas
		cfg.Discard = jetstream.DiscardOld
		cfg.MaxMsgs = s.MaxMessages
		cfg.MaxBytes = s.MaxBytes
		cfg.MaxMsgsPerSubject = perSubject
		cfg.MaxAge = s.MaxAge
		cfg.Duplicates = min(window, s.MaxAge)
		cfg.AllowMsgTTL = true
		cfg.AllowDirect = true
	}
}

// ensure makes sure that a stream exists.
func (c *Conn) ensure(ctx context.Context, s stream) error {
	end := time.Now().Add(ensureFor)
	if s.optional {
		end = time.Now().Add(ensureWait)
	}
	for overwritten, failed := 0, 0; ; {
		err := c.denials.permitted(ctx, s.fixed.Name, func(ctx context.Context) error { return c.ensureOnce(ctx, s) })
		if err == nil {
			return nil
		}
		wait := ensurePause
		switch {
		case errors.Is(err, errLostUpdate) || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
			if overwritten++; overwritten == ensureTries {
				return fmt.Errorf("ensure stream %s: %w", s.fixed.Name, err)
			}
			wait = 50 * time.Millisecond
		case ctx.Err() != nil || !c.passes(err) || time.Now().After(end):
			return fmt.Errorf("ensure stream %s: %w", s.fixed.Name, c.cfg.Stream.explain(err))
		default:
			if failed++; failed == 1 {
				c.log.Warn("stream not ensured yet", slog.String("stream", s.fixed.Name), slog.Any("error", err))
			}
		}
		if pause(ctx, wait) != nil {
			return fmt.Errorf("ensure stream %s: %w", s.fixed.Name, errors.Join(ctx.Err(), err))
		}
	}
}

// passes reports whether a failure to ensure may be over soon: a cluster without
// a leader, or whose servers are not all there, or a lost connection.
func (c *Conn) passes(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case apiNoPeers, apiIncomplete, apiUnavailable, apiNotLeader, apiNoResources, apiOffline:
			return true
		}
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		!c.nc.IsConnected() && !c.nc.IsClosed()
}

// The server's numbers for what passes, and for what has no room.
const (
	apiIncomplete  jetstream.ErrorCode = 10004
	apiNoPeers     jetstream.ErrorCode = 10005
	apiUnavailable jetstream.ErrorCode = 10008
	apiNotLeader   jetstream.ErrorCode = 10009
	apiNoResources jetstream.ErrorCode = 10023
	apiNoMemory    jetstream.ErrorCode = 10028
	apiNoStorage   jetstream.ErrorCode = 10047
	apiOffline     jetstream.ErrorCode = 10118
)

func noRoom(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains([]jetstream.ErrorCode{apiNoResources, apiNoMemory, apiNoStorage, apiNoPeers}, api.ErrorCode)
}

// explain adds to a refusal for want of room how much room the streams need: the
// server reserves their limits when they are made.
func (s *StreamConfig) explain(err error) error {
	if !noRoom(err) {
		return err
	}
	file := s.MaxBytes + s.Finals.MaxBytes + s.States.MaxBytes + s.Letters.MaxBytes + advisoryBytes
	return fmt.Errorf("%w (the streams of %s reserve %d MiB of max_file_store and %d MiB of max_memory_store on a server)",
		err, s.Name, roundUp(file), roundUp(s.Out.MaxBytes))
}

// roundUp is a size in MiB.
func roundUp(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

func (c *Conn) ensureOnce(ctx context.Context, s stream) error {
	ctx, cancel := context.WithTimeout(ctx, ensureWait)
	defer cancel()
	there, err := c.js.Stream(ctx, s.fixed.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, c.lay(s, s.fixed))
		return err
	}
	if err != nil {
		return err
	}
	current := there.CachedInfo().Config
	if current.Sealed {
		return ErrSealed
	}
	cfg := c.lay(s, current)
	if sameStream(current, cfg) {
		c.tellLarger(&s, &cfg)
		return nil
	}
	if _, err := c.js.UpdateStream(ctx, cfg); err != nil {
		return err
	}
	info, err := there.Info(ctx)
	if err != nil {
		return err
	}
	for _, subject := range s.subjects {
		if !slices.Contains(info.Config.Subjects, subject) {
			return errLostUpdate
		}
	}
	if !s.reaches(&info.Config, &cfg) {
		return errLostUpdate
	}
	c.tellLarger(&s, &info.Config)
	return nil
}

// lay lays the configured limits and the wanted subjects over what is there. A
// pattern for everything below a model gives way to its queues.
func (c *Conn) lay(s stream, cfg jetstream.StreamConfig) jetstream.StreamConfig {
	union := map[string]bool{}
	for _, subject := range slices.Concat(cfg.Subjects, s.subjects) {
		model, coarse := c.subjects.coarseModel(subject)
		if !coarse {
			union[subject] = true
			continue
		}
		for _, exact := range c.subjects.requestsOf(model) {
			union[exact] = true
		}
	}
	current := cfg
	cfg.Subjects = slices.Sorted(maps.Keys(union))
	s.limits(&cfg)
	s.grow(&current, &cfg)
	return cfg
}

func sameStream(a, b jetstream.StreamConfig) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.Subjects)), b.Subjects) &&
		a.Description == b.Description && a.Replicas == b.Replicas &&
		a.Discard == b.Discard && a.DiscardNewPerSubject == b.DiscardNewPerSubject &&
		a.MaxMsgs == b.MaxMsgs && a.MaxBytes == b.MaxBytes && a.MaxMsgsPerSubject == b.MaxMsgsPerSubject &&
		a.MaxAge == b.MaxAge && a.MaxMsgSize == b.MaxMsgSize && a.Duplicates == b.Duplicates &&
		a.AllowMsgTTL == b.AllowMsgTTL && a.AllowDirect == b.AllowDirect
}

// EnsureConsumers makes sure that the three pull consumers of each model
// exist. It never deletes or recreates one. While a cluster has no leader it tries
// again, for up to a minute each.
func (c *Conn) EnsureConsumers(ctx context.Context, models []string) error {
	if _, err := c.modelSubjects(models); err != nil {
		return fmt.Errorf("ensure consumers: %w", err)
	}
	for _, m := range models {
		for _, p := range priorities() {
			if err := c.insistOnConsumer(ctx, m, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// insistOnConsumer is ensureConsumer, again and again while a failure may pass.
func (c *Conn) insistOnConsumer(ctx context.Context, model string, p Priority) error {
	end := time.Now().Add(ensureFor)
	for {
		attempt, cancel := context.WithTimeout(ctx, ensureWait)
		err := c.ensureConsumer(attempt, model, p)
		cancel()
		if err == nil || ctx.Err() != nil || !c.passes(err) || time.Now().After(end) {
			return err
		}
		c.log.Warn("consumer not ensured yet", slog.String("consumer", consumerName(model, p)), slog.Any("error", err))
		if pause(ctx, ensurePause) != nil {
			return err
		}
	}
}

// priorities are all, most urgent first.
func priorities() []Priority { return []Priority{High, Std, Low} }

func consumerName(model string, p Priority) string { return model + "_" + string(p) }

// ensureConsumer also remembers the consumer's creation time. It asks for that
// separately: the first answer of a restarted server to a create or update bears
// the time when it recovered the consumer, every other one the stored time.
func (c *Conn) ensureConsumer(ctx context.Context, model string, p Priority) error {
	return c.denials.permitted(ctx, c.cfg.Stream.Name, func(ctx context.Context) error { return c.makeConsumer(ctx, model, p) })
}

func (c *Conn) makeConsumer(ctx context.Context, model string, p Priority) error {
	name := consumerName(model, p)
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, c.cfg.Stream.Name, jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: c.subjects.queue(model, p),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.cfg.AckWait,
		// The worker bounds the attempts before, since it can tell the client.
		MaxDeliver:    c.cfg.Stream.MaxDeliver,
		MaxAckPending: c.cfg.Stream.MaxAckPending,
	})
	if err != nil {
		return fmt.Errorf("ensure consumer %s: %w", name, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("ensure consumer %s: ask for its creation time: %w", name, err)
	}
	c.mu.Lock()
	c.epochs[name] = uint64(info.Created.UnixMilli())
	c.mu.Unlock()
	return c.askCreated(ctx)
}

// askCreated asks when the request stream was made. A stream that was made again
// has no consumers, so whoever makes one must ask.
func (c *Conn) askCreated(ctx context.Context) error {
	s, err := c.js.Stream(ctx, c.cfg.Stream.Name)
	if err != nil {
		return fmt.Errorf("ask for the creation time of stream %s: %w", c.cfg.Stream.Name, err)
	}
	c.mu.Lock()
	c.made = s.CachedInfo().Created.UnixMilli()
	c.mu.Unlock()
	return nil
}

// created is what askCreated heard; 0: nothing yet.
func (c *Conn) created() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// pause waits for about d, half to one and a half of it.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d)+1))
}
