package broker

import (
	"context"
	"errors"
)

// Intake pulls the durable requests of some models.
type Intake struct{}

// Intake returns an intake for models, whose stream and consumers must have
// been ensured.
func (c *Conn) Intake(models []string) (*Intake, error) {
	return nil, errors.New("intake: not connected")
}

// Run pulls until ctx ends and hands each request to deliver, from several
// goroutines. A delivery holds one of the credits until its Done is called;
// deliver must not block. When ctx has ended, Run waits for the pulls under way
// and returns nil; what they still brought was released to the queue.
func (i *Intake) Run(ctx context.Context, credits *Credits, deliver func(*Delivery)) error {
	return errors.New("intake: not connected")
}
