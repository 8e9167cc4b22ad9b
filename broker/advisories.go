package broker

import (
	"context"
	"errors"
	"time"
)

// Advisory is the server's word that it delivers a request no more, since it
// was delivered as often as its consumer allows.
type Advisory struct {
	// Model and Priority of the queue.
	Model    string
	Priority Priority
	// Sequence of the request, for [Conn.Queued] and [Conn.Delete].
	Sequence uint64
	// Deliveries that were made.
	Deliveries uint64
	// At is when the server gave up.
	At time.Time
}

// Advisories hands the advisories to handle, one after the other, until ctx
// ends, and then returns nil. All workers share them: each goes to one worker at
// a time, and again to one, after a while, when handle fails or its worker dies.
// The context of handle ends when the advisory may go to another worker.
func (c *Conn) Advisories(ctx context.Context, handle func(context.Context, Advisory) error) error {
	return errors.ErrUnsupported
}
