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
	replies   string // where answers to its resume requests go, instead of the id
	realtime  bool
	attached  bool // the request is not this stream's: its end is not the request's

	mu      sync.Mutex
	queue   []Frame // see enqueue for its bound
	err     error   // why it ended without a terminal frame
	ended   bool    // a terminal frame is queued, or err is set
	track   tracker
	guard   guard
	resume  resuming
	stored  uint64        // the sequence in the queue; 0: not known
	watches []func() bool // end the watches over context and deadline
	// ready holds a signal when queue or ended changed. Capacity 1: the reader
	// looks at everything when it wakes.
	ready chan struct{}

	done bool // the reader has seen the end; only the reader uses it
}

func newStream(c *Client, model string, o *RequestOptions) *Stream {
	return &Stream{
		client: c, id: o.ID, model: model, replies: c.ids.next(), realtime: o.Realtime,
		track: tracker{whole: o.Mode == ModeFinal}, guard: newGuard(o), ready: make(chan struct{}, 1),
	}
}

// ID is the id of the request.
func (s *Stream) ID() string { return s.id }

// Sequence is the request's place in the queue, as its receipt said, for
// [Client.CancelAt]; 0 before there is one, and on the realtime path. It is safe
// for concurrent use.
func (s *Stream) Sequence() uint64 { return s.sequence() }

// Lost is the number of frames that never arrived. Their output comes all the
// same, later: with a frame that repeats it, or before the final frame.
func (s *Stream) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.track.holes
}

// Frames yields the frames in order, duplicates of earlier attempts left out,
// and ends with the terminal one: a final frame, or an error frame together
// with its [*Error]. Another end is an error with an empty frame. Breaking the
// loop cancels the request, and so does the end of the request's context; an
// attached stream only stops reading.
//
// The texts of the token frames that are not provisional are the output, one
// after the other without a gap, whatever was lost on the way; what a final frame
// has beyond them comes as a token frame before it, without candidates. A slow
// reader gets several frames as one. A provisional frame is the whole text of a
// search as it looks now and takes the place of the one before; a slow reader gets
// the latest.
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
// [ErrCancelled]. Of an attached stream only the stream ends.
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
	if cancel && !s.attached {
		s.client.sendCancel(s.id, s.sequence())
	}
	s.finish()
}

// sequence is that of the request in the queue, as its receipt said; 0 when
// there was none.
func (s *Stream) sequence() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// receive takes a message: a frame, the server's receipt of the request or its
// word that nobody takes it, or an answer to a resume request.
func (s *Stream) receive(m *nats.Msg) {
	if len(m.Data) == 0 {
		switch absent := m.Header.Get("Status") == "503"; {
		case absent && lastToken(m.Subject) == s.replies:
			s.unanswered()
		case absent && s.realtime:
			s.push(s.refusal(s.unserved()), false)
		case absent:
			s.absent()
		}
		return
	}
	if m.Data[0] == '{' {
		if lastToken(m.Subject) == s.replies && s.streamsTold(m.Data) {
			return
		}
		if e, r, ok := receipt(m.Data); ok {
			s.receipt(e, r)
			return
		}
	}
	f, err := DecodeFrame(m.Data)
	if err == nil && f.Type == frameResume {
		var state ResumeState
		if state, err = resumeState(m.Data); err == nil {
			s.resumed(state)
			return
		}
	}
	if err != nil {
		s.client.cfg.Logger.Warn("malformed frame ignored")
		return
	}
	s.heard(f.Type)
	s.push(f, len(m.Header) > 0 && m.Header.Get(HeaderStored) != "")
}

