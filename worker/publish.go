package worker

import (
	"context"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// publisher turns what runs produce into frames. One goroutine owns it: it
// alone emits frames, settles leases and closes runs, which is why a request
// has exactly one terminal frame and nothing after it.
type publisher struct {
	outbox   *outbox
	interval time.Duration // between token frames of a run
	beat     time.Duration // longest silence
	patience time.Duration // how long a refused terminal frame is retried: an ack wait
	stop     func(r *run, cause error)
	closed   func(r *run, outcome string, now time.Time)
	session  func() uint64 // counts connections; nil: there is one
	records  records       // nil: no request is durable
	attempts int           // that a request may have; the last one ends it without a letter if it must

	takeovers
	connected  uint64 // the connection, in this turn
	storeless  bool   // the last final could not be stored
	unlettered bool   // the last letter was lost
	news       []*run
	live       []*run

	// Scratch of the frame that is being made.
	frame      broker.Frame
	text       []byte
	ids        []int32
	logProbs   [][]broker.TokenLogProb
	candidates []broker.TokenLogProb
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
	if p.session != nil {
		p.connected = p.session()
	}
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
	r.last, r.session = now, p.connected
	p.live = append(p.live, r)
	older, err := p.enter(r, p.connected, now)
	if older != nil {
		p.silence(older, errTakenOver)
	}
	if err != nil {
		p.silence(r, err)
		return
	}
	if r.seq != nil && r.req.Mode != broker.ModeFinal {
		m := r.served.shown
		p.frame = broker.Frame{Model: m.Name, Version: m.Version, Digest: m.Digest}
		_ = r.stream.Accepted(&p.frame) // the terminal frame says it too
	}
}

// silence ends a run without another frame.
func (p *publisher) silence(r *run, why error) {
	r.mute = why
	p.stop(r, why)
}

// serve sends what is due for a run and reports whether the run goes on.
func (p *publisher) serve(r *run, now time.Time) bool {
	if r.over {
		return !p.close(r, now)
	}
	if r.mute != nil {
		return true
	}
	if !r.delivery.Lease.Valid(now) {
		p.stop(r, errLeaseLost) // silent until the runtime has let go of it
		return true
	}
	if r.saved != r.kept {
		r.kept = r.saved
		p.records.checkpoint(r)
	}
	if r.req.Mode == broker.ModeFinal {
		return true
	}
	if r.session != p.connected {
		// What the connection before had taken may be lost with it.
		r.session, r.repeat, r.repeated = p.connected, r.repeat || r.sent.tokens > 0, time.Time{}
	}
	if r.repeat && now.Sub(r.repeated) >= repeatEvery {
		p.again(r, now)
	}
	tokens := len(r.view) > r.sent.tokens
	draft := r.drafted > r.shown && len(r.view) == 0
	since, first := now.Sub(r.last), len(r.ids) == 0 && (tokens || r.shown == 0)
	silent := since >= p.beat-p.tick()
	switch {
	case (tokens || draft) && !first && since < p.interval && !silent:
	case tokens:
		p.tokens(r, now)
	case draft:
		p.provisional(r, now)
	case silent:
		_ = r.stream.Heartbeat(r.phase()) // the next one comes soon
		r.last = now
	}
	return true
}
