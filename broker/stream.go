package broker

import (
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"github.com/nats-io/nats.go"
)

// Stream is the token stream of one request, read by one goroutine.
type Stream struct {
	client    *Client
	id, model string
	realtime  bool

	mu      sync.Mutex
	queue   []Frame // bounded by the client's QueueFrames; a terminal frame always fits
	err     error   // why it ended without a terminal frame
	ended   bool    // a terminal frame is queued, or err is set
	track   tracker
	guard   guard
	lost    int
	watches []func() bool // end the watches over context and deadline
	// ready holds a signal when queue or ended changed. Capacity 1: the reader
	// looks at everything when it wakes.
	ready chan struct{}

	done bool // the reader has seen the end; only the reader uses it
}

func newStream(c *Client, model string, o *RequestOptions) *Stream {
	return &Stream{
		client: c, id: o.ID, model: model, realtime: o.Realtime,
		guard: newGuard(o), ready: make(chan struct{}, 1),
	}
}

// ID is the id of the request.
func (s *Stream) ID() string { return s.id }

// Lost is the number of token frames that were dropped because the reader was
// slow, or never arrived. Their text is in the final frame.
func (s *Stream) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost + s.track.holes
}

// Frames yields the frames in order, duplicates of earlier attempts left out,
// and ends with the terminal one: a final frame, or an error frame together
// with its [*Error]. Another end is an error with an empty frame. Breaking the
// loop cancels the request, and so does the end of the request's context.
//
// The texts of the token frames that are not provisional are the output, one
// after the other. A provisional one is the whole text of a search as it looks
// now and takes the place of the one before; a slow reader gets the latest.
func (s *Stream) Frames() iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		for !s.done {
			f, err := s.next()
			if err != nil || f.Type.Terminal() {
				s.done = true
			}
			if !yield(f, err) {
				s.Cancel()
				return
			}
		}
	}
}

// Final reads on to the final frame and returns it, or the error that ended
// the request.
func (s *Stream) Final() (Frame, error) {
	for f, err := range s.Frames() {
		if err != nil || f.Type == FrameFinal {
			return f, err
		}
	}
	return Frame{}, fmt.Errorf("read final: %w", ErrTerminated)
}

// Cancel ends the request, unless it has ended; its stream then ends with
// [ErrCancelled].
func (s *Stream) Cancel() { s.fail(ErrCancelled, true) }

// next waits for a frame. The wait ends with the request's context, which
// fails the stream.
func (s *Stream) next() (Frame, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			f := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			if f.Type == FrameError {
				return f, f.Error
			}
			return f, nil
		}
		if s.ended {
			err := s.err
			s.mu.Unlock()
			if err == nil {
				err = ErrTerminated
			}
			return Frame{}, err
		}
		s.mu.Unlock()
		<-s.ready
	}
}

// wake is called without s.mu.
func (s *Stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// watch keeps a function that ends a watch, to be called when the stream ends.
func (s *Stream) watch(stop func() bool) {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.watches = append(s.watches, stop)
	}
	s.mu.Unlock()
	if ended {
		stop()
	}
}

// finish takes an ended stream out of the client.
func (s *Stream) finish() {
	s.client.remove(s)
	s.mu.Lock()
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()
	for _, stop := range watches {
		stop()
	}
	s.wake()
}

// fail ends the stream with err, unless it has ended.
func (s *Stream) fail(err error, cancel bool) {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.ended, s.err = true, err
	}
	s.mu.Unlock()
	if ended {
		return
	}
	if cancel {
		s.client.sendCancel(s.id)
	}
	s.finish()
}

// receive takes a message: a frame, the server's receipt of the request, or its
// word that nobody takes it.
func (s *Stream) receive(m *nats.Msg) {
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			s.push(s.refusal(NewError(CodeUnknownModel, "no worker serves model "+s.model)))
		}
		return
	}
	if m.Data[0] == '{' {
		if e, duplicate, ok := receipt(m.Data); ok {
			if duplicate && s.onceOnly() {
				e = badRequest("id %s: in use by another request", s.id)
			}
			s.heard("")
			if e != nil {
				s.push(s.refusal(e))
			}
			return
		}
	}
	f, err := DecodeFrame(m.Data)
	if err != nil {
		s.client.cfg.Logger.Warn("malformed frame ignored")
		return
	}
	s.heard(f.Type)
	s.push(f)
}

func (s *Stream) refusal(e *Error) Frame { return Frame{Type: FrameError, ID: s.id, Error: e} }

// push queues a frame, or drops it when it says nothing new or does not fit.
func (s *Stream) push(f Frame) {
	s.mu.Lock()
	if s.ended || !s.track.accept(&f) {
		s.mu.Unlock()
		return
	}
	last := len(s.queue) - 1
	switch {
	case f.Type.Terminal():
		s.ended = true
	case f.Provisional && last >= 0 && s.queue[last].Provisional:
		s.queue = s.queue[:last] // only the latest is worth reading
	case len(s.queue) >= s.client.cfg.QueueFrames:
		if f.Type == FrameToken && !f.Provisional {
			s.lost++
		}
		s.mu.Unlock()
		return
	}
	s.queue = append(s.queue, f)
	ended := s.ended
	s.mu.Unlock()
	if ended {
		s.finish()
		return
	}
	s.wake()
}

// The server's error numbers that a publisher sees.
const (
	apiMaxMessages = 10077 // stream or subject is full
	apiTooMany     = 10167 // the stream cannot keep up
	apiTooLarge    = 10054
)

// receipt reads the server's answer to a durable request. ok is false when the
// payload is something else, e nil when the request was stored, now or, as a
// duplicate, before.
func receipt(payload []byte) (e *Error, duplicate, ok bool) {
	var r struct {
		Stream string `json:"stream"`
		Type   string `json:"type"`
		Dup    bool   `json:"duplicate"`
		Error  *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	err := json.Unmarshal(payload, &r)
	if ok = err == nil && r.Type == "" && (r.Stream != "" || r.Error != nil); !ok {
		return nil, false, false
	}
	if r.Error == nil {
		return nil, r.Dup, true
	}
	text := r.Error.Description
	switch r.Error.ErrCode {
	case apiMaxMessages:
		e = NewError(CodeBusy, "request queue is full")
		if text == perSubjectText {
			e = NewError(CodeQuotaExceeded, "too many queued requests of this client for this model and priority")
		}
		e.RetryAfter = busyRetry
	case apiTooMany:
		e = NewError(CodeBusy, "request queue cannot keep up")
		e.RetryAfter = busyRetry
	case apiTooLarge:
		e = NewError(CodePayloadTooLarge, "request is larger than the queue takes")
	default:
		e = NewError(CodeInternal, fmt.Sprintf("request not stored: %s (%d)", clip(text), r.Error.ErrCode))
	}
	return e, false, true
}

// perSubjectText tells the two causes of apiMaxMessages apart: the server has
// one number for both.
const perSubjectText = "maximum messages per subject exceeded"
