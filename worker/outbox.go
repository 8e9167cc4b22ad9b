package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// outbox is where the runtime leaves what sequences produced and where the
// publisher picks it up. Deliver holds its lock for a few appends, so a step
// never waits for the network, and what a slow publisher has not fetched yet
// gathers in the runs themselves, bounded by their output's bound.
//
// It is the runtime's [cellrt.Sink]: Deliver runs with the runtime's lock held
// and takes mu, so nobody may call the runtime while holding mu.
type outbox struct {
	// eager wakes the publisher for every token.
	eager bool
	// wake has capacity 1: one pending wake-up is as good as many.
	wake chan struct{}

	mu    sync.Mutex
	dirty []*run // with news for the publisher, each once
}

func newOutbox(eager bool) *outbox {
	return &outbox{eager: eager, wake: make(chan struct{}, 1)}
}

// Deliver implements [cellrt.Sink].
func (o *outbox) Deliver(results []cellrt.Result) {
	now := time.Now()
	urgent := o.eager
	o.mu.Lock()
	for i := range results {
		switch owner := results[i].Sequence.Owner().(type) {
		case *run:
			urgent = owner.take(&results[i], now) || urgent
			o.mark(owner)
		case *rehearsal:
			owner.take(&results[i])
		}
	}
	o.mu.Unlock()
	if urgent {
		o.signal()
	}
}

// take adds a result to the run and reports whether the publisher should look
// at once: for the first token or proposal and for the end. The caller holds
// the lock.
func (r *run) take(res *cellrt.Result, now time.Time) (urgent bool) {
	if len(res.Tokens) > 0 {
		r.meter.stepGave(len(res.Tokens), now, r.lastToken)
		r.lastToken = now
		if len(r.tokens) == 0 {
			r.firstToken = now
			urgent = true
		}
		r.tokens = append(r.tokens, res.Tokens...)
	}
	if len(res.Proposal) > 0 {
		r.proposal = append(r.proposal[:0], res.Proposal...)
		r.revision++
		urgent = urgent || r.revision == 1
	}
	if res.Checkpoint != nil {
		r.checkpoint = res.Checkpoint
	}
	if res.Done {
		r.ended, r.reason, r.err = true, res.Reason, res.Err
		urgent = true
	}
	return urgent
}

// join makes a run known to the publisher. An ended one, refused by admission,
// is only to be answered.
func (o *outbox) join(r *run) {
	o.mu.Lock()
	o.mark(r)
	o.mu.Unlock()
	o.signal()
}

// end marks a run that the runtime does not have (any more) as ended.
func (o *outbox) end(r *run, cause error) {
	o.mu.Lock()
	r.ended, r.err = true, cause
	o.mark(r)
	o.mu.Unlock()
	o.signal()
}

// tell leaves what became of a record that the publisher asked for. It does not
// block.
func (o *outbox) tell(r *run, a word) {
	o.mu.Lock()
	r.word = &a
	o.mark(r)
	o.mu.Unlock()
	o.signal()
}

// collect moves what runs have new into the publisher's fields and appends the
// runs to dst.
func (o *outbox) collect(dst []*run) []*run {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.dirty {
		r.queued = false
		r.view, r.over, r.saved = r.tokens, r.ended, r.checkpoint
		r.repeat, r.repeatAsked = r.repeat || r.repeatAsked, false
		if r.word != nil {
			r.heard, r.word = r.word, nil
		}
		if r.drafted != r.revision {
			r.draft, r.proposal, r.drafted = r.proposal, r.draft, r.revision
		}
	}
	dst = append(dst, o.dirty...)
	clear(o.dirty)
	o.dirty = o.dirty[:0]
	return dst
}

// markSubmitted says that the runtime has the run's sequence. It returns why
// the run should stop at once, if somebody asked before.
func (o *outbox) markSubmitted(r *run) (stopCause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.submitted = true
	return r.stopCause
}

// askStop notes why a run should stop. It reports whether the runtime has the
// sequence and this is the first cause: then the caller cancels it.
func (o *outbox) askStop(r *run, cause error) (cancel bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.stopCause != nil {
		return false
	}
	r.stopCause = cause
	return r.submitted
}

// askCancel is askStop for a cancellation, which also takes the place of a
// hand-back, as long as the request has not gone back. The state is the one that
// the cancellation met.
func (o *outbox) askCancel(r *run) (state broker.CancelState, cancel bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state = r.cancelState()
	cancel = r.stopCause == nil && r.submitted
	if r.stopCause == nil || errors.Is(r.stopCause, errHandBack) {
		r.stopCause = errCancelled
	}
	return state, cancel
}

// cancelled turns the end of a run that would go back to the queue into a
// cancellation, if somebody has asked for one.
func (o *outbox) cancelled(r *run) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.goesBack() || !errors.Is(r.stopCause, errCancelled) {
		return false
	}
	r.err = errCancelled
	return true
}

// release says that a run goes back to the queue now, unless somebody has
// cancelled it.
func (o *outbox) release(r *run) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(r.stopCause, errCancelled) {
		return false
	}
	r.released = true
	return true
}

// stopAsked returns why a run should stop, nil when nobody has asked.
func (o *outbox) stopAsked(r *run) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return r.stopCause
}

// cancelState says how far a run is to those who want to cancel it. One whose end
// has no frame of this worker's is not finished: a request that goes back to the
// queue can be cancelled until it is gone, and then it is as unknown here as one
// whose lease is lost. The caller holds the lock.
func (r *run) cancelState() broker.CancelState {
	switch {
	case r.released, r.ended && errors.Is(r.err, errLeaseLost):
		return broker.CancelUnknown
	case r.ended && !r.goesBack():
		return broker.CancelFinished
	case r.submitted:
		return broker.CancelRunning
	}
	return broker.CancelAdmitted
}

// goesBack reports whether the run ends with a hand-back. The caller holds the
// lock or is the publisher.
func (r *run) goesBack() bool { return handsBack(r.err) && r.req.Durable }

func (o *outbox) mark(r *run) {
	if !r.queued {
		r.queued = true
		o.dirty = append(o.dirty, r)
	}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
