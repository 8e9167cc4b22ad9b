package worker

import (
	"context"
	"errors"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// closeRetry is how long the publisher waits before it tries again to send a
// terminal frame that the connection refused.
const closeRetry = 100 * time.Millisecond

// publisher turns what runs produce into frames. One goroutine owns it: it
// alone emits frames, settles leases and closes runs, which is why a request
// has exactly one terminal frame and nothing after it.
type publisher struct {
	outbox   *outbox
	interval time.Duration // between token frames of a run
	beat     time.Duration // longest silence
	patience time.Duration // how long a refused terminal frame is retried
	stop     func(r *run, cause error)
	closed   func(r *run, outcome string, now time.Time)

	news    []*run
	live    []*run
	frame   broker.Frame
	scratch []byte
}

// run publishes until ctx ends. Runs that are open then are the caller's
// mistake: it waits for an empty table first.
func (p *publisher) run(ctx context.Context) {
	tick := p.tick()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.outbox.wake:
		case <-timer.C:
		}
		p.turn(time.Now())
		// An idle worker has no timer running.
		if len(p.live) > 0 {
			timer.Reset(tick)
		} else {
			timer.Stop()
		}
	}
}

// tick is how often the publisher looks for frames that became due while
// nothing urgent happened: often enough that none is late by more than a
// quarter of its interval.
func (p *publisher) tick() time.Duration {
	shortest := p.beat
	if p.interval > 0 {
		shortest = min(shortest, p.interval)
	}
	return max(shortest/4, time.Millisecond)
}

// turn takes the news in and sends every frame that is due.
func (p *publisher) turn(now time.Time) {
	p.news = p.outbox.collect(p.news[:0])
	for _, r := range p.news {
		if !r.joined {
			p.join(r, now)
		}
	}
	clear(p.news)
	for i := 0; i < len(p.live); {
		if p.serve(p.live[i], now) {
			i++
			continue
		}
		last := len(p.live) - 1
		p.live[i] = p.live[last]
		p.live[last] = nil
		p.live = p.live[:last]
	}
}

// join starts the frames of a run.
func (p *publisher) join(r *run, now time.Time) {
	r.joined = true
	r.last = now
	p.live = append(p.live, r)
	if r.seq != nil && r.req.Mode != broker.ModeFinal {
		m := r.served.model
		p.frame = broker.Frame{Model: m.Name(), Version: m.Version(), Digest: m.Digest()}
		_ = r.stream.Accepted(&p.frame) // the terminal frame says it too
	}
}

// serve sends what is due for a run and reports whether the run goes on.
func (p *publisher) serve(r *run, now time.Time) bool {
	if r.over {
		return !p.close(r, now)
	}
	if !r.delivery.Lease.Valid(now) {
		p.stop(r, errLeaseLost) // silent until the runtime has let go of it
		return true
	}
	if r.req.Mode == broker.ModeFinal {
		return true
	}
	since, fresh := now.Sub(r.last), len(r.view) > len(r.ids)
	silent := since >= p.beat-p.tick()
	switch {
	case fresh && (len(r.ids) == 0 || since >= p.interval || silent):
		p.tokens(r, now)
	case silent:
		phase := "decode"
		if len(r.view) == 0 {
			phase = "encode"
		}
		_ = r.stream.Heartbeat(phase) // the next one comes soon
		r.last = now
	}
	return true
}

// tokens sends the tokens that have not been sent. A frame that the connection
// refuses is lost to the client but not to the final.
func (p *publisher) tokens(r *run, now time.Time) {
	index, from := len(r.ids), r.decoded.Len()
	p.decode(r)
	p.frame = broker.Frame{Text: r.decoded.String()[from:], Tokens: r.ids[index:], Index: index}
	_ = r.stream.Token(&p.frame)
	r.last = now
}

// decode moves collected tokens into the run's text and ids.
func (p *publisher) decode(r *run) {
	fresh := r.view[len(r.ids):]
	p.scratch = r.text.Append(p.scratch[:0], fresh...)
	r.decoded.Write(p.scratch)
	for _, t := range fresh {
		r.ids = append(r.ids, t.ID)
	}
}

// close sends the terminal frame and settles. It reports false when the
// connection refused the frame and close is to be tried again.
func (p *publisher) close(r *run, now time.Time) bool {
	if now.Before(r.retryAt) {
		return false
	}
	lease := r.delivery.Lease
	lost := errors.Is(r.err, errLeaseLost) || !lease.Valid(now)
	if r.req.Reply == "" || lost {
		r.stream.Abandon()
		if !lost {
			_ = lease.Reject("no reply subject")
		}
		p.closed(r, outcomeLost(lost), now)
		return true
	}
	outcome, err := p.terminal(r, now)
	if errors.Is(err, broker.ErrFrameTooLarge) {
		outcome, err = p.fail(r, &broker.Error{Code: broker.CodeInternal, Message: "the output exceeds the server's payload limit"})
	}
	if err != nil && !errors.Is(err, broker.ErrTerminated) {
		if r.giveUp.IsZero() {
			r.giveUp = now.Add(p.patience)
		}
		if now.Before(r.giveUp) {
			r.retryAt = now.Add(closeRetry)
			return false
		}
		r.stream.Abandon()
		outcome = outcomeUnsent
	}
	p.closed(r, outcome, now)
	return true
}

