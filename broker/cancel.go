package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// CancelState says what a cancel request found.
type CancelState string

// The states a worker or client reports. They are the answer to the moment at
// which the cancellation came; asking again is harmless.
const (
	// CancelUnknown: not ours. A worker that returns it stays silent; a client
	// gets it when no worker answered.
	CancelUnknown CancelState = "unknown"
	// CancelQueued: it was waiting in the queue and has been taken out of it.
	CancelQueued CancelState = "queued"
	// CancelAdmitted: a worker had it and had not begun; it does not begin.
	CancelAdmitted CancelState = "admitted"
	// CancelRunning: it was running and stops within a step.
	CancelRunning CancelState = "running"
	// CancelFinished: it had ended before.
	CancelFinished CancelState = "finished"
)

// cancelMessage is the payload of a cancel request and of its answer.
type cancelMessage struct {
	ID       string      `json:"id"`
	Sequence uint64      `json:"seq,omitempty"`
	State    CancelState `json:"state,omitempty"`
	asked    string      // ID as the client gave it
}

// readQuestion reads the small map that a client sends to workers, in JSON or
// MessagePack: id, and seq or index. A frame has the same keys.
func readQuestion(payload []byte) (Frame, error) {
	const longest = 256
	var f Frame
	var err error
	switch {
	case len(payload) > longest:
		return Frame{}, fmt.Errorf("payload has %d bytes, limit %d", len(payload), longest)
	case len(payload) > 0 && payload[0] == '{':
		err = decodeJSONFrame(&f, payload)
	default:
		err = decodeMsgPackFrame(&f, payload)
	}
	if err != nil {
		return Frame{}, err
	}
	if !ValidID(f.ID) {
		return Frame{}, badID(f.ID)
	}
	return f, nil
}

// readCancel reads {"id": ..., "seq": ...}. An id that workers made has the
// sequence in it.
func readCancel(payload []byte) (id string, sequence uint64, err error) {
	f, err := readQuestion(payload)
	if err != nil {
		return "", 0, err
	}
	if f.Seq == 0 {
		f.Seq = madeSequence(f.ID)
	}
	return f.ID, f.Seq, nil
}

// cancelFor checks a cancel request.
func (s *Service) cancelFor(subject string, payload []byte) (m cancelMessage, client string, ok bool) {
	client = subject[len(s.conn.subjects.cancel("")):]
	id, sequence, err := readCancel(payload)
	if err != nil || !ValidClient(client) {
		s.conn.log.Debug("malformed cancel request", slog.String("client", clip(client)))
		return cancelMessage{}, "", false
	}
	return cancelMessage{ID: s.decoder.fullID(id), Sequence: sequence, asked: id}, client, true
}

// serveCancel answers only for a request that is the worker's own.
func (s *Service) serveCancel(subject, reply string, payload []byte) {
	if m, client, ok := s.cancelFor(subject, payload); ok {
		s.answerCancel(client, reply, m.asked, s.cfg.Cancel(client, m.ID, m.Sequence))
	}
}

// cancelQueued answers for a request that no worker has: one that has finished
// or that waits, when it is the client's turn. One worker of the queue group does.
func (s *Service) cancelQueued(subject, reply string, payload []byte) {
	if m, client, ok := s.cancelFor(subject, payload); ok && s.cfg.Finals != nil {
		s.cancels.ask(client, func() { s.cancelWaiting(client, reply, m) })
	}
}

// cancelWaiting takes a request out of the queue, or tells how it has finished.
func (s *Service) cancelWaiting(client, reply string, m cancelMessage) {
	ctx, cancel := s.lookup()
	defer cancel()
	state, err := s.takeOut(ctx, client, m)
	if err != nil {
		s.conn.log.Warn("queued request not cancelled", slog.String("request_id", m.ID), slog.Any("error", err))
	}
	s.answerCancel(client, reply, m.asked, state)
}

// answerCancel sends the answer, unless the reply subject is one that the client
// could not publish to itself: on infer.cancel of another client the answer
// would be a request.
func (s *Service) answerCancel(client, reply, id string, state CancelState) {
	subjects := s.conn.subjects
	allowed := subjects.owns(client, reply) || subjects.replyAllowed(reply, s.conn.authorized())
	if state == CancelUnknown || state == "" || !allowed {
		return
	}
	b, err := json.Marshal(cancelMessage{ID: id, State: state})
	if err == nil {
		err = s.conn.send(reply, "", b)
	}
	if err != nil {
		s.conn.log.Warn("cancel answer not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}

// takeOut ends a request that was never delivered. Its final is stored first,
// which decides: a worker that gets the message all the same finds the final, at
// the latest when it stores its own.
func (s *Service) takeOut(ctx context.Context, client string, m cancelMessage) (CancelState, error) {
	switch _, err := s.conn.Final(ctx, client, m.ID); {
	case err == nil:
		return CancelFinished, nil
	case !errors.Is(err, ErrNotStored):
		return CancelUnknown, err
	case m.Sequence == 0:
		return CancelUnknown, nil
	}
	d, err := s.conn.Queued(ctx, m.Sequence)
	if errors.Is(err, ErrNotStored) {
		return CancelUnknown, nil
	}
	if err != nil {
		return CancelUnknown, err
	}
	r := d.Request
	if !d.isOf(client, m.ID) {
		return CancelUnknown, nil
	}
	q, err := s.conn.Queue(ctx, r.Model, r.Priority)
	if err != nil && !errors.Is(err, ErrNotStored) {
		return CancelUnknown, err
	}
	if m.Sequence <= q.Delivered {
		return CancelUnknown, nil // a worker has it, or will
	}
	frame, err := AppendFrame(nil, r.Encoding, cancelledFinal(d, time.Now()))
	if err != nil {
		return CancelUnknown, err
	}
	verdict, err := s.storeFinal(ctx, d, frame)
	switch {
	case err != nil:
		return CancelUnknown, err
	case !verdict.Mine:
		return CancelFinished, nil
	}
	err = s.conn.send(r.Reply, "", frame)
	return CancelQueued, errors.Join(err, s.conn.Delete(ctx, m.Sequence))
}

// isOf reports whether d is a good request of that client and id. A malformed
// one is refused when it is taken.
func (d *Delivery) isOf(client, id string) bool {
	return d.Err == nil && d.Request.Client == client && d.Request.ID == id
}

// cancelledFinal is the final frame of a request that never ran.
func cancelledFinal(d *Delivery, now time.Time) *Frame {
	r := d.Request
	waited := max(now.Sub(r.Published), 0)
	return &Frame{
		Type: FrameFinal, ID: r.ID, Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt, Model: r.Model, Meta: r.Params.Meta,
		Final: &Final{FinishReason: FinishCancelled, LogProb: math.NaN(), Timing: Timing{Broker: waited, Total: waited}},
	}
}

// storeFinal stores a final and waits for the verdict.
func (s *Service) storeFinal(ctx context.Context, d *Delivery, frame []byte) (Verdict, error) {
	verdicts := make(chan Verdict, 1)
	until, _ := ctx.Deadline()
	err := s.cfg.Finals.Store(&StoredFinal{
		Client: d.Request.Client, ID: d.Request.ID, Worker: s.cfg.Worker, Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt,
		Sequence: d.Request.Sequence, Request: d.Request.Hash, Encoding: d.Request.Encoding, Frame: frame,
	}, until, func(v Verdict) { verdicts <- v })
	if err != nil {
		return Verdict{}, err
	}
	select {
	case v := <-verdicts:
		return v, v.Err
	case <-ctx.Done():
		return Verdict{}, ctx.Err()
	}
}
