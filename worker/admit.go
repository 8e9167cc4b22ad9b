package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// handBackDelay is how long the broker holds back a request that was handed
// back, so that it does not return to the worker that is leaving.
const handBackDelay = 100 * time.Millisecond

// noSlotDelay is how long a request rests that found no slot.
const noSlotDelay = 250 * time.Millisecond

// noRoomDelay is how long a request rests whose version is not in memory while
// enough others wait for room.
const noRoomDelay = 2 * time.Second

// admit takes a delivery: it becomes a run that the runtime works on, or one
// that the publisher only has to answer. It does not block; the delivery's
// credit is given back when the publisher has closed the run.
func (w *Worker) admit(d *broker.Delivery) {
	now := time.Now()
	r := newRun(d, w.frames.Stream(d), now)
	w.measure(r)
	w.metrics.received.Inc()
	if r.attempt > 1 {
		w.metrics.redeliveries.Inc()
	}
	wanted := w.table.add(r, now)
	switch {
	case (w.draining.Load() || w.stuck.Load()) && (wanted || d.Err != nil):
		w.outbox.end(r, errHandBack)
	case d.Err != nil:
		w.refuse(r, d.Err)
	case !wanted:
		w.outbox.end(r, errCancelled)
	default:
		if deadline := r.req.Deadline; !deadline.IsZero() {
			r.expiry = time.AfterFunc(time.Until(deadline), func() { w.stop(r, errDeadline) })
		}
		if r.req.Durable && r.attempt > 1 {
			w.tasks.begin(recallWait, func(ctx context.Context) { w.recall(ctx, r) })
			return
		}
		w.begin(r)
	}
}

// measure counts a request among those of its model, if that is served here, however
// it ends.
func (w *Worker) measure(r *run) {
	if name := r.req.Model; w.routes.Load().byModel[name] != nil {
		r.model, r.meter = name, w.metrics.models.of(name)
	}
}

// begin runs a request, unless somebody has stopped it meanwhile.
func (w *Worker) begin(r *run) {
	if cause := w.outbox.stopAsked(r); cause != nil {
		w.outbox.end(r, cause)
		return
	}
	rt := w.routes.Load().byModel[r.req.Model]
	if rt == nil {
		w.refuse(r, &broker.Error{Code: broker.CodeUnknownModel, Message: fmt.Sprintf("model %q is not served here", r.req.Model)})
		return
	}
	w.measure(r)
	c, refusal := w.choose(rt, r, time.Now())
	switch {
	case refusal != nil:
		w.refuse(r, refusal)
	case c.unknown:
		w.outbox.end(r, errHandBack) // to a worker that knows, or until this one does
	case c.served != nil:
		w.runWith(r, c)
	default:
		w.runLater(r, c)
	}
}

// runLater runs a request when the version that was chosen for it is in memory.
// Half of a path's slots may wait so, and the others are for models that are there:
// the wait for room can last as long as what is pinned, or under way, has it.
func (w *Worker) runLater(r *run, c choice) {
	waiting, slots := &w.waitingDurable, w.cfg.Slots
	if !r.req.Durable {
		waiting, slots = &w.waitingRealtime, w.cfg.realtimeSlots()
	}
	if int(waiting.Add(1)) > max(slots/2, 1) {
		waiting.Add(-1)
		w.outbox.end(r, errNoRoom)
		return
	}
	w.tasks.begin(awaitVersion, func(ctx context.Context) {
		s, err := w.await(ctx, r, c.key)
		waiting.Add(-1)
		c.served = s
		switch cause := w.outbox.stopAsked(r); {
		case err == nil:
			w.runWith(r, c)
		case cause != nil:
			w.outbox.end(r, cause)
		case errors.Is(err, versions.ErrStopped):
			w.outbox.end(r, errHandBack)
		default:
			w.log.LogAttrs(ctx, slog.LevelWarn, "version not there for a request",
				slog.String("request_id", r.req.ID), slog.String("model", r.req.Model), slog.Any("error", err))
			w.refuse(r, c.absent(r.req.Model, err))
		}
	})
}

// awaitVersion bounds how long a request waits for its version to be loaded.
const awaitVersion = 5 * time.Minute

// notThere answers a request whose version cannot be loaded here, now.
func notThere(model string) *broker.Error {
	return &broker.Error{
		Code: broker.CodeUnknownVersion, Message: fmt.Sprintf("the version of model %q that serves the request cannot be loaded", model),
		Retryable: true, RetryAfter: time.Second,
	}
}

// runWith runs a request on the version that was chosen for it, which it refers to
// from now on.
func (w *Worker) runWith(r *run, c choice) {
	r.served = c.served
	if cause := w.outbox.stopAsked(r); cause != nil {
		w.outbox.end(r, cause)
		return
	}
	if refusal := w.prepare(r, time.Now()); refusal != nil {
		w.refuse(r, refusal)
		return
	}
	if c.pin && !w.pin(r) {
		w.outbox.end(r, errHandBack)
		return
	}
	w.submit(r)
}

