package broker

import (
	"context"
	"errors"
	"fmt"
)

// QueueDepth is how many requests wait in one queue, that of a model and a
// priority, and have no worker yet.
type QueueDepth struct {
	Model    string
	Priority Priority
	Waiting  uint64
}

// Depths asks the server how many requests wait in the queues of models, one
// question for each priority of each model. A queue that does not exist is left
// out. It stops at the first question that fails and returns what it knows with
// the error.
func (c *Conn) Depths(ctx context.Context, models []string) ([]QueueDepth, error) {
	depths := make([]QueueDepth, 0, len(models)*len(priorities()))
	for _, m := range models {
		for _, p := range priorities() {
			state, err := c.Queue(ctx, m, p)
			if errors.Is(err, ErrNotStored) {
				continue
			}
			if err != nil {
				return depths, fmt.Errorf("ask for the depth of queues: %w", err)
			}
			depths = append(depths, QueueDepth{Model: m, Priority: p, Waiting: state.Pending})
		}
	}
	return depths, nil
}
