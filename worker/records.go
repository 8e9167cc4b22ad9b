package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cellmq/cellmq/broker"
)

const (
	// excuseWait bounds how long a hand-back waits for its record.
	excuseWait = 2 * time.Second
	// apologyWait bounds how long the record of a lost lease waits for a
	// connection.
	apologyWait = 30 * time.Second
)

// archive writes the records of requests that end. It implements [records].
type archive struct {
	worker *Worker
	finals *broker.Finals
}

var _ records = (*archive)(nil)

// store implements [records].
func (a *archive) store(r *run, until time.Time) error {
	w, lease := a.worker, r.delivery.Lease
	began := time.Now()
	if end := lease.Deadline(); end.Before(until) {
		until = end
	}
	return a.finals.Store(&broker.StoredFinal{
		Client: r.req.Client, ID: r.req.ID, Worker: w.cfg.Name, Epoch: lease.Epoch, Attempt: lease.Attempt,
		Sequence: r.req.Sequence, Request: r.req.Hash, Encoding: r.req.Encoding, Frame: r.end.frame.Frame,
	}, until, func(v broker.Verdict) {
		w.metrics.storeWait.Observe(time.Since(began).Seconds())
		w.outbox.tell(r, word{verdict: v})
	})
}

// letter implements [records].
func (a *archive) letter(r *run) {
	w := a.worker
	l := broker.NewLetter(r.req)
	l.Code, l.Attempts, l.Excused = r.end.code, r.attempt, r.excused
	l.Terminal, l.Tokens = r.end.frame.Frame, r.ids
	if l.Code == broker.CodeAttemptsExhausted {
		l.Attempts-- // this one did not begin
	}
	w.signLetter(l, r.served)
	limit := time.Until(r.delivery.Lease.Deadline())
	if end := r.end.letterBy; !end.IsZero() {
		limit = min(limit, time.Until(end))
	}
	w.tasks.begin(max(limit, closeRetry), func(ctx context.Context) {
		err := w.conn.WriteLetter(ctx, l)
		if err == nil {
			w.metrics.letters.WithLabelValues(string(l.Code)).Inc()
		}
		w.outbox.tell(r, word{err: err})
	})
}

// unwritten implements [records].
func (a *archive) unwritten(r *run, err error) {
	a.worker.log.LogAttrs(context.Background(), slog.LevelWarn, "dead letter not written, the request comes again",
		slog.String("request_id", r.req.ID), slog.String("model", r.req.Model), slog.Int("attempt", r.attempt), slog.Any("error", err))
}

// lost implements [records].
func (a *archive) lost(r *run, err error) { a.worker.lostLetter(r.req, err) }

// lostLetter reports a dead letter that is given up. The request's message is
// about to go; what is said here is all that is left.
func (w *Worker) lostLetter(r *broker.Request, err error) {
	w.metrics.lostLetters.Inc()
	w.log.LogAttrs(context.Background(), slog.LevelError, "dead letter lost", slog.String("request_id", r.ID), slog.String("model", r.Model),
		slog.String("subject", r.Raw.Subject), slog.Uint64("sequence", r.Sequence), slog.Any("error", err))
}

// signLetter says in a letter which worker gave up, and with which model: that of
// the run, or without one, as of a run that was refused before, the one that is
// served here.
func (w *Worker) signLetter(l *broker.Letter, s *served) {
	l.Worker = w.cfg.Name
	if s != nil {
		l.Digest, l.Version = s.shown.Digest, s.shown.Version
	} else if rt := w.routes.Load().byModel[l.Model]; rt != nil {
		l.Digest, l.Version = rt.shown.Digest, rt.shown.Version
	}
}

// excuse implements [records].
func (a *archive) excuse(r *run) {
	w := a.worker
	if r.delivery.Err != nil { // it is refused by whom it reaches, whatever the attempt
		w.outbox.tell(r, word{})
		return
	}
	w.tasks.begin(excuseWait, func(ctx context.Context) {
		w.outbox.tell(r, word{err: a.write(ctx, r, r.attempt > 1 && !r.recalled)})
	})
}

