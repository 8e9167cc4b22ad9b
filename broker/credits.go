package broker

// Credits counts the requests that may still be taken. It is safe for
// concurrent use.
type Credits struct{}

// NewCredits returns a pool of n credits.
func NewCredits(n int) *Credits { return &Credits{} }

// Add grows the pool by n, or shrinks it for a negative n; a shrunk pool may
// have a negative number of free credits until enough are released.
func (c *Credits) Add(n int) {}

// TryTake takes up to limit free credits and returns how many.
func (c *Credits) TryTake(limit int) int { return 0 }

// Release gives n credits back.
func (c *Credits) Release(n int) {}

// Free returns the number of free credits.
func (c *Credits) Free() int { return 0 }
