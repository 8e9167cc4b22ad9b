package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// leaseTurns is how often a lease is extended while the server's record of it
// lasts: several extensions may be lost, as in the election of a leader.
const leaseTurns = 5

// keepLeases extends the leases of running requests five times per ack wait, as
// long as the step loop moves. A worker whose loop hangs lets its leases run
// out, and another one takes over.
func (w *Worker) keepLeases(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.AckWait / leaseTurns)
	defer ticker.Stop()
	seen := progress{patience: w.cfg.AckWait / 3, at: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			stats := w.runtime.Stats()
			moved := seen.moved(stats.Steps, stats.Running, now)
			w.setStuck(!moved)
			if moved {
				w.extendLeases(now)
			}
		}
	}
}

// setStuck takes the slots away while the loop hangs, so that it gets no
// requests that it would sit on for an ack wait each.
func (w *Worker) setStuck(stuck bool) {
	if w.stuck.Swap(stuck) == stuck {
		return
	}
	sign := 1
	if stuck {
		sign = -1
		w.log.LogAttrs(context.Background(), slog.LevelError, "step loop makes no progress, leases run out",
			slog.Int("running", w.table.count()))
	} else {
		w.log.LogAttrs(context.Background(), slog.LevelInfo, "step loop moves again")
	}
	w.durable.Add(sign * w.cfg.Slots)
	w.realtime.Add(sign * w.cfg.realtimeSlots())
}

// extendLeases extends the lease of every run. One that is lost already stops.
func (w *Worker) extendLeases(now time.Time) {
	for _, r := range w.table.all() {
		if r.delivery.Lease.Core() {
			continue
		}
		// Any other failure is the connection's: the next turn tries again while
		// the lease lasts. A settled one belongs to a run that is being closed.
		switch err := r.delivery.Lease.Extend(now); {
		case err == nil:
			r.cutOff.Store(false)
		case errors.Is(err, broker.ErrLeaseLost):
			w.stop(r, errLeaseLost)
		case !errors.Is(err, broker.ErrSettled):
			r.cutOff.Store(true)
		}
	}
}

// progress tells a step loop that works from one that hangs.
type progress struct {
	patience time.Duration // without a step while there is work
	steps    uint64
	at       time.Time // of the last sign of life
}

// moved reports whether the loop ran a step lately or had nothing to run: a
// live sequence always has a node waiting or under way.
func (p *progress) moved(steps uint64, running int, now time.Time) bool {
	if steps != p.steps || running == 0 {
		p.at = now
	}
	p.steps = steps
	return now.Sub(p.at) < p.patience
}
