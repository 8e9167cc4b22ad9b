package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cellmq/cellmq/broker"
)

const (
	// sweepPause is between the looks of a sweep, and sweepLooks is how many there
	// are: what is there at all of them is no traffic. Under a burst two may both
	// fall into the moments between settlements and removals.
	sweepPause = 5 * time.Second
	sweepLooks = 3
	// sweepWait bounds a sweep, and sweepMost what is cleared away in it.
	sweepWait = 30 * time.Second
	sweepMost = 1000
)

// priorities are those of the queues of a model.
func priorities() []broker.Priority {
	return []broker.Priority{broker.High, broker.Std, broker.Low}
}

// sweep looks for residue now and then, until ctx ends. Residue are requests that
// no consumer will deliver and of which no advisory has told: there should be
// none. It also looks how full the streams of records are.
func (w *Worker) sweep(ctx context.Context) {
	every := w.cfg.Sweep
	for every > 0 && wait(ctx, every/2+rand.N(every)) {
		if err := w.sweepOnce(ctx, sweepPause); err != nil && ctx.Err() == nil {
			w.log.LogAttrs(ctx, slog.LevelWarn, "residue not counted", slog.Any("error", err))
		}
		looking, cancel := context.WithTimeout(ctx, sweepWait)
		if err := w.checkFill(looking); err != nil && ctx.Err() == nil {
			w.log.LogAttrs(ctx, slog.LevelWarn, "stores not looked at", slog.Any("error", err))
		}
		cancel()
	}
}

// wait waits for d and reports whether it was over before ctx.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepOnce counts residue, raises the alarm, and ends what is residue of the
// models served here.
func (w *Worker) sweepOnce(ctx context.Context, pause time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, (sweepLooks-1)*pause+sweepWait)
	defer cancel()
	residue := uint64(math.MaxUint64)
	var stuck map[uint64]*broker.Delivery // at all looks so far
	for look := range sweepLooks {
		if look > 0 && !wait(ctx, pause) {
			return nil
		}
		n, err := w.residue(ctx)
		if err != nil {
			return err
		}
		if residue = min(residue, n); residue == 0 {
			w.metrics.residue.Set(0)
			return nil
		}
		now, err := w.stuckRequests(ctx)
		if err != nil {
			return err
		}
		if look > 0 {
			maps.DeleteFunc(now, func(seq uint64, _ *broker.Delivery) bool { return stuck[seq] == nil })
		}
		stuck = now
	}
	w.metrics.residue.Set(float64(residue))
	w.log.LogAttrs(ctx, slog.LevelError, "requests are stuck in the stream", slog.Uint64("requests", residue))
	for _, d := range stuck {
		if err := w.bury(ctx, d, int(d.Lease.Attempt)-1, w.cfg.MaxAttempts); err != nil {
			return err
		}
	}
	return nil
}

// residue counts the requests that no consumer knows.
func (w *Worker) residue(ctx context.Context) (uint64, error) {
	messages, known, err := w.conn.Residue(ctx)
	if err != nil {
		return 0, err
	}
	return messages - min(known, messages), nil
}

// stuckRequests are the requests of the models served here whose consumer is
// done with them, though they are in the stream still: those before the point up
// to which everything is settled and, while nothing is out, those that were
// delivered. Between its settlement and its removal any request is one, for a
// moment. One beside requests that are out cannot be told from them: it is found
// at a quieter time.
func (w *Worker) stuckRequests(ctx context.Context) (map[uint64]*broker.Delivery, error) {
	found := map[uint64]*broker.Delivery{}
	for _, name := range w.routes.Load().names() {
		for _, p := range priorities() {
			q, err := w.conn.Queue(ctx, name, p)
			if errors.Is(err, broker.ErrNotStored) {
				continue // it is about to be made, and delivers everything
			}
			if err != nil {
				return nil, err
			}
			done := q.Floor
			if q.AckPending == 0 {
				done = q.Delivered
			}
			for seq := uint64(1); len(found) < sweepMost; {
				d, err := w.conn.QueuedFrom(ctx, name, p, seq)
				if errors.Is(err, broker.ErrNotStored) || err == nil && d.Request.Sequence > done {
					break
				}
				if err != nil {
					return nil, err
				}
				found[d.Request.Sequence] = d
				seq = d.Request.Sequence + 1
			}
		}
	}
	return found, nil
}
