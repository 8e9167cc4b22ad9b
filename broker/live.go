package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// How a worker is watched: a viewer asks again every LiveAsk, and a worker goes on
// for LiveLinger after the last time it was asked.
const (
	LiveAsk    = 2 * time.Second
	LiveLinger = 5 * time.Second
)

// The bounds of the time between two snapshots, and what holds when nobody asks for
// another.
const (
	LiveShortest = 100 * time.Millisecond
	LiveLongest  = 5 * time.Second
	LiveUsual    = time.Second
)

// LiveConfig describes what a worker shows while it is watched.
type LiveConfig struct {
	// Worker is the last token of the subject that the snapshots go to. Required.
	Worker string
	// Snapshot makes a snapshot. It is called by one goroutine. Required.
	Snapshot func(now time.Time) *Snapshot
	// Watched is called when somebody begins to watch, and when nobody does any
	// more; by the same goroutine. Nil: nobody is told.
	Watched func(watched bool)
}

// Live publishes snapshots to infer.live.<worker> as long as somebody publishes to
// infer.watch, until ctx ends; then, if somebody watches, a last one whose state is
// [LiveStopped]. However many watch and however often they ask, a worker
// publishes one snapshot in an interval, the shortest of those that were asked for.
// What a user is not permitted to see here does not make the worker unready.
func (c *Conn) Live(ctx context.Context, cfg LiveConfig) error {
	if !ValidClient(cfg.Worker) {
		return fmt.Errorf("live: worker name %q is not [A-Za-z0-9_-]{1,%d}", clip(cfg.Worker), maxClientName)
	}
	l := &live{conn: c, cfg: cfg, subject: c.subjects.live(cfg.Worker), asked: make(chan struct{}, 1)}
	sub, err := c.nc.Subscribe(c.subjects.watch(), func(m *nats.Msg) { l.ask(m.Data, time.Now()) })
	if err != nil {
		return fmt.Errorf("live: %w", err)
	}
	l.run(ctx)
	if err := sub.Unsubscribe(); err != nil && c.nc.IsConnected() {
		return fmt.Errorf("live: %w", err)
	}
	return nil
}

// live is a worker that may be watched.
type live struct {
	conn    *Conn
	cfg     LiveConfig
	subject string
	asked   chan struct{} // holds a signal when somebody began to watch

	mu       sync.Mutex
	until    time.Time     // when nobody watches any more
	interval time.Duration // the shortest asked for
	shortest time.Time     // how long that counts
}

// ask takes a question. Its cost does not depend on what it says.
func (l *live) ask(payload []byte, now time.Time) {
	interval := readInterval(payload)
	l.mu.Lock()
	fresh := !now.Before(l.until)
	l.until = now.Add(LiveLinger)
	if interval <= l.interval || !now.Before(l.shortest) {
		fresh = fresh || interval < l.interval
		l.interval, l.shortest = interval, l.until
	}
	l.mu.Unlock()
	if !fresh {
		return
	}
	select {
	case l.asked <- struct{}{}:
	default:
	}
}

// readInterval reads {"interval_ms": n}; what is nothing like it asks for the usual
// one.
func readInterval(payload []byte) time.Duration {
	const longest = 64
	var asked struct {
		Interval int64 `json:"interval_ms"`
	}
	if len(payload) == 0 || len(payload) > longest || json.Unmarshal(payload, &asked) != nil || asked.Interval <= 0 {
		return LiveUsual
	}
	ms := min(asked.Interval, LiveLongest.Milliseconds())
	return max(time.Duration(ms)*time.Millisecond, LiveShortest)
}

// due is the time between snapshots now, and whether anybody watches.
func (l *live) due(now time.Time) (interval time.Duration, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.interval, now.Before(l.until)
}

// run publishes while somebody watches. An unwatched worker has no timer running.
func (l *live) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var last time.Time
	watched := false
	for {
		select {
		case <-ctx.Done():
			if watched {
				l.publish(time.Now(), 0)
				l.tell(false)
			}
			return
		case <-l.asked:
		case <-timer.C:
		}
		now := time.Now()
		interval, more := l.due(now)
		if more != watched {
			watched = more
			l.tell(watched)
		}
		if !watched {
			continue
		}
		// A shorter interval begins at once, and nobody gets more than it allows.
		if wait := interval - now.Sub(last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		l.publish(now, interval)
		last = now
		timer.Reset(interval)
	}
}

func (l *live) tell(watched bool) {
	if l.cfg.Watched != nil {
		l.cfg.Watched(watched)
	}
}

// publish sends a snapshot; an interval of 0 makes it the last one.
func (l *live) publish(now time.Time, interval time.Duration) {
	if !l.conn.nc.IsConnected() || l.conn.denials.unseen(now) {
		return
	}
	s := l.cfg.Snapshot(now)
	s.V, s.Worker, s.Time, s.Interval = LiveVersion, l.cfg.Worker, now.UnixMilli(), interval.Milliseconds()
	if interval == 0 {
		s.State, s.Reason = LiveStopped, ""
	}
	b, err := encodeSnapshot(s, min(liveBytes, l.conn.cfg.MaxPayload))
	if err == nil {
		err = l.conn.send(l.subject, "", b)
	}
	if err != nil {
		l.conn.log.Debug("live snapshot not sent", slog.Any("error", err))
	}
}

// encodeSnapshot writes a snapshot into at most so many bytes: without the recent
// steps, or with fewer models, when it has to.
func encodeSnapshot(s *Snapshot, most int) ([]byte, error) {
	b, err := json.Marshal(s)
	for err == nil && len(b) > most {
		switch {
		case len(s.Recent) > 0:
			s.Recent = nil
		case len(s.Models) > 0:
			keep := len(s.Models) / 2
			s.MoreModels += len(s.Models) - keep
			s.Models = s.Models[:keep]
		default:
			return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrFrameTooLarge, len(b), most)
		}
		b, err = json.Marshal(s)
	}
	return b, err
}

// LivePayload is a message with a worker's snapshot, for [DecodeSnapshot].
type LivePayload struct {
	Worker  string // the subject's last token
	Payload []byte
}

// WatchLive watches all workers until ctx ends: it asks for a snapshot in every
// interval and passes what comes to take, which must not block for long. A
// connection that was lost is asked for again as it comes back. It returns nil when
// ctx ends.
func WatchLive(ctx context.Context, nc *nats.Conn, prefix string, interval time.Duration, take func(LivePayload)) error {
	s, err := newSubjects(prefix)
	if err != nil {
		return err
	}
	incoming := make(chan *nats.Msg, 1024) // a second of a large fleet
	sub, err := nc.ChanSubscribe(s.live("*"), incoming)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	question := fmt.Appendf(nil, `{"interval_ms":%d}`, interval.Milliseconds())
	again := time.NewTicker(LiveAsk)
	defer again.Stop()
	for {
		if err := nc.Publish(s.watch(), question); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		for asked := true; asked; {
			select {
			case <-ctx.Done():
				return nil
			case <-again.C:
				asked = false
			case m := <-incoming:
				take(LivePayload{Worker: m.Subject[len(s.live("")):], Payload: m.Data})
			}
		}
	}
}
