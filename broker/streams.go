package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ensureTries bounds the repetitions of a stream update that another worker's
// update undid.
const ensureTries = 8

// EnsureStreams makes sure that the request stream exists and captures the
// subjects of models beside those it captured before. It changes limits to the
// configured ones, and never deletes or recreates a stream. Several workers may
// do this at once: each checks its subjects after the update and repeats it
// when another's update lost them.
func (c *Conn) EnsureStreams(ctx context.Context, models []string) error {
	want, err := c.modelSubjects(models)
	if err != nil {
		return fmt.Errorf("ensure stream %s: %w", c.cfg.Stream.Name, err)
	}
	if len(want) == 0 {
		return nil
	}
	for range ensureTries {
		if err = c.ensureStream(ctx, want); err == nil {
			return nil
		}
		if !errors.Is(err, errLostUpdate) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("ensure stream %s: %w", c.cfg.Stream.Name, err)
		}
	}
	return fmt.Errorf("ensure stream %s: %w", c.cfg.Stream.Name, err)
}

// errLostUpdate: the stream lacks our subjects after an update.
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

func (c *Conn) ensureStream(ctx context.Context, want []string) error {
	stream, err := c.js.Stream(ctx, c.cfg.Stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, c.streamConfig(jetstream.StreamConfig{}, want))
		return err
	}
	if err != nil {
		return err
	}
	current := stream.CachedInfo().Config
	cfg := c.streamConfig(current, want)
	if sameStream(current, cfg) {
		return nil
	}
	if _, err := c.js.UpdateStream(ctx, cfg); err != nil {
		return err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	for _, s := range want {
		if !slices.Contains(info.Config.Subjects, s) {
			return errLostUpdate
		}
	}
	return nil
}

// streamConfig lays the configured limits and the wanted subjects over what is
// there. A pattern for everything below a model gives way to its queues.
func (c *Conn) streamConfig(cfg jetstream.StreamConfig, want []string) jetstream.StreamConfig {
	s := c.cfg.Stream
	union := map[string]bool{}
	for _, subject := range slices.Concat(cfg.Subjects, want) {
		model, coarse := c.subjects.coarseModel(subject)
		if !coarse {
			union[subject] = true
			continue
		}
		for _, exact := range c.subjects.requestsOf(model) {
			union[exact] = true
		}
	}
	if cfg.Name == "" { // what cannot be changed later
		cfg.Name = s.Name
		cfg.Storage = jetstream.FileStorage
		cfg.Retention = jetstream.WorkQueuePolicy
	}
	cfg.Description = "cellmq requests"
	cfg.Subjects = slices.Sorted(maps.Keys(union))
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
// exist. It never deletes or recreates one.
func (c *Conn) EnsureConsumers(ctx context.Context, models []string) error {
	if _, err := c.modelSubjects(models); err != nil {
		return fmt.Errorf("ensure consumers: %w", err)
	}
	for _, m := range models {
		for _, p := range priorities() {
			if err := c.ensureConsumer(ctx, m, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// priorities are all, most urgent first.
func priorities() []Priority { return []Priority{High, Std, Low} }

func consumerName(model string, p Priority) string { return model + "_" + string(p) }

// ensureConsumer also remembers the consumer's creation time. It asks for that
// separately: the first answer of a restarted server to a create or update bears
// the time when it recovered the consumer, every other one the stored time.
func (c *Conn) ensureConsumer(ctx context.Context, model string, p Priority) error {
	name := consumerName(model, p)
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, c.cfg.Stream.Name, jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: c.subjects.queue(model, p),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.cfg.AckWait,
		MaxDeliver:    -1, // the worker bounds the attempts: it can tell the client
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
	return nil
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
