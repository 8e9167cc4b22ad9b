package broker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Defaults of [ClientConfig] for what a request may go without.
const (
	defaultReceiptWait  = 2 * time.Second
	defaultSilence      = time.Minute
	defaultQueueSilence = defaultMaxAge + time.Minute
	maxPublications     = 4
	askEvery            = 5 * time.Second        // after a queued request that is silent
	silentAsks          = 2                      // the least before it is given up
	goneAnswers         = 2                      // that say that nothing is left of it
	awayWait            = 250 * time.Millisecond // between looks at a lost connection
)

// guard ends a stream that hears nothing, and publishes its request again as
// long as the server has not said that it is stored. Its stream's lock guards
// it.
type guard struct {
	msg      *nats.Msg // durable and not known to be stored; nil otherwise
	tries    int       // publications of msg that the server has not said to be in vain
	absence  absence
	session  uint64 // connections that the first one could have used
	realtime bool
	final    bool // the mode: nothing comes before the terminal frame
	queued   bool // no worker has it
	seen     time.Time
	// doubt says that the receipt is that of an earlier publication of the id,
	// which may be another request's.
	doubt bool
	asks  int // questions to the workers since seen
	gone  int // answers since seen that nothing is left of the request
	timer *time.Timer
}

func newGuard(o *RequestOptions) guard {
	return guard{realtime: o.Realtime, final: o.Mode == ModeFinal, queued: !o.Realtime || o.Mode == ModeFinal}
}

// arm is called before the request is published the first time.
func (s *Stream) arm(m *nats.Msg) {
	s.mu.Lock()
	g := &s.guard
	g.seen, g.session, g.tries = time.Now(), s.client.session(), 1
	wait := s.silence()
	if !g.realtime {
		g.msg, wait = m, s.client.cfg.ReceiptWait
	}
	g.timer = time.AfterFunc(wait, s.look)
	stop := g.timer.Stop
	s.mu.Unlock()
	s.watch(stop)
}

// session counts the connections of the client so far.
func (c *Client) session() uint64 { return c.nc.Stats().Reconnects }

// silence is how long the stream may hear nothing. It is called with mu held.
func (s *Stream) silence() time.Duration {
	if s.guard.queued {
		return s.client.cfg.QueueSilence
	}
	return s.client.cfg.Silence
}

// heard notes a sign of life: the receipt, with an empty type, or a frame.
func (s *Stream) heard(t FrameType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &s.guard
	g.msg, g.seen, g.doubt, g.asks, g.gone = nil, time.Now(), false, 0, 0
	switch t {
	case "":
	case FrameRetry:
		g.queued = true
	default:
		g.queued = g.final
	}
	// The limit may have become shorter than what the timer waits for.
	if g.timer != nil && !s.ended && !g.queued {
		g.timer.Reset(s.silence())
	}
}

// onceOnly reports whether the request was published once, on one connection:
// then nobody but another request can have used its id.
func (s *Stream) onceOnly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.tries == 1 && s.guard.session == s.client.session()
}

// unconfirmed is the refusal of a request without a receipt. The last error of
// the connection may say why.
func unconfirmed(last error) *Error {
	e := &Error{Code: CodeInternal, Message: "the server did not confirm the request", Retryable: true}
	if errors.Is(last, nats.ErrPermissionViolation) && !strings.Contains(last.Error(), streamNames) {
		e.Message, e.Retryable = e.Message+": "+last.Error(), false
	}
	return e
}

// mayBeQueued reports whether a request of which nothing was heard for too long
// may be in the queue: its receipt told its place there, and the workers have not
// said that it is gone. While no worker is there to ask, that is true for as long
// as the queue keeps a request. It is called with mu held.
func (s *Stream) mayBeQueued(silent time.Duration, connected bool) bool {
	g := &s.guard
	return s.stored > 0 && g.gone < goneAnswers &&
		(silent < s.client.cfg.QueueSilence || connected && g.asks < silentAsks)
}

// probed takes a worker's word on a request that was asked about because it is
// silent. That nothing is left of it is no last word: another worker may be about
// to say more. It is called with mu held.
func (s *Stream) probed(state ResumeState) {
	g := &s.guard
	if g.asks == 0 || s.ended {
		return
	}
	switch state {
	case ResumeQueued, ResumeRunning:
		g.seen, g.doubt, g.asks, g.gone = time.Now(), false, 0, 0
	case ResumeUnknown, ResumeStored:
		g.gone++
		g.timer.Reset(min(s.silence(), resumeAfter))
	}
}

func inUse(id string) *Error { return badRequest("id %s: in use by another request", id) }

// look is what the timer does.
func (s *Stream) look() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	g := &s.guard
	msg, limit, silent := g.msg, s.silence(), time.Since(g.seen)
	connected := s.client.nc.IsConnected()
	var wait time.Duration
	var failure error
	ask := false
	switch {
	case msg == nil && silent < limit && !g.doubt:
		wait = limit - silent
	case msg == nil && s.mayBeQueued(silent, connected):
		ask, wait = connected, min(limit, askEvery)
	case msg == nil && g.doubt && g.gone >= goneAnswers:
		s.mu.Unlock()
		s.push(s.refusal(inUse(s.id)), false)
		return
	case msg == nil:
		failure = fmt.Errorf("request %s: %w for %v", s.id, ErrSilent, silent.Round(time.Millisecond))
	case silent >= s.client.cfg.Silence && !connected, connected && g.tries >= maxPublications:
		failure = fmt.Errorf("request %s: %w: %w", s.id, ErrNoReceipt, unconfirmed(s.client.nc.LastError()))
	case !connected:
		msg, wait = nil, min(awayWait, s.client.cfg.ReceiptWait)
	default:
		g.tries++
		wait = s.client.cfg.ReceiptWait
	}
	if failure == nil {
		g.timer.Reset(wait)
	}
	question := resumeMessage{ID: s.id, Index: s.track.haveTokens, Sequence: s.stored}
	if ask {
		g.asks++
	}
	s.mu.Unlock()
	switch {
	case ask:
		s.client.sendQuestion(question, s.replies)
	case failure != nil:
		s.fail(failure, msg == nil) // without a receipt it may be sent again under its id
	case msg != nil:
		_ = s.client.nc.PublishMsg(renewed(msg)) // the next look tries again
	}
}
