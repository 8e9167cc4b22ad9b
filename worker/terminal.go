package worker

import (
	"errors"
	"math"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// closeRetry is how long the publisher waits before it tries again to send a
// terminal frame that the connection refused.
const closeRetry = 100 * time.Millisecond

// close sends the terminal frame and settles. It reports false when the
// connection refused the frame and close is to be tried again.
func (p *publisher) close(r *run, now time.Time) bool {
	if now.Before(r.retryAt) {
		return false
	}
	lease := r.delivery.Lease
	lost := errors.Is(r.err, errLeaseLost) || errors.Is(r.mute, errTakenOver) || !lease.Valid(now)
	if r.req.Reply == "" || lost || r.mute != nil {
		r.stream.Abandon()
		outcome := outcomeLost(lost)
		switch {
		case lost:
		case r.mute != nil:
			_ = lease.Settle() // unsettled, it comes again
			outcome = outcomeAnswered
		default:
			_ = lease.Reject("no reply subject")
		}
		p.leave(r, false, 0, now)
		p.closed(r, outcome, now)
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
	p.leave(r, outcome != outcomeUnsent && outcome != outcomeHandedBack, p.connection(), now)
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
	case r.err == nil:
		return p.final(r, finishReason(r.reason), now)
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

// final sends what is left of the output and the final frame, and settles.
func (p *publisher) final(r *run, reason broker.FinishReason, now time.Time) (outcome string, err error) {
	final := &broker.Final{
		FinishReason: reason, LogProb: math.NaN(), Timing: r.timing(now),
		Deterministic: r.err == nil, // else it ended where somebody's clock had it
	}
	p.frame = broker.Frame{}
	if r.unfolded != nil {
		final.Usage.InputTokens = r.unfolded.InputTokens
	}
	if r.unfolded != nil && r.seq != nil {
		o := r.unfolded.Outcome()
		if r.err != nil && len(r.view) == 0 {
			o = models.Outcome{LogProb: math.NaN()} // there is no output: a search's hypotheses are output once it has ended
		}
		setOutcome(final, r.unfolded, &o)
		p.rest(r, o.Cut, now)
	}
	p.frame.Text, p.frame.Tokens = r.decoded.String(), r.ids
	p.frame.Final, p.frame.Meta, p.frame.Model = final, r.req.Params.Meta, r.req.Model
	final.Usage.OutputTokens = len(r.ids)
	if r.served != nil {
		p.frame.Version, p.frame.Digest = r.served.model.Version(), r.served.model.Digest()
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
