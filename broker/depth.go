package broker

import (
	"context"
	"fmt"
)

// QueueDepth is how much one queue holds: that of a model and a priority.
type QueueDepth struct {
	Model    string
	Priority Priority
	// Waiting is the number of requests that no worker has yet, and Out that of
	// those that workers have.
	Waiting, Out int64
}

// Depths asks the server how much the queues of models hold, one question for each
// priority of each model. It stops at the first question that fails and returns
// what it knows with the error.
func (c *Conn) Depths(ctx context.Context, models []string) ([]QueueDepth, error) {
	depths := make([]QueueDepth, 0, len(models)*len(priorities()))
	for _, m := range models {
		for _, p := range priorities() {
			consumer, err := c.js.Consumer(ctx, c.cfg.Stream.Name, consumerName(m, p))
			if err != nil {
				return depths, fmt.Errorf("ask for the depth of queue %s: %w", consumerName(m, p), err)
			}
			info := consumer.CachedInfo()
			depths = append(depths, QueueDepth{Model: m, Priority: p, Waiting: int64(info.NumPending), Out: int64(info.NumAckPending)})
		}
	}
	return depths, nil
}
