package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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

// known counts the messages that will be delivered, or are.
func (q *QueueState) known() uint64 { return q.Pending + q.AckPending }

// Queue asks for the state of a queue; [ErrNotStored] when it has no consumer.
func (c *Conn) Queue(ctx context.Context, model string, p Priority) (QueueState, error) {
	if !ValidModel(model) || !p.valid() {
		return QueueState{}, fmt.Errorf("ask for queue: %w: model %q, priority %q", ErrBadRecord, clip(model), clip(string(p)))
	}
	name := consumerName(model, p)
	consumer, err := c.js.Consumer(ctx, c.cfg.Stream.Name, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return QueueState{}, fmt.Errorf("ask for consumer %s: %w", name, ErrNotStored)
	}
	if err != nil {
		return QueueState{}, fmt.Errorf("ask for consumer %s: %w", name, err)
	}
	info := consumer.CachedInfo()
	return QueueState{
		Created:   uint64(info.Created.UnixMilli()),
		Delivered: info.Delivered.Stream, Floor: info.AckFloor.Stream,
		Pending: info.NumPending, AckPending: uint64(max(info.NumAckPending, 0)),
	}, nil
}

// Residue counts the messages of the request stream, and those that a consumer
// knows: has still to deliver, or has out. The consumers are asked before and
// after the stream, and the larger number counts, so that what comes and goes
// meanwhile is no residue. What remains between the two twice within some seconds
// will never be delivered, unless its model's consumer is about to be made.
func (c *Conn) Residue(ctx context.Context) (messages, known uint64, err error) {
	queues, _, err := c.requests(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("count residue: %w", err)
	}
	most := make([]uint64, len(queues))
	for turn := range 2 {
		if turn == 1 {
			if _, messages, err = c.requests(ctx); err != nil {
				return 0, 0, fmt.Errorf("count residue: %w", err)
			}
		}
		for i, q := range queues {
			state, err := c.Queue(ctx, q.model, q.priority)
			if err != nil && !errors.Is(err, ErrNotStored) {
				return 0, 0, fmt.Errorf("count residue: %w", err)
			}
			most[i] = max(most[i], state.known())
		}
	}
	for _, n := range most {
		known += n
	}
	return messages, known, nil
}

// queueName is a model and a priority.
type queueName struct {
	model    string
	priority Priority
}

// requests lists the queues of the request stream, and counts its messages.
func (c *Conn) requests(ctx context.Context) (queues []queueName, messages uint64, err error) {
	s, err := c.js.Stream(ctx, c.cfg.Stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info := s.CachedInfo()
	for _, subject := range info.Config.Subjects {
		model, priority, _, err := c.subjects.parseRequest(subject)
		if ValidModel(model) && priority.valid() && err != nil { // the client is a wildcard
			queues = append(queues, queueName{model, priority})
		}
	}
	return queues, info.State.Msgs, nil
}

// Queued reads the request at a sequence of the request stream, whether or not
// a worker has it; [ErrNotStored] when there is none any more. It is for those
// that end a request which nobody runs: the delivery has no credit, and its lease
// is nobody's, settles nothing, and orders after every lease that the server
// gave; remove the message with [Conn.Delete].
func (c *Conn) Queued(ctx context.Context, seq uint64) (*Delivery, error) {
	return c.queued(ctx, fmt.Appendf(nil, `{"seq":%d}`, seq))
}

// QueuedFrom is Queued for the first request of a queue at seq or behind it.
func (c *Conn) QueuedFrom(ctx context.Context, model string, p Priority, seq uint64) (*Delivery, error) {
	if !ValidModel(model) || !p.valid() {
		return nil, fmt.Errorf("read request: %w: model %q, priority %q", ErrBadRecord, clip(model), clip(string(p)))
	}
	return c.queued(ctx, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, max(seq, 1), c.subjects.queue(model, p)))
}

func (c *Conn) queued(ctx context.Context, get []byte) (*Delivery, error) {
	r, err := c.leaderGet(ctx, c.cfg.Stream.Name, get)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if c.created() == 0 {
		if err := c.askCreated(ctx); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	req, bad := c.decoder().durable(message{subject: r.subject, header: r.header, payload: r.data}, r.sequence, r.at, time.Now())
	lease := &Lease{Epoch: c.epoch(consumerName(req.Model, req.Priority)), Attempt: math.MaxInt32}
	if n := c.cfg.Stream.MaxDeliver; n > 0 {
		lease.Attempt = uint64(n) + 1
	}
	if lease.Epoch == 0 { // not a queue of ours
		switch state, err := c.Queue(ctx, req.Model, req.Priority); {
		case err == nil:
			lease.Epoch = state.Created
		case errors.Is(err, ErrNotStored), errors.Is(err, ErrBadRecord):
			lease.Epoch = uint64(time.Now().UnixMilli())
		default:
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	return &Delivery{Request: req, Err: bad, Lease: lease}, nil
}

// Delete removes the request at a sequence from the request stream. One that is
// gone already is no error.
func (c *Conn) Delete(ctx context.Context, seq uint64) error {
	if err := c.deleteMessage(ctx, c.cfg.Stream.Name, seq); err != nil {
		return fmt.Errorf("delete request %d: %w", seq, err)
	}
	return nil
}
