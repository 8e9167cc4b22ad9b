package batching

import (
	"context"
	"sync"
)

// pool is what servers of whole batches have in common: executors that wait for
// requests, and the sum of what they computed.
type pool struct {
	mu      sync.Mutex
	wake    sync.Cond // requests arrived, or the server stops; uses mu
	total   counts
	stopped bool
}

// serve runs executors, each of which returns once the pool is stopped, until ctx
// ends.
func (p *pool) serve(ctx context.Context, executors []func()) error {
	unhook := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped = true
		p.wake.Broadcast()
	})
	defer unhook()
	var running sync.WaitGroup
	for _, run := range executors {
		running.Go(run)
	}
	running.Wait()
	return nil
}

// add counts what a batch computed.
func (p *pool) add(c counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total.steps += c.steps
	p.total.rows += c.rows
	p.total.padded += c.padded
}

// counts implements [server].
func (p *pool) counts() counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