func outcomeLost(lost bool) string {
	if lost {
		return outcomeLeaseLost
	}
	return outcomeNoReply
}

// terminal sends what ends a run, for the reason that it ended, and settles
// its lease. It returns the outcome for metrics and logs.
func (p *publisher) terminal(r *run, now time.Time) (outcome string, err error) {
	switch {
	case r.refusal != nil:
		return p.fail(r, r.refusal)
	case r.err == nil && r.reason == cellrt.Length:
		return p.final(r, broker.FinishLength, now)
	case r.err == nil:
		return p.final(r, broker.FinishStop, now)
	case errors.Is(r.err, errCancelled):
		return p.final(r, broker.FinishCancelled, now)
	case errors.Is(r.err, errDeadline):
		return p.final(r, broker.FinishDeadline, now)
	case errors.Is(r.err, errClientGone):
		return p.final(r, broker.FinishClientGone, now)
	case errors.Is(r.err, errHandBack), errors.Is(r.err, cellrt.ErrStopped):
		return p.handBack(r, handBackDelay, shuttingDown())
	case errors.Is(r.err, cellrt.ErrNoSlot):
		return p.handBack(r, noSlotDelay, &broker.Error{
			Code: broker.CodeBusy, Message: "no free slot", Retryable: true, RetryAfter: noSlotDelay,
		})
	case errors.Is(r.err, cellrt.ErrNumerical):
		return p.fail(r, &broker.Error{Code: broker.CodeNumericalError, Message: "the model's output is not a number for this input"})
	default:
		return p.fail(r, &broker.Error{Code: broker.CodeInternal, Message: "the model could not finish this input"})
	}
}

func shuttingDown() *broker.Error {
	return &broker.Error{
		Code: broker.CodeShuttingDown, Message: "the worker is shutting down; send the request again",
		Retryable: true, RetryAfter: handBackDelay,
	}
}

// final sends the tokens left and the final frame, and settles.
func (p *publisher) final(r *run, reason broker.FinishReason, now time.Time) (outcome string, err error) {
	if len(r.view) > len(r.ids) {
		if r.req.Mode == broker.ModeFinal {
			p.decode(r)
		} else {
			p.tokens(r, now)
		}
	}
	final := &broker.Final{
		FinishReason:  reason,
		Usage:         broker.Usage{OutputTokens: len(r.ids)},
		Timing:        r.timing(now),
		Deterministic: true,
	}
	p.frame = broker.Frame{
		Text: r.decoded.String(), Tokens: r.ids, Final: final, Meta: r.req.Params.Meta, Model: r.req.Model,
	}
	if r.served != nil {
		p.frame.Version, p.frame.Digest = r.served.model.Version(), r.served.model.Digest()
	}
	if r.unfolded != nil {
		final.LogProb, final.Usage.InputTokens = r.unfolded.LogProb(), r.unfolded.InputTokens
	}
	if r.req.Params.Echo {
		final.Echo = &r.req.Input
	}
	if err := r.stream.Final(&p.frame); err != nil {
		return string(reason), err
	}
	_ = r.delivery.Lease.Settle() // unsettled, the request comes again and gives the same frames
	return string(reason), nil
}

// fail sends an error frame and rejects the lease: another attempt would fail
// in the same way.
func (p *publisher) fail(r *run, e *broker.Error) (outcome string, err error) {
	if err := r.stream.Fail(e, r.req.Params.Meta); err != nil {
		return string(e.Code), err
	}
	_ = r.delivery.Lease.Reject(string(e.Code)) // as for Settle
	return string(e.Code), nil
}

// handBack returns a durable request to the queue. A core request has no
// queue: its client gets the refusal and decides.
func (p *publisher) handBack(r *run, delay time.Duration, refusal *broker.Error) (outcome string, err error) {
	if r.delivery.Lease.Core() {
		return p.fail(r, refusal)
	}
	if r.seq != nil && r.req.Mode != broker.ModeFinal {
		_ = r.stream.Retry()
	} else {
		r.stream.Abandon()
	}
	_ = r.delivery.Lease.Release(delay) // unreleased, the lease runs out
	return outcomeHandedBack, nil
}
