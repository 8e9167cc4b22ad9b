package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// recallWait bounds the lookup of what is known of a request that comes again.
const recallWait = 2 * time.Second

// recall looks up what earlier attempts left of a request: its answer, which is
// repeated, or how many of them are nobody's failure. What cannot be looked up
// in time is not held against the request: it runs, and another answer is found
// when its own is stored.
func (w *Worker) recall(ctx context.Context, r *run) {
	final, err := w.conn.Final(ctx, r.req.Client, r.req.ID)
	if err == nil {
		r.stored = final
		w.outbox.end(r, nil)
		return
	}
	if !errors.Is(err, broker.ErrNotStored) {
		w.forgotten(r, err)
		w.begin(r)
		return
	}
	switch state, err := w.conn.State(ctx, r.req.Client, r.req.ID); {
	case err == nil && state.Request == r.req.Hash:
		r.excused, r.past, r.recalled = state.Excused, state, true
	case err == nil || errors.Is(err, broker.ErrNotStored):
		r.recalled = true
	default:
		w.forgotten(r, err)
	}
	if r.recalled && r.failures() >= w.cfg.MaxAttempts {
		w.blame(r)
		w.refuse(r, exhausted(r.failures()))
		return
	}
	w.begin(r)
}

// blame notes the version that a request has been given to, for what counts how
// versions fare.
func (w *Worker) blame(r *run) {
	if rt := w.routes.Load().byModel[r.req.Model]; rt != nil {
		r.wants, _ = rt.key(rt.wanted(r.req))
	}
}

func (w *Worker) forgotten(r *run, err error) {
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "earlier attempts not looked up",
		slog.String("request_id", r.req.ID), slog.Any("error", err))
}

// failures is how many attempts before this one ended without an answer and
// without an excuse.
func (r *run) failures() int { return r.attempt - 1 - r.excused }

// exhausted answers a request that failed as often as it may.
func exhausted(failures int) *broker.Error {
	return broker.NewError(broker.CodeAttemptsExhausted, fmt.Sprintf("%d workers began the request and none finished it", failures))
}

// spareDeliveries are for hand-backs and lost connections, which are nobody's
// failure: nothing that works hands a request back so often while it is kept.
const spareDeliveries = 1024

// deliveries is how often the server delivers a request that may fail so often:
// well above, so that a worker gives it up, who can tell its client.
func deliveries(attempts int) int { return 8*attempts + spareDeliveries }

// undelivered answers a request that the server delivers no more, after so many
// attempts and excused ones of these.
func undelivered(attempts, excused int) *broker.Error {
	if excused < attempts-1 {
		return exhausted(attempts - excused)
	}
	return broker.NewError(broker.CodeAttemptsExhausted,
		fmt.Sprintf("the request was handed back, or cut off, in %d of %d deliveries, and the server allows no more; send it again with another id", min(excused, attempts), attempts))
}