// receipt takes the server's answer to the request's publication.
func (s *Stream) receipt(e *Error, r stored) {
	doubt := r.duplicate && !s.onceOnly()
	if r.duplicate && !doubt {
		e = inUse(s.id)
	}
	s.heard("")
	if e != nil {
		s.push(s.refusal(e), false)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = r.sequence
	// An attached stream has published nothing: a receipt says nothing of it.
	if s.guard.doubt = doubt && !s.ended && s.guard.timer != nil; s.guard.doubt {
		s.guard.timer.Reset(0) // the workers can tell
	}
}

func (s *Stream) refusal(e *Error) Frame { return Frame{Type: FrameError, ID: s.id, Error: e} }

// push queues what is news in a frame. A stored one was read back.
func (s *Stream) push(f Frame, stored bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	news := s.track.accept(&f, stored)
	if !f.Type.Terminal() {
		s.note(news && f.output())
	}
	if !news {
		s.mu.Unlock()
		return
	}
	if f.Type.Terminal() {
		if rest, ok := s.track.rest(&f); ok {
			s.enqueue(rest)
		}
		s.ended = true
	}
	s.enqueue(f)
	ended := s.ended
	s.mu.Unlock()
	if ended {
		s.finish()
		return
	}
	s.wake()
}

// enqueue puts a frame where the reader finds it. The queue has at most the
// client's QueueFrames frames, and beside them one that takes in all further
// output, which the output's own bound limits, and the terminal frame. It is called with
// mu held.
func (s *Stream) enqueue(f Frame) {
	last := len(s.queue) - 1
	switch {
	case f.Provisional && last >= 0 && s.queue[last].Provisional:
		s.queue[last] = f // only the latest is worth reading
	case f.Type.Terminal(), len(s.queue) < s.client.cfg.QueueFrames:
		s.queue = append(s.queue, f)
	case !f.output(): // says nothing that a slow reader misses
	case s.queue[last].output():
		s.queue[last].merge(&f)
	default:
		s.queue = append(s.queue, f)
	}
}

// output reports whether f is a token frame whose tokens and text are output.
func (f *Frame) output() bool { return f.Type == FrameToken && !f.Provisional }

// merge takes in the output that follows f's. Tokens whose candidates are not
// known have none.
func (f *Frame) merge(next *Frame) {
	if len(f.LogProbs) > 0 || len(next.LogProbs) > 0 {
		f.LogProbs = append(aligned(f.LogProbs, len(f.Tokens)), aligned(next.LogProbs, len(next.Tokens))...)
	}
	f.Epoch, f.Attempt, f.Seq = next.Epoch, next.Attempt, next.Seq
	f.Text += next.Text
	f.Tokens = append(f.Tokens, next.Tokens...)
}

// aligned returns the candidates of n tokens, or none for each of them.
func aligned(logProbs [][]TokenLogProb, n int) [][]TokenLogProb {
	if len(logProbs) == n {
		return logProbs
	}
	return make([][]TokenLogProb, n)
}

// The server's error numbers that a publisher sees.
const (
	apiMaxMessages = 10077 // stream or subject is full
	apiTooMany     = 10167 // the stream cannot keep up
	apiTooLarge    = 10054
)

// stored is what a receipt says of a request that was stored.
type stored struct {
	sequence  uint64
	duplicate bool // it was stored before
}

// receipt reads the server's answer to a durable request. ok is false when the
// payload is something else, e nil when the request was stored, now or before.
func receipt(payload []byte) (e *Error, s stored, ok bool) {
	var r struct {
		Stream string `json:"stream"`
		Type   string `json:"type"`
		Seq    uint64 `json:"seq"`
		Dup    bool   `json:"duplicate"`
		Error  *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	err := json.Unmarshal(payload, &r)
	if ok = err == nil && r.Type == "" && (r.Stream != "" || r.Error != nil); !ok {
		return nil, stored{}, false
	}
	if r.Error == nil {
		return nil, stored{sequence: r.Seq, duplicate: r.Dup}, true
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
	return e, stored{}, true
}

// perSubjectText tells the two causes of apiMaxMessages apart: the server has
// one number for both.
const perSubjectText = "maximum messages per subject exceeded"
