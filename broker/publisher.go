package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// goneAfter is how long nobody may listen to a token stream before it counts
// as abandoned: long enough for a client to reconnect.
const goneAfter = time.Second

// PublisherConfig describes a [Publisher].
type PublisherConfig struct {
	// Worker is named in accepted frames.
	Worker string
	// Gone is called once for a stream whose frames nobody has been listening
	// to for at least a second; nil is no watch. It runs on the subscription's
	// goroutine and must not block.
	Gone func(*TokenStream)
}

// Publisher sends frames. Terminal frames that nobody heard are sent again for
// up to 15 s, and those that may have been lost with a connection when there is
// another one, as far as there is room for them. It is safe for concurrent use.
type Publisher struct {
	conn *Conn
	cfg  PublisherConfig
	// inbox is the reply subject of frames that are not terminal: the server
	// answers there when nobody listens.
	inbox string
	sub   *nats.Subscription
	last  *resender

	mu   sync.Mutex
	live map[string][]*TokenStream // by reply subject, for the watch
}

// Publisher returns a publisher on this connection.
func (c *Conn) Publisher(cfg PublisherConfig) (*Publisher, error) {
	inbox := c.nc.NewInbox()
	p := &Publisher{
		conn: c, cfg: cfg, live: map[string][]*TokenStream{},
		inbox: inbox + ".0", last: newResender(inbox, c.send),
	}
	sub, err := c.nc.Subscribe(inbox+".*", p.unheard)
	if err != nil {
		return nil, fmt.Errorf("watch for absent listeners: %w", err)
	}
	p.sub = sub
	c.mu.Lock()
	c.publishers = append(c.publishers, p)
	c.mu.Unlock()
	return p, nil
}

// Close stops the watch for absent listeners. No terminal frame is sent again any
// more.
func (p *Publisher) Close() error {
	c := p.conn
	c.mu.Lock()
	c.publishers = slices.DeleteFunc(c.publishers, func(other *Publisher) bool { return other == p })
	c.mu.Unlock()
	p.last.close()
	if err := p.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("end watch: %w", err)
	}
	return nil
}

// unheard takes the server's word that a frame had no listener.
func (p *Publisher) unheard(m *nats.Msg) {
	const noResponders = "503"
	if m.Header.Get("Status") != noResponders {
		return
	}
	p.last.missed(turnOf(m.Subject))
	if p.cfg.Gone == nil {
		return
	}
	p.mu.Lock()
	streams := slices.Clone(p.live[m.Header.Get("Nats-Subject")])
	p.mu.Unlock()
	now := time.Now()
	for _, s := range streams {
		if s.countUnheard(now) {
			p.cfg.Gone(s)
		}
	}
}

// Stream opens the token stream that answers d. End it with a terminal frame,
// Retry or Abandon.
func (p *Publisher) Stream(d *Delivery) *TokenStream {
	s := &TokenStream{publisher: p, request: d.Request, lease: d.Lease}
	if p.cfg.Gone != nil && d.Request.Reply != "" {
		p.mu.Lock()
		p.live[d.Request.Reply] = append(p.live[d.Request.Reply], s)
		p.mu.Unlock()
	}
	return s
}

// forget drops s from the watch.
func (p *Publisher) forget(s *TokenStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply := s.request.Reply
	left := slices.DeleteFunc(p.live[reply], func(other *TokenStream) bool { return other == s })
	if len(left) == 0 {
		delete(p.live, reply)
		return
	}
	p.live[reply] = left
}

// TokenStream is the ordered frames of one lease. Its methods are safe for
// concurrent use. After a terminal frame, Retry or Abandon every method
// returns [ErrTerminated]. Frames only use the arguments during the call. When
// a method fails nothing was sent, and the stream goes on as before.
type TokenStream struct {
	publisher *Publisher
	request   *Request
	lease     *Lease

	mu    sync.Mutex
	seq   uint64
	ended bool
	frame Frame  // scratch: what is being encoded
	buf   []byte // scratch: its encoding; the connection copies it

	watch        sync.Mutex // guards what follows; never held across a call
	firstUnheard time.Time  // of the present run of unheard frames
	lastUnheard  time.Time
	gone         bool
}

