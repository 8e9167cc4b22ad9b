package broker

import "sync"

// Credits counts the requests that may still be taken. It is safe for
// concurrent use.
type Credits struct {
	mu   sync.Mutex
	free int
	// freed holds a signal when credits came back since it was last read.
	// Capacity 1: more signals say nothing more.
	freed chan struct{}
}

// NewCredits returns a pool of n credits.
func NewCredits(n int) *Credits {
	return &Credits{free: n, freed: make(chan struct{}, 1)}
}

// Add grows the pool by n, or shrinks it for a negative n; a shrunk pool may
// have a negative number of free credits until enough are released.
func (c *Credits) Add(n int) {
	c.mu.Lock()
	c.free += n
	c.mu.Unlock()
	if n > 0 {
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}
}

// TryTake takes up to limit free credits and returns how many.
func (c *Credits) TryTake(limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(limit, c.free)
	if n <= 0 {
		return 0
	}
	c.free -= n
	return n
}

// Release gives n credits back.
func (c *Credits) Release(n int) { c.Add(n) }

// Free returns the number of free credits.
func (c *Credits) Free() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free
}
