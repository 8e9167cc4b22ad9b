package broker

import (
	"errors"
	"fmt"
	"time"
)

// Code names the kind of a failure on the wire.
type Code string

// The codes of the protocol.
const (
	CodeBadRequest           Code = "bad_request"
	CodeUnknownModel         Code = "unknown_model"
	CodeUnknownVersion       Code = "unknown_version"
	CodeUnsupportedParameter Code = "unsupported_parameter"
	CodeInputTooLong         Code = "input_too_long"
	CodePayloadTooLarge      Code = "payload_too_large"
	CodeBusy                 Code = "busy"
	CodeQuotaExceeded        Code = "quota_exceeded"
	CodeDeadlineExceeded     Code = "deadline_exceeded"
	CodeNumericalError       Code = "numerical_error"
	CodeAttemptsExhausted    Code = "attempts_exhausted"
	CodeShuttingDown         Code = "shutting_down"
	CodeInternal             Code = "internal"
)

// Error is a failure as the wire carries it: the body of an error frame, and
// what a [Client] returns for a request that ended with one.
type Error struct {
	Code    Code
	Message string
	// Retryable says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long to wait before a retry; 0 when there is no advice.
	RetryAfter time.Duration
}

// Error returns "code: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is reports whether target is an [*Error] with the same code, so that
// errors.Is(err, &Error{Code: CodeBusy}) asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

var (
	// ErrLeaseLost means that the lease's own deadline has passed. Nothing was sent; the
	// message is or will be somebody else's.
	ErrLeaseLost = errors.New("lease lost")
	// ErrSettled means that the lease was settled, released or rejected before. Nothing
	// was sent.
	ErrSettled = errors.New("lease already settled")
	// ErrNotRedelivered means that the request came over the core path, which never
	// delivers a second time, so there is nothing to hand back.
	ErrNotRedelivered = errors.New("core requests are never redelivered")
	// ErrTerminated means that the token stream has had its terminal frame. Nothing was
	// sent.
	ErrTerminated = errors.New("token stream has ended")
	// ErrFrameTooLarge means that the frame exceeds the server's payload limit. Nothing
	// was sent; the stream still needs a terminal frame.
	ErrFrameTooLarge = errors.New("frame exceeds the payload limit")
	// ErrSealed means that an operator has sealed a stream, for good: it takes no
	// messages. Nothing was changed; deleted, it is made again.
	ErrSealed = errors.New("stream is sealed and takes no messages; delete it to have it made again")
	// ErrNoJetStream means that the server runs without JetStream.
	ErrNoJetStream = errors.New("server has no JetStream")
	// ErrNotEncoded means that the request's encoding cannot carry the frame. Nothing
	// was sent; the stream still needs a terminal frame.
	ErrNotEncoded = errors.New("frame has no such encoding")
	// ErrCancelled means that the reader cancelled the request.
	ErrCancelled = errors.New("request cancelled")
	// ErrNoReceipt means that the server did not confirm a durable request, which
	// was published several times under its id. An [*Error] comes with it that is
	// retryable.
	ErrNoReceipt = errors.New("no receipt")
	// ErrSilent means that a request was taken, nothing was heard of it, and as far
	// as the workers can tell the queue has it no more.
	ErrSilent = errors.New("nothing heard")
	// ErrAnswerNotKept means that a durable request was published more than once,
	// for want of a receipt; that the queue had its id before; and that the workers
	// know of no request, and no answer, under it any more. It was served, or given
	// up, and its answer was not stored or is forgotten; or, as ids are compared over
	// all clients, the id is another client's. Sent again under a new id it may run a
	// second time.
	ErrAnswerNotKept = errors.New("the queue took this id before, and no answer to it is kept")
	// ErrNotStored means that there is no such record: none was stored, or it was
	// dropped since.
	ErrNotStored = errors.New("not stored")
	// ErrStoreFull means that too many finals wait for their verdict. Nothing was
	// sent; try again when some have it.
	ErrStoreFull = errors.New("too many finals are being stored")
	// ErrNoVerdict means that the server did not say in time whether it stored a
	// final. It may have.
	ErrNoVerdict = errors.New("no verdict on the final")
	// ErrBadRecord means that a stored record is malformed, or is not what its
	// subject says.
	ErrBadRecord = errors.New("malformed record")
	// ErrTruncated means that a dead letter lacks what was asked of it, since that
	// did not fit into a message.
	ErrTruncated = errors.New("truncated letter")
	// ErrClosed means that the client or connection is closed.
	ErrClosed = errors.New("closed")
)

// NewError returns an error of a code; the code says whether it is retryable.
func NewError(code Code, message string) *Error {
	e := &Error{Code: code, Message: message}
	switch code {
	case CodeBusy, CodeQuotaExceeded, CodeShuttingDown:
		e.Retryable = true
	}
	return e
}

func badRequest(format string, args ...any) *Error {
	return NewError(CodeBadRequest, fmt.Sprintf(format, args...))
}
