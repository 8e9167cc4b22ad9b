package worker

import (
	"context"
	"sync"
	"time"
)

// tasks are what the worker asks of the broker and has to wait for, each in a
// goroutine of its own: the lookup of a request's past, and the records of its
// end. There are a few for each slot at most.
type tasks struct {
	life  context.Context //nolint:containedctx // ends the tasks with the worker
	end   context.CancelFunc
	group sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// begin starts a task that has so much time.
func (t *tasks) begin(limit time.Duration, task func(context.Context)) {
	t.group.Go(func() {
		ctx, cancel := context.WithTimeout(t.life, limit)
		defer cancel()
		task(ctx)
	})
}

// stop ends all tasks and waits for them. None may be started at the same time.
func (t *tasks) stop() {
	t.end()
	t.group.Wait()
}
