package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How advisories are read.
const (
	advisoryConsumer = "reconciler"
	advisoryPoll     = 30 * time.Second
	advisoryBeat     = 5 * time.Second // the heartbeat of a poll
	advisoryRetry    = 5 * time.Second // after a failure to handle one
	advisoryAckWait  = 30 * time.Second
	advisoryWork     = 25 * time.Second // for handling one; the rest is for the way
)

// Advisory is the server's word that it delivers a request no more, since it
// was delivered as often as its consumer allows.
type Advisory struct {
	// Model and Priority of the queue.
	Model    string
	Priority Priority
	// Sequence of the request, for [Conn.Queued] and [Conn.Delete].
	Sequence uint64
	// Deliveries that were made.
	Deliveries uint64
	// At is when the server gave up.
	At time.Time
	// Attempt is how often the advisory has been handed on, this time included.
	Attempt int
}

func (s *StreamConfig) advisorySubject(consumer string) string {
	return "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + s.Name + "." + consumer
}

// Advisories hands the advisories to handle, one after the other, until ctx
// ends, and then returns nil. All workers share them: each goes to one worker at
// a time, and again to one, after a while, when handle fails or its worker dies.
// The context of handle ends when the advisory may go to another worker. The
// stream and its consumer are made anew when they are missing.
func (c *Conn) Advisories(ctx context.Context, handle func(context.Context, Advisory) error) error {
	for failures := 0; ; {
		err := c.advisories(ctx, func(ctx context.Context, a Advisory) error {
			failures = 0
			return handle(ctx, a)
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		c.log.Warn("advisories not read", slog.Any("error", err), slog.Int("failures", failures+1))
		wait := min(maxBackoff, firstBackoff<<min(failures, 7))
		failures++
		if pause(ctx, wait) != nil {
			return nil //nolint:nilerr // the end was asked for
		}
	}
}

// advisories ensures the consumer and reads it until it fails.
func (c *Conn) advisories(ctx context.Context, handle func(context.Context, Advisory) error) error {
	if err := c.ensureStores(ctx); err != nil {
		return err
	}
	_, err := c.js.CreateOrUpdateConsumer(ctx, c.cfg.Stream.advisories(), jetstream.ConsumerConfig{
		Durable: advisoryConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: advisoryAckWait, MaxDeliver: -1,
	})
	if err != nil {
		return fmt.Errorf("ensure consumer %s: %w", advisoryConsumer, err)
	}
	for {
		m, err := c.nextAdvisory(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case m == nil: // the poll is over
			continue
		}
		if err := c.advise(ctx, m, handle); err != nil {
			return err
		}
	}
}

// nextAdvisory polls for one message; nil when there is none for a while. As in
// the [Intake] a message is told by where it is settled, not by its headers.
func (c *Conn) nextAdvisory(ctx context.Context) (*nats.Msg, error) {
	poll := fmt.Appendf(nil, `{"batch":1,"expires":%d,"idle_heartbeat":%d}`, advisoryPoll, advisoryBeat)
	next := apiSubject("CONSUMER.MSG.NEXT", c.cfg.Stream.advisories()) + "." + advisoryConsumer
	answers, end, err := c.ask(next, poll, 2*int(advisoryPoll/advisoryBeat))
	if err != nil {
		return nil, err
	}
	defer end()
	silence := time.NewTimer(2 * advisoryBeat)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-silence.C:
			return nil, errSilentServer
		case m := <-answers:
			if m.Reply != "" {
				return m, nil
			}
			switch status := m.Header.Get(headerStatus); status {
			case "100": // heartbeat
				silence.Reset(2 * advisoryBeat)
			case "404", "408":
				return nil, nil //nolint:nilnil // no message is no failure
			default:
				return nil, statusError(status, m)
			}
		}
	}
}

// advise hands one advisory on and settles it.
func (c *Conn) advise(ctx context.Context, m *nats.Msg, handle func(context.Context, Advisory) error) error {
	a, err := c.cfg.Stream.advisory(m.Data)
	if err != nil {
		c.log.Error("malformed advisory", slog.Any("error", err))
		return m.Term()
	}
	if meta, err := m.Metadata(); err == nil { // else it is no message of the consumer's, which cannot be
		a.Attempt = int(min(meta.NumDelivered, maxCount))
	}
	work, cancel := context.WithTimeout(ctx, advisoryWork)
	err = handle(work, a)
	cancel()
	if err == nil {
		return m.Ack()
	}
	if ctx.Err() == nil {
		c.log.Warn("advisory not handled", slog.String("model", a.Model), slog.Uint64("sequence", a.Sequence), slog.Any("error", err))
	}
	return m.NakWithDelay(advisoryRetry)
}

// advisory decodes the server's JSON.
func (s *StreamConfig) advisory(b []byte) (Advisory, error) {
	var raw struct {
		Stream     string    `json:"stream"`
		Consumer   string    `json:"consumer"`
		Sequence   uint64    `json:"stream_seq"`
		Deliveries uint64    `json:"deliveries"`
		Time       time.Time `json:"timestamp"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return Advisory{}, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	model, priority, _ := strings.Cut(raw.Consumer, "_") // no model has that character
	a := Advisory{Model: model, Priority: Priority(priority), Sequence: raw.Sequence, Deliveries: raw.Deliveries, At: raw.Time}
	if raw.Stream != s.Name || !ValidModel(model) || !a.Priority.valid() || a.Sequence == 0 {
		return Advisory{}, badRecord("stream %q, consumer %q, sequence %d", clip(raw.Stream), clip(raw.Consumer), raw.Sequence)
	}
	return a, nil
}