// prepare checks what can be wrong with a well-formed request of a model served
// here, and unfolds it.
func (w *Worker) prepare(r *run, now time.Time) *broker.Error {
	req := r.req
	if !req.Deadline.IsZero() && !now.Before(req.Deadline) {
		return tooLate()
	}
	if req.Version != "" && req.Version != r.served.shown.Version {
		return gone(req.Model) // loaded for a later attempt, with another weight type than the first one's
	}
	unfolded, from, err := w.restore(r.served.model, req, r.past)
	if err != nil {
		var input *models.InputError
		if errors.As(err, &input) {
			return &broker.Error{Code: broker.Code(input.Code), Message: input.Error()}
		}
		return &broker.Error{Code: broker.CodeInternal, Message: "the input could not be prepared"}
	}
	r.prepare(unfolded)
	r.from = from
	return nil
}

// unfold has the model tokenize and unfold a request.
func (w *Worker) unfold(m *models.Model, req *broker.Request) (*models.Request, error) {
	unfolded, _, err := w.restore(m, req, nil)
	return unfolded, err
}

// restore has the model tokenize and unfold a request, and bring it to the
// checkpoint of an earlier attempt if there is one of that model. Tokenizers
// read hostile input, so this is the one place where a panic is contained: it
// costs the request, not the worker.
func (w *Worker) restore(m *models.Model, req *broker.Request, past *broker.State) (unfolded *models.Request, from *cellrt.Checkpoint, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			w.log.LogAttrs(context.Background(), slog.LevelError, "unfolding panicked",
				slog.String("request_id", req.ID), slog.String("model", m.Name()), slog.String("stack", string(debug.Stack())))
		}
	}()
	in, params := modelInput(req.Input), models.Params{
		RequestID: req.ID,
		MaxTokens: req.Params.MaxTokens, Temperature: req.Params.Temperature,
		TopK: req.Params.TopK, TopP: req.Params.TopP, Seed: req.Params.Seed, Stop: req.Params.Stop,
		BeamWidth: req.Params.BeamWidth, NBest: req.Params.NBest, LogProbs: req.Params.LogProbs,
		Ramps: req.Params.Ramps,
	}
	if past != nil && len(past.Checkpoint) > 0 && past.Digest == m.Digest() {
		unfolded, from, err = m.Restore(in, params, past.Checkpoint)
		if !errors.Is(err, models.ErrCheckpoint) {
			return unfolded, from, err
		}
		w.log.LogAttrs(context.Background(), slog.LevelWarn, "checkpoint not used", slog.String("request_id", req.ID), slog.Any("error", err))
	}
	unfolded, err = m.Unfold(in, params)
	return unfolded, nil, err
}

func modelInput(in broker.Input) models.Input {
	if !in.IsIDs {
		return models.Input{Text: in.Text}
	}
	if in.IDs == nil {
		return models.Input{IDs: []int32{}}
	}
	return models.Input{IDs: in.IDs}
}

// submit gives the run to the runtime, on its client's share of the compute. The
// publisher learns of it first, so that accepted precedes every token.
func (w *Worker) submit(r *run) {
	options := cellrt.SequenceOptions{Owner: r, Tenant: r.req.Client, From: r.from}
	if r.req.Durable {
		options.CheckpointEvery, options.CheckpointBytes = w.cfg.CheckpointSteps, w.cfg.CheckpointBytes
	}
	if r.from != nil {
		w.metrics.restored.Inc()
	}
	r.seq = cellrt.NewSequence(r.served.loaded, r.unfolded.Graph, options)
	r.admitted = time.Now()
	w.outbox.join(r)
	if err := w.runtime.Submit(r.seq); err != nil {
		if errors.Is(err, cellrt.ErrCheckpoint) {
			r.past = nil // the next attempt does without
		}
		w.outbox.end(r, err)
		return
	}
	if cause := w.outbox.markSubmitted(r); cause != nil {
		w.runtime.Cancel(r.seq, cause)
	}
}

// stop ends a run within a step; cause decides what its client is told. The
// first cause counts. A run that has ended by itself stays as it ended.
func (w *Worker) stop(r *run, cause error) {
	switch {
	case !w.outbox.askStop(r, cause):
	case errors.Is(cause, errHandBack):
		w.runtime.Suspend(r.seq, cause)
	default:
		w.runtime.Cancel(r.seq, cause)
	}
}

// refuse answers a request with an error, without running it.
func (w *Worker) refuse(r *run, refusal *broker.Error) {
	r.refusal = refusal
	w.outbox.end(r, refusal)
}

// cancel is the endpoint of cancel requests. The state is that of the run that
// has most of its life before it.
func (w *Worker) cancel(client, id string, _ uint64) broker.CancelState {
	runs, state := w.table.find(requestKey{client: client, id: id}, time.Now())
	for i, r := range runs {
		now, ends := w.outbox.askCancel(r)
		switch {
		case i == 0, now == broker.CancelAdmitted, state == broker.CancelFinished:
			state = now
		}
		if ends {
			w.runtime.Cancel(r.seq, errCancelled)
		}
	}
	if state == broker.CancelUnknown {
		w.table.await(requestKey{client: client, id: id}, time.Now())
	}
	return state
}

// gone is told by the broker that nobody listens to a stream.
func (w *Worker) gone(s *broker.TokenStream) {
	if r := w.table.ofStream(s); r != nil && r.req.OnGone != broker.OnGoneFinish {
		w.stop(r, errClientGone)
	}
}
