package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// stores knows since when the server stores nothing. It is safe for concurrent
// use.
type stores struct {
	patience time.Duration

	mu   sync.Mutex
	at   time.Time // of the last success
	last error     // why there was none since; nil: nothing failed
	over bool      // the patience is over
}

func newStores(patience time.Duration, now time.Time) *stores {
	return &stores{patience: patience, at: now}
}

// probed takes how a probe ended, and reports whether the worker became ready or
// unready by it.
func (s *stores) probed(err error, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = err
	if err == nil {
		s.at = now
	}
	over := err != nil && now.Sub(s.at) >= s.patience
	changed = over != s.over
	s.over = over
	return changed
}

// failing says why the worker must not be given requests: for longer than the
// patience the server has stored nothing. An election is shorter.
func (s *stores) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		return nil
	}
	return fmt.Errorf("the server stores nothing: %w", s.last)
}

// probeStores has the server store something, twice per ack wait, until ctx ends.
// Requests that run go on: their finals wait, or are sent unstored.
func (w *Worker) probeStores(ctx context.Context) {
	every := w.cfg.AckWait / 2
	for wait(ctx, every) {
		attempt, cancel := context.WithTimeout(ctx, every)
		err := w.conn.Probe(attempt, w.cfg.Name)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if !w.stores.probed(err, time.Now()) {
			continue
		}
		if err != nil {
			w.metrics.storeless.Set(1)
			w.log.LogAttrs(ctx, slog.LevelError, "the server stores nothing", slog.Any("error", err))
		} else {
			w.metrics.storeless.Set(0)
			w.log.LogAttrs(ctx, slog.LevelInfo, "the server stores again")
		}
	}
}

// checkFill raises the alarm when records are dropped before their time.
func (w *Worker) checkFill(ctx context.Context) error {
	fill, err := w.conn.Fill(ctx)
	if err != nil {
		return err
	}
	for i := range fill {
		w.fillOf(ctx, &fill[i])
	}
	return nil
}

func (w *Worker) fillOf(ctx context.Context, f *broker.StoreFill) {
	short := f.Short()
	w.metrics.short.WithLabelValues(f.Stream).Set(short.Seconds())
	if short > 0 {
		w.log.LogAttrs(ctx, slog.LevelError, "records are dropped before their time", slog.String("stream", f.Stream),
			slog.Duration("kept", f.Oldest), slog.Duration("promised", f.Promised), slog.Int64("records", f.Messages),
			slog.Int64("bytes", f.Bytes), slog.Int64("max_bytes", f.MaxBytes))
	}
}