// ID is the id of the request.
func (s *TokenStream) ID() string { return s.request.ID }

// Frames is the number of frames sent so far.
func (s *TokenStream) Frames() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// Request is the request that the stream answers.
func (s *TokenStream) Request() *Request { return s.request }

// Accepted says that a lease was taken. Model, Version and Digest of f count.
func (s *TokenStream) Accepted(f *Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{Type: FrameAccepted, Worker: s.publisher.cfg.Worker, Model: f.Model, Version: f.Version, Digest: f.Digest}
	return s.emit()
}

// Token sends new tokens: Text, Tokens, Index, LogProbs, Provisional and
// Revision of f count. It does not allocate.
func (s *TokenStream) Token(f *Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{
		Type: FrameToken, Text: f.Text, Tokens: f.Tokens, Index: f.Index, LogProbs: f.LogProbs,
		Provisional: f.Provisional, Revision: f.Revision,
	}
	return s.emit()
}

// Heartbeat says that the request is alive in a phase.
func (s *TokenStream) Heartbeat(phase string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{Type: FrameHeartbeat, Phase: phase}
	return s.emit()
}

// Final ends the stream with the whole output: Text, Tokens, LogProbs, Model,
// Version, Digest, Final and Meta of f count. Settle the lease after it. An output that
// does not fit into a message is [ErrFrameTooLarge]; Fail then ends the stream.
func (s *TokenStream) Final(f *Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{
		Type: FrameFinal, Text: f.Text, Tokens: f.Tokens, LogProbs: f.LogProbs,
		Model: f.Model, Version: f.Version, Digest: f.Digest, Final: f.Final, Meta: f.Meta,
	}
	return s.emitLast()
}

// Fail ends the stream with an error. Reject or settle the lease after it.
func (s *TokenStream) Fail(e *Error, meta Meta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{Type: FrameError, Error: e, Meta: meta}
	return s.emitLast()
}

// Encoded is a terminal frame as it goes on the wire, with its lease in it. It
// owns its bytes, so it may be stored and sent later.
type Encoded struct {
	// Type is final or error.
	Type FrameType
	// Frame is the encoded frame.
	Frame []byte
}

// storeHeadroom is what a stored frame needs beside its bytes: its subject and
// its headers.
const storeHeadroom = 512

// Terminal encodes a terminal frame, without sending it, so that it can be
// stored before: Type of f is final or error, and the fields that Final or Fail
// of this stream would use count. [TokenStream.SendTerminal] sends it. An output
// that does not fit into a message with the headers of a store is
// [ErrFrameTooLarge]. Other frames may be sent in between; then one of them has
// the number of the terminal frame, which counts whatever its number is.
func (s *TokenStream) Terminal(f *Frame) (Encoded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.frame = Frame{} }()
	switch f.Type {
	case FrameFinal:
		s.frame = Frame{
			Type: FrameFinal, Text: f.Text, Tokens: f.Tokens, LogProbs: f.LogProbs,
			Model: f.Model, Version: f.Version, Digest: f.Digest, Final: f.Final, Meta: f.Meta,
		}
	case FrameError:
		s.frame = Frame{Type: FrameError, Error: f.Error, Meta: f.Meta}
	default:
		return Encoded{}, fmt.Errorf("terminal frame of type %q: not final or error", f.Type)
	}
	if s.ended {
		return Encoded{}, ErrTerminated
	}
	b, err := s.encode(nil)
	if err != nil {
		return Encoded{}, err
	}
	if limit := s.publisher.conn.nc.MaxPayload(); limit > 0 && int64(len(b)) > limit-storeHeadroom {
		return Encoded{}, fmt.Errorf("%s frame: %w: %d bytes, limit %d", f.Type, ErrFrameTooLarge, len(b), limit-storeHeadroom)
	}
	return Encoded{Type: f.Type, Frame: b}, nil
}

// SendTerminal sends what Terminal returned and ends the stream. Settle or
// reject the lease after it.
func (s *TokenStream) SendTerminal(e Encoded) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrTerminated
	}
	if !e.Type.Terminal() {
		return fmt.Errorf("terminal frame of type %q: not final or error", e.Type)
	}
	if err := s.publisher.last.send(s.request.Reply, e.Frame); err != nil {
		return fmt.Errorf("publish %s frame: %w", e.Type, err)
	}
	s.end()
	return nil
}

