package broker

import "errors"

// PublisherConfig describes a [Publisher].
type PublisherConfig struct {
	// Worker is named in accepted frames.
	Worker string
	// Gone is called once for a stream whose frames nobody has been listening
	// to for at least a second; nil is no watch. It runs on the subscription's
	// goroutine and must not block.
	Gone func(*TokenStream)
}

// Publisher sends frames. It is safe for concurrent use.
type Publisher struct{}

// Publisher returns a publisher on this connection.
func (c *Conn) Publisher(cfg PublisherConfig) (*Publisher, error) {
	return nil, errors.New("publisher: not connected")
}

// Close stops the watch for absent listeners.
func (p *Publisher) Close() error { return nil }

// Stream opens the token stream that answers d. End it with a terminal frame,
// Retry or Abandon.
func (p *Publisher) Stream(d *Delivery) *TokenStream { return &TokenStream{} }

// TokenStream is the ordered frames of one lease. Its methods are safe for
// concurrent use. After a terminal frame, Retry or Abandon every method
// returns [ErrTerminated]. Frames only use the arguments during the call.
type TokenStream struct{}

// ID is the id of the request.
func (s *TokenStream) ID() string { return "" }

// Accepted says that a lease was taken. Model, Version and Digest of f count.
func (s *TokenStream) Accepted(f *Frame) error { return ErrTerminated }

// Token sends new tokens: Text, Tokens, Index, LogProbs, Provisional and
// Revision of f count. It does not allocate.
func (s *TokenStream) Token(f *Frame) error { return ErrTerminated }

// Heartbeat says that the request is alive in a phase.
func (s *TokenStream) Heartbeat(phase string) error { return ErrTerminated }

// Final ends the stream with the whole output: Text, Tokens, Model, Version,
// Digest, Final and Meta of f count. Settle the lease after it.
func (s *TokenStream) Final(f *Frame) error { return ErrTerminated }

// Fail ends the stream with an error. Reject or settle the lease after it.
func (s *TokenStream) Fail(e *Error, meta Meta) error { return ErrTerminated }

// Retry ends this lease's stream: the request was handed back and another
// attempt will go on. Release the lease after it.
func (s *TokenStream) Retry() error { return ErrTerminated }

// Abandon ends the stream without a frame, for a lost lease.
func (s *TokenStream) Abandon() {}
