package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// CancelReply is the answer to a cancel request.
type CancelReply struct {
	ID    string
	State CancelState
}

// Cancel asks the workers to stop a request of this client. State is
// [CancelUnknown] when no worker answers in time: it may be queued, and then
// ends when a worker takes it. Of a request whose stream is open here, and of one
// whose id the workers made, the place in the queue is known, and a queued one is
// taken out at once.
func (c *Client) Cancel(ctx context.Context, id string) (CancelReply, error) {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	var sequence uint64
	if s != nil {
		sequence = s.sequence()
	}
	return c.CancelAt(ctx, id, sequence)
}

// CancelAt is Cancel for a request whose sequence in the queue is known, as the
// receipt of a plain publication says it; 0 is not known.
func (c *Client) CancelAt(ctx context.Context, id string, sequence uint64) (CancelReply, error) {
	reply := CancelReply{ID: id, State: CancelUnknown}
	if !ValidID(id) {
		return reply, badID(id)
	}
	payload, err := json.Marshal(cancelMessage{ID: id, Sequence: sequence})
	if err != nil {
		return reply, fmt.Errorf("cancel: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, c.cfg.CancelTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(wait, c.subjects.cancel(c.cfg.Name), payload)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return reply, fmt.Errorf("cancel: %w", ctx.Err())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return reply, nil
	default:
		return reply, fmt.Errorf("cancel: %w", err)
	}
	var answer cancelMessage
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.ID != id {
		return reply, errors.New("cancel: malformed answer")
	}
	reply.State = answer.State
	return reply, nil
}

// sendCancel asks without waiting for an answer.
func (c *Client) sendCancel(id string, sequence uint64) {
	payload, err := json.Marshal(cancelMessage{ID: id, Sequence: sequence})
	if err == nil {
		err = c.nc.Publish(c.subjects.cancel(c.cfg.Name), payload)
	}
	if err != nil {
		c.cfg.Logger.Warn("cancel not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}
