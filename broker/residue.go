package broker

import (
	"context"
	"errors"
)

// QueueState is what the server says of the queue of a model and priority.
type QueueState struct {
	// Created is the creation time of the consumer, unix milliseconds: the epoch
	// of its leases.
	Created uint64
	// Delivered is the highest sequence that was delivered; what is queued behind
	// it was not. Floor is the sequence up to which everything is settled.
	Delivered, Floor uint64
	// Pending messages were never delivered, AckPending ones are with workers or
	// will be delivered again.
	Pending, AckPending uint64
}

// Queue asks for the state of a queue; [ErrNotStored] when it has no consumer.
func (c *Conn) Queue(ctx context.Context, model string, p Priority) (QueueState, error) {
	return QueueState{}, errors.ErrUnsupported
}

// Queued reads the request at a sequence of the request stream, whether or not
// a worker has it; [ErrNotStored] when there is none any more. It is for those
// that end a request which nobody runs: the delivery has no credit, and its lease
// is nobody's, settles nothing, and orders after every lease that the server
// gave; remove the message with [Conn.Delete].
func (c *Conn) Queued(ctx context.Context, seq uint64) (*Delivery, error) {
	return nil, errors.ErrUnsupported
}

// QueuedFrom is Queued for the first request of a queue at seq or behind it.
func (c *Conn) QueuedFrom(ctx context.Context, model string, p Priority, seq uint64) (*Delivery, error) {
	return nil, errors.ErrUnsupported
}

// Delete removes the request at a sequence from the request stream. One that is
// gone already is no error.
func (c *Conn) Delete(ctx context.Context, seq uint64) error {
	return errors.ErrUnsupported
}

// Residue counts the messages of the request stream, and those that a consumer
// knows: has still to deliver, or has out. What remains between the two, twice
// within some seconds, will never be delivered. The counts are not of one moment.
func (c *Conn) Residue(ctx context.Context) (messages, known uint64, err error) {
	return 0, 0, errors.ErrUnsupported
}