// Replay ends the stream with the terminal frame of an earlier lease, in either
// encoding. It goes out as one of this lease: a client ignores the frames of
// earlier ones. Settle the lease after it. What is no terminal frame is
// [ErrBadRecord]; one that this request's encoding or the server cannot carry is
// [ErrNotEncoded] or [ErrFrameTooLarge]. Fail then ends the stream.
func (s *TokenStream) Replay(frame []byte) error {
	f, err := DecodeFrame(frame)
	if err != nil {
		return fmt.Errorf("replay: %w: %w", ErrBadRecord, err)
	}
	if !f.Type.Terminal() {
		return fmt.Errorf("replay: %w", badRecord("frame of type %q: not final or error", clip(string(f.Type))))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = f
	return s.emitLast()
}

// Cumulative sends the whole output so far: Text, Tokens and LogProbs of f
// count, and Index and Provisional are zero. Readers that have a part of it
// skip that, and those that lost a frame, or come late, have no hole any more. It
// does not allocate.
func (s *TokenStream) Cumulative(f *Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{Type: FrameToken, Text: f.Text, Tokens: f.Tokens, LogProbs: f.LogProbs}
	return s.emit()
}

// Retry ends this lease's stream: the request was handed back and another
// attempt will go on. Release the lease after it.
func (s *TokenStream) Retry() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = Frame{Type: FrameRetry}
	return s.emitLast()
}

// Abandon ends the stream without a frame, for a lost lease.
func (s *TokenStream) Abandon() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.publisher.forget(s)
}

func (s *TokenStream) emitLast() error {
	if err := s.emit(); err != nil {
		return err
	}
	s.end()
	return nil
}

// end is called with mu held.
func (s *TokenStream) end() {
	s.ended = true
	s.publisher.forget(s)
}

// encode appends the encoding of s.frame, stamped with the lease, to dst. It is
// called with mu held.
func (s *TokenStream) encode(dst []byte) ([]byte, error) {
	f := &s.frame
	f.ID, f.Epoch, f.Attempt, f.Seq = s.request.ID, s.lease.Epoch, s.lease.Attempt, s.seq
	b, err := AppendFrame(dst, s.request.Encoding, f)
	if err != nil {
		return nil, fmt.Errorf("encode %s frame: %w: %w", f.Type, ErrNotEncoded, err)
	}
	return b, nil
}

// emit sends s.frame. It runs under s.mu, so that the order on the wire is the
// order of seq.
func (s *TokenStream) emit() error {
	f := &s.frame
	defer func() { s.frame = Frame{} }() // keep nothing of the caller's
	if s.ended {
		return ErrTerminated
	}
	b, err := s.encode(s.buf[:0])
	if err != nil {
		return err
	}
	s.buf = b
	if f.Type.Terminal() {
		err = s.publisher.last.send(s.request.Reply, b)
	} else {
		err = s.publisher.conn.send(s.request.Reply, s.publisher.inbox, b)
	}
	if err != nil {
		return fmt.Errorf("publish %s frame: %w", f.Type, err)
	}
	s.seq++
	return nil
}

// countUnheard reports whether the client counts as gone now, once. Frames are
// sent at least every second, so a longer pause means that some were heard.
func (s *TokenStream) countUnheard(now time.Time) bool {
	s.watch.Lock()
	defer s.watch.Unlock()
	if s.gone {
		return false
	}
	if s.firstUnheard.IsZero() || now.Sub(s.lastUnheard) > 3*goneAfter {
		s.firstUnheard = now
	}
	s.lastUnheard = now
	s.gone = now.Sub(s.firstUnheard) >= goneAfter
	return s.gone
}

// send publishes a frame.
func (c *Conn) send(subject, reply string, payload []byte) error {
	var err error
	if reply == "" {
		err = c.nc.Publish(subject, payload)
	} else {
		err = c.nc.PublishRequest(subject, reply, payload)
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrFrameTooLarge, len(payload), c.nc.MaxPayload())
	}
	return err
}
