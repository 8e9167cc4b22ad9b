package load

import (
	"fmt"
	"sync"
	"time"
)

// Outages are the times at which a load test had no connection to its server. A nil
// one has none. It is safe for concurrent use.
type Outages struct {
	mu    sync.Mutex
	spans []span // in order; only the last can be open
}

// span is a time without a connection; a zero end: it lasts.
type span struct{ from, to time.Time }

// Lost says that the connection was lost at a time.
func (o *Outages) Lost(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.spans); n == 0 || !o.spans[n-1].to.IsZero() {
		o.spans = append(o.spans, span{from: at})
	}
}

// Restored says that the connection is there again, and returns for how long it was
// not.
func (o *Outages) Restored(at time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.spans)
	if n == 0 || !o.spans[n-1].to.IsZero() {
		return 0
	}
	last := &o.spans[n-1]
	last.to = at
	return at.Sub(last.from)
}

// during returns how often the connection was lost between two times, or had been
// before, and for how long in all.
func (o *Outages) during(from, to time.Time) (times int, down time.Duration) {
	if o == nil {
		return 0, 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.IsZero() || end.After(to) {
			end = to
		}
		if !end.Before(begin) {
			times++
			down += end.Sub(begin)
		}
	}
	return times, down
}

// Disconnected is what a load had of [Outages].
type Disconnected struct {
	// Times the connection was lost, and for how long in all.
	Times int
	For   time.Duration
	// Failed is how many of the requests that failed were under way meanwhile.
	Failed int
}

func (d *Disconnected) warning() string {
	return fmt.Sprintf("the load test's own connection was lost (%d times, for %.1f s in all): %d of the failures fell into that time, and may not be the workers'",
		d.Times, d.For.Seconds(), d.Failed)
}
