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
	timer    *time.Timer
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
	g.msg, g.seen = nil, time.Now()
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
	switch {
	case msg == nil && silent >= limit:
		failure = fmt.Errorf("request %s: %w for %v", s.id, ErrSilent, limit)
	case msg == nil:
		wait = limit - silent
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
	s.mu.Unlock()
	switch {
	case failure != nil:
		s.fail(failure, msg == nil) // without a receipt it may be sent again under its id
	case msg != nil:
		_ = s.client.nc.PublishMsg(renewed(msg)) // the next look tries again
	}
}
