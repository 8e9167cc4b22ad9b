package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// How a stream asks for what it lacks.
const (
	// resumeAfter is how long a gap, or a lost connection, may heal by itself:
	// workers reconnect too.
	resumeAfter = 2 * reconnectWait
	// resumeLongest bounds the doubling wait for an answer.
	resumeLongest = 8 * time.Second
	// resumeTries is how often a stream asks without getting anywhere; its guard
	// goes on, ever more seldom.
	resumeTries = 6
)

// ErrUnknownRequest means that no worker knows a request and no stream has
// anything of it: it is queued still, was never sent, or is forgotten.
var ErrUnknownRequest = errors.New("request not known")

// AttachOptions say what the reader of [Client.Attach] has of the output.
type AttachOptions struct {
	// Index is the number of its tokens.
	Index int
	// Text is the number of bytes of the text of these tokens: the lengths of the
	// texts of the frames that they came in.
	Text int
}

// Attach reads a request that was sent before, by this client or by another one
// of the same name, over whichever connection: one that runs, one that has
// finished as long as its final is kept, and what is kept of one in mode resume
// whose worker was lost. The stream begins behind what o says. It is [ErrUnknownRequest]
// when nobody knows the request, or no worker is there to ask. To stop reading, or the end of ctx, does
// not cancel the request; [Client.Cancel] does.
func (c *Client) Attach(ctx context.Context, id string, o AttachOptions) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if !ValidID(id) {
		return nil, badID(id)
	}
	if o.Index < 0 || o.Text < 0 {
		return nil, badRequest("attach: index %d or text %d is negative", o.Index, o.Text)
	}
	s := newStream(c, "", &RequestOptions{ID: id})
	s.attached = true
	s.track.late, s.track.haveTokens, s.track.haveText = true, o.Index, o.Text
	if err := c.add(s); err != nil {
		return nil, err
	}
	s.watch(context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx), false) }))
	s.arm(nil)
	s.mu.Lock()
	s.resume.behind = true
	s.askAfter(0)
	s.mu.Unlock()
	return s, nil
}

// resuming is what a stream has to ask for. Its stream's lock guards it.
type resuming struct {
	behind  bool // something may have been missed, or, attached, nothing has come yet
	dropped bool // messages were dropped here: the frames that come next were there before
	unknown bool // the last answer said that nobody knows the request
	heard   bool // a frame has come
	timer   *time.Timer
	armed   bool
	wait    time.Duration // after the next question
	tries   int
}

// note takes note of a frame that came; news says that it brought output that
// the reader had not. It is called with mu held.
func (s *Stream) note(news bool) {
	r := &s.resume
	r.heard, r.behind = true, false
	if news {
		r.tries, r.wait = 0, 0
	}
	if s.track.hole() {
		s.askAfter(resumeAfter)
	}
}

// askAfter asks after a while, unless that is under way or has been tried often
// enough. It is called with mu held.
func (s *Stream) askAfter(d time.Duration) {
	if r := &s.resume; !r.armed && !s.ended && r.tries < resumeTries {
		s.armResume(d)
	}
}

// armResume is called with mu held.
func (s *Stream) armResume(d time.Duration) {
	r := &s.resume
	r.armed = true
	if r.timer != nil {
		r.timer.Reset(d)
		return
	}
	r.timer = time.AfterFunc(d, s.ask)
	s.watches = append(s.watches, r.timer.Stop)
}

// ask sends a resume request if one is still needed.
func (s *Stream) ask() {
	s.mu.Lock()
	r := &s.resume
	r.armed = false
	needed, unknown := !s.ended && (r.behind || r.dropped || s.track.hole()), s.attached && !r.heard
	switch {
	case !needed:
	case unknown && (r.unknown || r.tries >= resumeTries):
		s.mu.Unlock()
		s.fail(fmt.Errorf("attach to %s: %w", s.id, ErrUnknownRequest), false)
		return
	case r.tries >= resumeTries: // the final frame has it
		needed = false
	default:
		r.tries++
		r.wait = min(max(2*r.wait, resumeAfter), resumeLongest)
		s.armResume(r.wait)
	}
	index := s.track.haveTokens
	s.mu.Unlock()
	if needed {
		s.client.sendQuestion(resumeMessage{ID: s.id, Index: index}, s.replies)
	}
}

// resumed takes the answer to a resume request. Frames come beside it.
func (s *Stream) resumed(state ResumeState) {
	switch state {
	case ResumeServed:
		return // by a queue that is away
	case ResumeUnserved:
		s.noQueue()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probed(state)
	r := &s.resume
	switch {
	case state == ResumeUnknown && s.attached && !r.heard:
		r.unknown = true // another worker may be about to say more; the next look decides
		return
	case state == ResumeUnknown: // queued, or gone: then the silence ends it
	default:
		r.unknown, r.heard = false, true
	}
	if !s.track.hole() {
		r.behind, r.dropped = false, false
	}
}

// unanswered takes the server's word that no worker is there to ask. One may be
// back soon, for a request of ours; an attached reader need not wait.
func (s *Stream) unanswered() {
	s.mu.Lock()
	s.resume.unknown = true
	s.mu.Unlock()
	s.alone(func(a *absence) { a.noWorker = true })
}

// reconnected has the stream ask what it missed, unless frames come again.
func (s *Stream) reconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard.msg != nil {
		return // not known to be stored, and published again
	}
	r := &s.resume
	r.behind, r.tries, r.wait = true, 0, 0
	s.askAfter(resumeAfter)
	s.askSoon()
}

// dropped has the stream ask what it missed, whatever comes: its last frame may
// be among the messages that the library dropped.
func (s *Stream) dropped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.resume
	r.dropped, r.tries, r.wait = true, 0, 0
	s.askAfter(resumeAfter)
	s.askSoon()
}

// follow tells the open streams of every new connection, until the client
// ends.
func (c *Client) follow() {
	defer c.nc.RemoveStatusListener(c.status)
	for {
		select {
		case <-c.done:
			return
		case _, ok := <-c.status:
			if !ok {
				return
			}
		}
		c.each((*Stream).reconnected)
	}
}

// each calls f for the open streams.
func (c *Client) each(f func(*Stream)) {
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	for _, s := range open {
		f(s)
	}
}

// sendQuestion asks the workers for the output of a request, or what they know of
// its model. What is answered goes to the last token replies of this client, so
// that other readers of the request are not bothered with it.
func (c *Client) sendQuestion(m resumeMessage, replies string) {
	payload, err := json.Marshal(m)
	if err == nil {
		err = c.nc.PublishMsg(&nats.Msg{
			Subject: c.subjects.resume(c.cfg.Name), Reply: c.subjects.out(c.cfg.Name, replies), Data: payload,
		})
	}
	if err != nil {
		c.cfg.Logger.Warn("resume request not sent", slog.String("request_id", m.ID), slog.Any("error", err))
	}
}