// apologize implements [records].
func (a *archive) apologize(r *run) {
	a.worker.tasks.begin(apologyWait, func(ctx context.Context) { _ = a.write(ctx, r, true) })
}

// checkpoint implements [records].
func (a *archive) checkpoint(r *run) {
	if !r.recalled && r.attempt > 1 {
		return // what it would write over is not known
	}
	s := a.stateOf(r)
	if err := a.worker.conn.SaveStateAsync(s, 0); err != nil {
		a.worker.log.LogAttrs(context.Background(), slog.LevelDebug, "checkpoint not stored",
			slog.String("request_id", r.req.ID), slog.Any("error", err))
		return // the next one is further
	}
	a.worker.metrics.checkpoints.Inc()
}

// forget implements [records]: an empty record takes the place of the checkpoint
// and is gone in a second. It is sent behind all checkpoints of this worker, on the
// same connection.
func (a *archive) forget(r *run) {
	s := &broker.State{Client: r.req.Client, ID: r.req.ID, Request: r.req.Hash}
	if err := a.worker.conn.SaveStateAsync(s, time.Second); err != nil {
		a.worker.log.LogAttrs(context.Background(), slog.LevelDebug, "checkpoint not dropped",
			slog.String("request_id", r.req.ID), slog.Any("error", err)) // it expires
	}
}

// stateOf is what is known of a run, on which version it has begun and where it can
// go on.
func (a *archive) stateOf(r *run) *broker.State {
	s := &broker.State{Client: r.req.Client, ID: r.req.ID, Request: r.req.Hash, Excused: r.excused}
	if r.past != nil {
		s.Checkpoint, s.Digest = r.past.Checkpoint, r.past.Digest
	}
	if r.seq != nil && s.Digest != r.served.key.Digest {
		s.Checkpoint, s.Digest = nil, r.served.key.Digest
	}
	if r.saved != nil {
		s.Checkpoint = r.unfolded.AppendCheckpoint(nil, r.saved)
	}
	return s
}

// write stores that one more attempt is excused. Read says that others may have
// written to the record, for an earlier attempt or a later one.
func (a *archive) write(ctx context.Context, r *run, read bool) error {
	w := a.worker
	s := a.stateOf(r)
	if read {
		if stored, err := a.state(ctx, r); err == nil && stored.Request == r.req.Hash {
			s.Excused = stored.Excused
			if r.saved == nil && stored.Digest != "" { // what it began on stays
				s.Checkpoint, s.Digest = stored.Checkpoint, stored.Digest
			}
		}
	}
	s.Excused++
	err := w.conn.SaveState(ctx, s, 0)
	if err != nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "attempt not excused", slog.String("request_id", r.req.ID), slog.Any("error", err))
		return err
	}
	w.metrics.excused.Inc()
	return nil
}

// state reads what is stored of a request, through a disconnection, until ctx ends.
func (a *archive) state(ctx context.Context, r *run) (*broker.State, error) {
	ticker := time.NewTicker(closeRetry)
	defer ticker.Stop()
	for {
		s, err := a.worker.conn.State(ctx, r.req.Client, r.req.ID)
		if err == nil || errors.Is(err, broker.ErrNotStored) || errors.Is(err, broker.ErrBadRecord) || errors.Is(err, broker.ErrClosed) {
			return s, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// fenced implements [records].
func (a *archive) fenced() { a.worker.metrics.fenced.Inc() }

// unstored implements [records].
func (a *archive) unstored(r *run, err error) { a.worker.unstored(r.req, err) }

func (w *Worker) unstored(r *broker.Request, err error) {
	w.metrics.unstored.Inc()
	w.log.LogAttrs(context.Background(), slog.LevelError, "final not stored", slog.String("request_id", r.ID), slog.Any("error", err))
}
