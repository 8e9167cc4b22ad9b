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
	asks  int // questions to the workers that decide, since seen
	gone  int // answers to them that nothing is left of the request
	// A durable request that is silent is asked about at next, and after every
	// question the pause is twice as long.
	next  time.Time
	pause time.Duration
	asked bool // so, since seen
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
	g.askIn(s.client.cfg.Silence)
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
	g.msg, g.seen, g.doubt, g.asks, g.gone, g.asked = nil, time.Now(), false, 0, 0, false
	g.askIn(s.client.cfg.Silence)
	switch t {
	case "":
	case FrameRetry:
		g.queued = true
	default:
		g.queued = g.final
	}
	// The next question, or the limit, may be due before the timer is.
	if g.timer != nil && !s.ended && (t == "" || !g.queued) {
		g.timer.Reset(min(s.silence(), s.client.cfg.Silence))
	}
}

// askIn has the workers be asked when the request is silent for a pause, which
// doubles.
func (g *guard) askIn(pause time.Duration) { g.next, g.pause = time.Now().Add(pause), pause }

// early reports whether a request that may be silent for a time that is left is
// asked about now, and how long its guard waits then: its answer may have been lost
// on the way. Only the questions after the limit decide that it is gone.
func (g *guard) early(left time.Duration, connected bool) (ask bool, wait time.Duration) {
	if g.realtime || !connected {
		return false, left // until there is a connection, see askSoon
	}
	if ask = time.Until(g.next) <= 0; ask {
		g.asked = true
		g.askIn(2 * g.pause)
	}
	return ask, min(left, time.Until(g.next))
}

// askSoon has the workers be asked as early as after a sign of life: something may
// have been missed. It is called with mu held.
func (s *Stream) askSoon() {
	g := &s.guard
	if g.msg == nil && g.timer != nil && !s.ended {
		g.askIn(s.client.cfg.Silence)
		g.timer.Reset(min(s.silence(), g.pause))
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

// mayBeKept reports whether a durable request of which nothing was heard for too
// long may be in the queue, or its answer be kept: the workers have not said that
// they are gone. When its receipt told its place in the queue, and no worker is
// there to ask, that is true for as long as the queue keeps a request. It is called
// with mu held.
func (s *Stream) mayBeKept(silent time.Duration, connected bool) bool {
	g := &s.guard
	return !g.realtime && g.gone < goneAnswers &&
		(s.stored > 0 && silent < s.client.cfg.QueueSilence || connected && g.asks < silentAsks)
}

// probed takes a worker's word on a request that was asked about because it is
// silent. That nothing is left of it is no last word: another worker may be about
// to say more. It is called with mu held.
func (s *Stream) probed(state ResumeState) {
	g := &s.guard
	if g.asks == 0 && !g.asked || s.ended {
		return
	}
	switch state {
	case ResumeQueued, ResumeRunning:
		g.seen, g.doubt, g.asks, g.gone, g.asked = time.Now(), false, 0, 0, false
	case ResumeUnknown, ResumeStored:
		if g.asks > 0 {
			g.gone++
			g.timer.Reset(min(s.silence(), resumeAfter))
		}
	}
}

func inUse(id string) *Error { return badRequest("id %s: in use by another request", id) }

// notKept is the end of a request whose id was stored before, by an earlier
// publication of it as far as this client can tell, and of which the workers know
// nothing more.
func notKept(id string) error { return fmt.Errorf("request %s: %w", id, ErrAnswerNotKept) }

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
		ask, wait = g.early(limit-silent, connected)
	case msg == nil && s.mayBeKept(silent, connected):
		ask, wait = connected, min(limit, askEvery)
	case msg == nil && g.doubt && g.gone >= goneAnswers:
		failure = notKept(s.id)
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
	if ask && (silent >= limit || g.doubt) {
		g.asks++
	}
	doubt := g.doubt
	s.mu.Unlock()
	switch {
	case ask:
		s.client.sendQuestion(question, s.replies)
	case failure != nil:
		s.fail(failure, msg == nil && !doubt) // without a receipt it may be sent again under its id
	case msg != nil:
		_ = s.client.nc.PublishMsg(renewed(msg)) // the next look tries again
	}
}
