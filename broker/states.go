package broker

import (
	"context"
	"errors"
	"time"
)

// State is what is remembered of a request whose run was interrupted.
type State struct {
	// Client and ID name the request.
	Client, ID string
	// Digest of the model that made the checkpoint.
	Digest string
	// Request is the [Request.Hash] of the request.
	Request uint64
	// Excused counts the attempts that do not count as failures.
	Excused int
	// Checkpoint is where the run can go on; empty is from the start.
	Checkpoint []byte
}

// SaveState stores s in the place of what was stored for the request before,
// for as long as ttl and at most as long as the stream keeps states; a ttl of
// zero is that. It waits for the server's confirmation, through elections, until
// ctx ends. A state that does not fit into a message is [nats.ErrMaxPayload].
func (c *Conn) SaveState(ctx context.Context, s *State, ttl time.Duration) error {
	return errors.ErrUnsupported
}

// SaveStateAsync is SaveState without the wait: when the server does not
// store the state nobody hears of it. The message is copied before it returns.
func (c *Conn) SaveStateAsync(s *State, ttl time.Duration) error {
	return errors.ErrUnsupported
}

// State returns what is stored of a request, [ErrNotStored] when it is nothing.
func (c *Conn) State(ctx context.Context, client, id string) (*State, error) {
	return nil, errors.ErrUnsupported
}
