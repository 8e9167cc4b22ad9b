package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// deadWait bounds how long the final of a request that nobody will run may take
// to be stored: longer than an election.
const deadWait = 15 * time.Second

// deadLetterWait bounds how long its letter may take to be written.
const deadLetterWait = 8 * time.Second

// reconcile ends the requests that the server delivers no more, until ctx ends.
// All workers share them.
func (w *Worker) reconcile(ctx context.Context) {
	err := w.conn.Advisories(ctx, func(ctx context.Context, a broker.Advisory) error {
		d, err := w.conn.Queued(ctx, a.Sequence)
		if errors.Is(err, broker.ErrNotStored) {
			return nil // it has ended
		}
		if err != nil {
			return err
		}
		return w.bury(ctx, d, int(a.Deliveries), a.Attempt)
	})
	if err != nil {
		w.log.LogAttrs(ctx, slog.LevelError, "advisories not read", slog.Any("error", err))
	}
}

// bury ends a request that nobody will run: with the answer that it had, or else
// with a dead letter and an error. Every step of it may be done twice. Try counts
// the tries to bury it, from 1: the letter may be lost at the last one of as many
// as the request had attempts.
func (w *Worker) bury(ctx context.Context, d *broker.Delivery, attempts, try int) error {
	stream := w.frames.Stream(d)
	defer stream.Abandon() // no harm after a terminal frame
	if err := w.answerDead(ctx, d, stream, attempts, try); err != nil {
		return err
	}
	if err := w.conn.Delete(ctx, d.Request.Sequence); err != nil {
		return err
	}
	w.metrics.reconciled.Inc()
	w.log.LogAttrs(ctx, slog.LevelWarn, "request ended that is delivered no more", slog.String("request_id", d.Request.ID),
		slog.String("model", d.Request.Model), slog.String("client", d.Request.Client), slog.Int("attempts", attempts))
	return nil
}

// answerDead tells the client of a request that nobody will run.
func (w *Worker) answerDead(ctx context.Context, d *broker.Delivery, stream *broker.TokenStream, attempts, try int) error {
	r := d.Request
	switch {
	case r.Reply == "":
		return nil
	case d.Err != nil:
		return stream.Fail(d.Err, r.Params.Meta)
	}
	switch final, err := w.conn.Final(ctx, r.Client, r.ID); {
	case err == nil && final.Request == r.Hash:
		return stream.Replay(final.Frame)
	case err == nil:
		return stream.Fail(idInUse(), r.Params.Meta)
	case !errors.Is(err, broker.ErrNotStored):
		return err
	}
	excused := 0
	if state, err := w.conn.State(ctx, r.Client, r.ID); err == nil && state.Request == r.Hash {
		excused = state.Excused
	}
	frame, err := stream.Terminal(&broker.Frame{Type: broker.FrameError, Error: undelivered(attempts, excused), Meta: r.Params.Meta})
	if err != nil {
		return err
	}
	l := broker.NewLetter(r)
	l.Code, l.Attempts, l.Excused, l.Terminal = broker.CodeAttemptsExhausted, attempts, excused, frame.Frame
	w.signLetter(l, nil)
	if err := w.writeDeadLetter(ctx, d, l, try); err != nil {
		return err
	}
	verdict, err := w.storeDead(ctx, d, frame.Frame)
	switch {
	case err != nil:
		return err
	case verdict.Mine:
		return stream.SendTerminal(frame)
	case verdict.Other.Request != r.Hash:
		return stream.Fail(idInUse(), r.Params.Meta)
	}
	return stream.Replay(verdict.Other.Frame)
}

// writeDeadLetter writes the letter of a request that nobody will run. At the last
// try one that cannot be written while there is a connection is lost, and the
// client is answered all the same.
func (w *Worker) writeDeadLetter(ctx context.Context, d *broker.Delivery, l *broker.Letter, try int) error {
	writing, cancel := context.WithTimeout(ctx, deadLetterWait)
	defer cancel()
	err := w.conn.WriteLetter(writing, l)
	switch {
	case err == nil:
		w.metrics.letters.WithLabelValues(string(l.Code)).Inc()
	case try < w.cfg.MaxAttempts, ctx.Err() != nil, !w.conn.Connected():
		return err
	default:
		w.lostLetter(d.Request, err)
	}
	return nil
}

// storeDead stores a final and waits for the verdict. One that cannot be stored
// while there is a connection counts as stored.
func (w *Worker) storeDead(ctx context.Context, d *broker.Delivery, frame []byte) (broker.Verdict, error) {
	r, verdicts := d.Request, make(chan broker.Verdict, 1)
	until := time.Now().Add(deadWait)
	if end, ok := ctx.Deadline(); ok && end.Before(until.Add(excuseWait)) {
		until = end.Add(-excuseWait)
	}
	err := w.finals.Store(&broker.StoredFinal{
		Client: r.Client, ID: r.ID, Worker: w.cfg.Name, Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt,
		Sequence: r.Sequence, Request: r.Hash, Encoding: r.Encoding, Frame: frame,
	}, until, func(v broker.Verdict) { verdicts <- v })
	if err != nil {
		return broker.Verdict{}, fmt.Errorf("end request %d: %w", r.Sequence, err)
	}
	select {
	case v := <-verdicts:
		switch {
		case v.Err == nil, errors.Is(v.Err, broker.ErrClosed), !w.conn.Connected():
			return v, v.Err
		}
		w.unstored(r, v.Err) // its client hears it all the same
		return broker.Verdict{Mine: true}, nil
	case <-ctx.Done():
		return broker.Verdict{}, ctx.Err()
	}
}
