package worker

import (
	"errors"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// closeRetry is how long the publisher waits before it tries again what was
// refused.
const closeRetry = 100 * time.Millisecond

// storeWaits is how many ack waits a final has to be stored, and the letter of a
// request that has no other attempt to be written.
const storeWaits = 3

// records is what the publisher writes before it tells a client how its
// request ended. Nothing of it blocks: what became of a record comes through the
// outbox, later.
type records interface {
	// store stores the terminal frame, as long as the lease lasts and not longer
	// than until. An error means that there will be no answer.
	store(r *run, until time.Time) error
	// letter writes a dead letter.
	letter(r *run)
	// excuse writes down that the attempt is no failure.
	excuse(r *run)
	// apologize is excuse for an attempt whose lease is lost; nobody waits.
	apologize(r *run)
	// checkpoint stores where a run can go on; nobody waits.
	checkpoint(r *run)
	// forget drops what is stored of a request that has its answer; nobody waits.
	forget(r *run)
	// fenced counts a run whose answer came second.
	fenced()
	// unwritten reports a letter that the attempt could not write; another one will.
	unwritten(r *run, err error)
	// lost reports a letter that nobody will write.
	lost(r *run, err error)
	// unstored reports a final that the server does not take.
	unstored(r *run, err error)
}

// close takes the steps of a run's end. It reports false when the run has to
// wait for an answer, or to try again later.
func (p *publisher) close(r *run, now time.Time) bool {
	if now.Before(r.retryAt) {
		return false
	}
	if outcome := p.silent(r, now); outcome != "" {
		r.stream.Abandon()
		p.leave(r, false, 0, now)
		p.closed(r, outcome, now)
		return true
	}
	if r.end == nil {
		r.endWith(p.conclude(r, now))
	}
	for r.end.step != stepDone {
		if !p.advance(r, now) {
			p.pulse(r, now)
			return false
		}
	}
	told := r.end.outcome != outcomeUnsent && r.end.outcome != outcomeHandedBack
	p.leave(r, told, p.connected, now)
	p.closed(r, r.end.outcome, now)
	return true
}

// silent ends a run that must not say anything, and returns its outcome, which
// is empty for the others.
func (p *publisher) silent(r *run, now time.Time) (outcome string) {
	lease := r.delivery.Lease
	switch {
	case errors.Is(r.err, errLeaseLost), errors.Is(r.mute, errTakenOver), !lease.Valid(now):
		if r.cutOff.Load() && r.req.Durable && r.mute == nil {
			p.records.apologize(r)
		}
		return outcomeLeaseLost
	case r.mute != nil:
		_ = lease.Settle() // unsettled, it comes again
		return outcomeAnswered
	case r.req.Reply == "":
		_ = lease.Reject("no reply subject")
		return outcomeNoReply
	}
	return ""
}

// advance takes one step. It reports false when that has to wait.
func (p *publisher) advance(r *run, now time.Time) bool {
	e := r.end
	switch e.step {
	case stepLetter:
		return p.writeLetter(r, now)
	case stepStore:
		return p.storeFinal(r, now)
	case stepSend:
		if err := sendAnswer(r); err != nil {
			return p.later(r, now)
		}
		e.step = stepSettle
	case stepSettle:
		if (e.stored || e.code == broker.CodeUnknownVersion) && (r.kept != nil || r.past != nil || r.pinned) {
			p.records.forget(r)
		}
		if e.reject != "" {
			_ = r.delivery.Lease.Reject(e.reject) // as for Settle
		} else {
			_ = r.delivery.Lease.Settle() // unsettled, the request comes again, and its final is stored
		}
		e.step = stepDone
	case stepExcuse:
		if p.ask(r, p.records.excuse) == nil {
			return false
		}
		e.step = stepRelease // without a record it costs an attempt
	case stepRelease:
		if !p.outbox.release(r) {
			return p.reconsider(r, now)
		}
		if r.seq != nil && r.req.Mode != broker.ModeFinal {
			_ = r.stream.Retry()
		} else {
			r.stream.Abandon()
		}
		_ = r.delivery.Lease.Release(e.delay) // unreleased, the lease runs out
		e.step = stepDone
	}
	return true
}

// sendAnswer sends the terminal frame. The stored one of another lease gives way to
// an error when no attempt will be able to send it. The error is not stored: the
// record is there.
func sendAnswer(r *run) error {
	e := r.end
	if e.replay == nil {
		return r.stream.SendTerminal(e.frame)
	}
	err := r.stream.Replay(e.replay.Frame)
	var why string
	switch {
	case errors.Is(err, broker.ErrFrameTooLarge): // this lease's numbers may have more digits
		why = tooLargeText
	case errors.Is(err, broker.ErrNotEncoded), errors.Is(err, broker.ErrBadRecord):
		why = "the stored answer cannot be repeated"
	default:
		return err
	}
	e.outcome = string(broker.CodeInternal)
	return r.stream.Fail(broker.NewError(broker.CodeInternal, why), nil)
}

// reconsider ends a run that was cancelled before it was handed back.
func (p *publisher) reconsider(r *run, now time.Time) bool {
	return r.endWith(p.conclude(r, now))
}

// endWith gives a run its end, or another one than it had; with an error nothing
// can be said any more. It reports true: there is a next step.
func (r *run) endWith(end *ending, err error) bool {
	if err != nil {
		r.stream.Abandon()
		end = &ending{step: stepDone, outcome: outcomeUnsent}
	}
	r.end = end
	return true
}

// writeLetter sees to it that a request that is given up leaves a dead letter,
// before anything else is done about it. Without one the attempt ends without an
// answer, as a failure, and the next one tries again; the last one answers all the
// same, and the letter is lost.
func (p *publisher) writeLetter(r *run, now time.Time) bool {
	e := r.end
	if !r.req.Durable || !hasLetter(e.code) {
		e.step = stepStore
		return true
	}
	if e.letterBy.IsZero() || r.cutOff.Load() { // without a connection no store is to blame, and the lease ends
		e.letterBy = now.Add(p.writing(r))
	}
	a := p.ask(r, p.records.letter)
	switch {
	case a == nil:
		return false
	case a.err == nil:
		p.unlettered = false
		e.step = stepStore
	case now.Before(e.letterBy):
		r.retryAt = now.Add(max(closeRetry, p.patience/10)) // the broker has tried for longer if that can help
		return false
	case errors.Is(a.err, broker.ErrClosed), !p.isLast(r):
		p.records.unwritten(r, a.err)
		r.stream.Abandon()
		e.step, e.outcome = stepDone, outcomeUnsent
	default:
		p.unlettered = true
		p.records.lost(r, a.err)
		e.step = stepStore
	}
	return true
}

// writing is how long the letter of a run may take to be written: as long as a
// final, if the letter would be lost. Once one was lost the next ones have less
// time, until one is written, as for finals.
func (p *publisher) writing(r *run) time.Duration {
	switch {
	case p.unlettered:
		return p.patience / 4
	case p.isLast(r):
		return storeWaits * p.patience
	}
	return p.patience
}

// isLast reports whether a request has no other attempt, should this one fail.
// Attempts whose excuses could not be looked up count as failures here: the store
// of states is away as well, and the request must end.
func (p *publisher) isLast(r *run) bool { return r.failures()+1 >= p.attempts }

// hasLetter reports whether a request that ends with an error is a dead letter:
// when the fault may be ours.
func hasLetter(c broker.Code) bool {
	return c == broker.CodeNumericalError || c == broker.CodeInternal || c == broker.CodeAttemptsExhausted
}

// storeFinal has the terminal frame stored. What is stored goes to the client,
// and if that is another lease's, then instead of the run's own.
func (p *publisher) storeFinal(r *run, now time.Time) bool {
	e := r.end
	if !r.req.Durable || ofTheMessage(e.code) {
		e.step = stepSend
		return true
	}
	if e.storeBy.IsZero() {
		e.storeBy = now.Add(p.storing())
	}
	var refused error
	a := p.ask(r, func(r *run) { refused = p.records.store(r, e.storeBy) })
	if refused != nil {
		e.asked = false
		a = &word{verdict: broker.Verdict{Err: refused}}
	}
	switch {
	case a == nil:
		return false
	case a.verdict.Mine:
		p.storeless, e.stored = false, true
		e.step = stepSend
	case a.verdict.Other != nil:
		p.storeless = false
		return p.yield(r, a.verdict.Other)
	case now.Before(e.storeBy) && (errors.Is(a.verdict.Err, broker.ErrNoVerdict) || errors.Is(a.verdict.Err, broker.ErrStoreFull)):
		r.retryAt = now.Add(closeRetry) // as long as the lease lasts
		return false
	case errors.Is(a.verdict.Err, broker.ErrClosed):
		return p.later(r, now)
	case errors.Is(a.verdict.Err, broker.ErrFrameTooLarge) && e.code == "":
		return r.endWith(p.failure(r, broker.NewError(broker.CodeInternal, tooLargeText)))
	default:
		// The server takes no such final, ever or for too long. Its client hears it all the same.
		p.storeless = true
		p.records.unstored(r, a.verdict.Err)
		e.step = stepSend
	}
	return true
}

// storing is how long a final may take to be stored: longer than an election and
// than a lease, so that a worker that is cut off falls silent before. Once a
// final could not be stored the next ones have less time, until one is: a store
// that is gone would else hold every slot for all of it.
func (p *publisher) storing() time.Duration {
	if p.storeless {
		return p.patience / 4
	}
	return storeWaits * p.patience
}

// yield gives way to what another lease has answered.
func (p *publisher) yield(r *run, other *broker.StoredFinal) bool {
	p.records.fenced()
	return r.endWith(p.repeatOf(r, other))
}

// ofTheMessage reports whether an error depends on the message alone. Every
// attempt answers it alike, so it needs no store, and a flood of malformed
// requests pushes no finals out of it.
func ofTheMessage(c broker.Code) bool {
	switch c {
	case broker.CodeBadRequest, broker.CodeUnknownModel, broker.CodeUnknownVersion, broker.CodeUnsupportedParameter,
		broker.CodeInputTooLong, broker.CodePayloadTooLarge:
		return true
	}
	return false
}

// ask has a record written, once, and returns what became of it, nil as long as
// that is not known.
func (p *publisher) ask(r *run, write func(*run)) *word {
	if !r.end.asked {
		r.end.asked = true
		r.heard = nil
		write(r)
		return nil
	}
	a := r.heard
	if a != nil {
		r.heard, r.end.asked = nil, false
	}
	return a
}

// later puts the run's next try off, and gives up in the end: the request comes
// again when its lease has run out.
func (p *publisher) later(r *run, now time.Time) bool {
	if r.giveUp.IsZero() {
		r.giveUp = now.Add(p.patience)
	}
	if now.Before(r.giveUp) {
		r.retryAt = now.Add(closeRetry)
		return false
	}
	r.stream.Abandon()
	r.end.step, r.end.outcome = stepDone, outcomeUnsent
	return true
}

// pulse says that a run whose end takes a while is alive.
func (p *publisher) pulse(r *run, now time.Time) {
	if r.req.Mode != broker.ModeFinal && r.seq != nil && now.Sub(r.last) >= p.beat-p.tick() {
		_ = r.stream.Heartbeat("store") // the next one comes soon
		r.last = now
	}
}
