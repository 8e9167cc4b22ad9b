package worker

import (
	"errors"
	"math"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// ending is how a run ends: what its client is told, what is written before, and
// what becomes of the lease. It is decided once; then the run takes its steps.
type ending struct {
	step    step
	outcome string // for metrics and logs
	// frame is the terminal frame. Without one the run is handed back.
	frame broker.Encoded
	// replay, if not nil, is another lease's answer, which is repeated instead.
	replay *broker.StoredFinal
	// reject is the reason to reject the lease for; empty: it is settled.
	reject string
	// code of a frame that is an error.
	code  broker.Code
	asked bool // a record is being written
	// letterBy is when the attempt ends, or the frame is sent, though the letter is
	// not written; zero before the first try.
	letterBy time.Time
	// stored: the frame is the request's one stored final.
	stored bool
	// storeBy is when the frame is sent though it is not stored; zero before the
	// first try.
	storeBy time.Time
	// delay of a hand-back.
	delay time.Duration
}

// step is a step of an ending. A run that ends with a frame goes through those
// from letter to settle, as far as they apply to it, one that is handed back
// through excuse and release.
type step uint8

const (
	stepLetter  step = iota // write a dead letter
	stepStore               // store the final
	stepSend                // send the frame
	stepSettle              // settle or reject the lease
	stepExcuse              // write down that this attempt is no failure
	stepRelease             // hand the lease back
	stepDone
)

// word is what became of a record.
type word struct {
	verdict broker.Verdict // of a final
	err     error          // of another record
}

// tooLargeText says that an answer fits into no message, or into none that the
// finals' stream takes.
const tooLargeText = "the output exceeds the server's payload limit"

// conclude decides how a run ends, and sends what is left of its output.
func (p *publisher) conclude(r *run, now time.Time) (*ending, error) {
	p.outbox.cancelled(r)
	switch {
	case r.stored != nil:
		return p.repeatOf(r, r.stored)
	case r.refusal != nil:
		return p.failure(r, r.refusal)
	case r.err == nil:
		return p.final(r, broker.FinishReason(r.reason.String()), now)
	case errors.Is(r.err, errCancelled):
		return p.final(r, broker.FinishCancelled, now)
	case errors.Is(r.err, errDeadline) && r.seq == nil:
		return p.failure(r, tooLate())
	case errors.Is(r.err, errDeadline):
		return p.final(r, broker.FinishDeadline, now)
	case errors.Is(r.err, errClientGone):
		return p.final(r, broker.FinishClientGone, now)
	case errors.Is(r.err, cellrt.ErrNoSlot):
		return p.handBack(r, noSlotDelay, &broker.Error{
			Code: broker.CodeBusy, Message: "no free slot", Retryable: true, RetryAfter: noSlotDelay,
		})
	case errors.Is(r.err, errNoRoom):
		return p.handBack(r, noRoomDelay, &broker.Error{
			Code: broker.CodeBusy, Message: "the model is not in memory, and others wait for room", Retryable: true, RetryAfter: noRoomDelay,
		})
	case handsBack(r.err):
		return p.handBack(r, handBackDelay, shuttingDown())
	case errors.Is(r.err, cellrt.ErrNumerical):
		return p.failure(r, broker.NewError(broker.CodeNumericalError, "the model's output is not a number for this input"))
	default:
		return p.failure(r, broker.NewError(broker.CodeInternal, "the model could not finish this input"))
	}
}

// handsBack reports whether a run that ends with err has another attempt.
func handsBack(err error) bool {
	return errors.Is(err, errHandBack) || errors.Is(err, cellrt.ErrStopped) || errors.Is(err, cellrt.ErrCheckpoint) || errors.Is(err, cellrt.ErrNoSlot) ||
		errors.Is(err, errNoRoom)
}

func shuttingDown() *broker.Error {
	return &broker.Error{
		Code: broker.CodeShuttingDown, Message: "the worker is shutting down; send the request again",
		Retryable: true, RetryAfter: handBackDelay,
	}
}

func tooLate() *broker.Error {
	return broker.NewError(broker.CodeDeadlineExceeded, "the deadline passed before the request started")
}

// final sends what is left of the output and makes the final frame.
func (p *publisher) final(r *run, reason broker.FinishReason, now time.Time) (*ending, error) {
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
	p.frame.Type = broker.FrameFinal
	p.frame.Text, p.frame.Tokens = r.decoded.String(), r.ids
	p.frame.Final, p.frame.Meta, p.frame.Model = final, r.req.Params.Meta, r.req.Model
	final.Usage.OutputTokens = len(r.ids)
	if r.served != nil {
		p.frame.Version, p.frame.Digest = r.served.shown.Version, r.served.shown.Digest
	}
	if r.req.Params.Echo {
		final.Echo = &r.req.Input
	}
	frame, err := r.stream.Terminal(&p.frame)
	switch {
	case errors.Is(err, broker.ErrFrameTooLarge):
		return p.failure(r, broker.NewError(broker.CodeInternal, tooLargeText))
	case errors.Is(err, broker.ErrTerminated):
		return nil, err
	case err != nil:
		return p.failure(r, broker.NewError(broker.CodeInternal, "the output cannot be written in the request's encoding"))
	}
	return &ending{step: stepStore, outcome: string(reason), frame: frame}, nil
}

// failure makes an error frame. The lease is rejected: another attempt would
// fail in the same way.
func (p *publisher) failure(r *run, e *broker.Error) (*ending, error) {
	frame, err := r.stream.Terminal(&broker.Frame{Type: broker.FrameError, Error: e, Meta: r.req.Params.Meta})
	if err != nil && !errors.Is(err, broker.ErrTerminated) {
		// What is the client's own does not fit, or has no such encoding.
		frame, err = r.stream.Terminal(&broker.Frame{Type: broker.FrameError, Error: e})
	}
	if err != nil {
		return nil, err
	}
	return &ending{step: stepLetter, outcome: string(e.Code), frame: frame, reject: string(e.Code), code: e.Code}, nil
}

// repeatOf repeats the answer of another lease, if it answers this very request.
func (p *publisher) repeatOf(r *run, stored *broker.StoredFinal) (*ending, error) {
	if stored.Request != r.req.Hash {
		return p.failure(r, idInUse())
	}
	return &ending{step: stepSend, outcome: outcomeReplayed, replay: stored}, nil
}

// idInUse answers a request whose id names another one.
func idInUse() *broker.Error {
	return broker.NewError(broker.CodeBadRequest, broker.HeaderID+": the id is that of another request, which has been answered")
}

// handBack returns a durable request to the queue. A core request has no
// queue: its client gets the refusal and decides.
func (p *publisher) handBack(r *run, delay time.Duration, refusal *broker.Error) (*ending, error) {
	if !r.req.Durable {
		return p.failure(r, refusal)
	}
	return &ending{step: stepExcuse, outcome: outcomeHandedBack, delay: delay}, nil
}
