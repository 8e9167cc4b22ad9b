package record

import (
	"slices"
	"sync"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
)

// mostGroups bounds the names that have figures of their own in one dimension.
const mostGroups = 64

// Recorder gathers outcomes. It is safe for concurrent use.
type Recorder struct {
	begin, end time.Time // the window
	start      time.Time // of the load
	bounds     Bounds

	mu         sync.Mutex
	all        *Group
	models     map[string]*Group
	priorities map[string]*Group
	clients    map[string]*Group
	paths      map[string]*Group
	late       Histogram
	due        int // requests that were due in the window, and sent
	unsent     int
	seconds    []second
}

// second is what happened in one second of the load.
type second struct {
	due, ended, failed int
	latencies          []uint32 // microseconds
}

// New returns a recorder for a load that starts at a time, and a window that
// begins after warmup and lasts for window.
func New(start time.Time, warmup, window time.Duration, b Bounds) *Recorder {
	return &Recorder{
		start: start, begin: start.Add(warmup), end: start.Add(warmup + window), bounds: b, all: newGroup(), late: newHistogram(),
		models: map[string]*Group{}, priorities: map[string]*Group{}, clients: map[string]*Group{}, paths: map[string]*Group{},
	}
}

// within reports whether a time is in the window.
func (r *Recorder) within(t time.Time) bool { return !t.Before(r.begin) && t.Before(r.end) }

// Sent counts a request that was due at a time and was sent at another.
func (r *Recorder) Sent(due, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(due).due++
	if r.within(due) {
		r.due++
		r.late.add(sent.Sub(due), 1)
	}
}

// Unsent counts a request that was due at a time and could not be sent.
func (r *Recorder) Unsent(due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.within(due) {
		r.due++
		r.unsent++
		r.all.Failed["unsent"]++
	}
}

// Ended counts how a request ended. It keeps nothing of o.
func (r *Recorder) Ended(o *ask.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	code, wished := failure(o), cancelled(o)
	due, finished := r.within(o.Due), code == "" && !wished && r.within(o.End)
	switch s := r.at(o.End); {
	case code != "":
		s.failed++
	case wished:
		s.ended++
	default:
		s.ended++
		s.latencies = append(s.latencies, uint32(min(o.End.Sub(o.Due).Microseconds(), 1<<32-1)))
	}
	if !due && !finished {
		return
	}
	path := "durable"
	if o.Request.Realtime {
		path = "realtime"
	}
	for _, g := range []*Group{
		r.all, group(r.models, o.Request.Model), group(r.priorities, string(o.Request.Priority)),
		group(r.clients, o.Request.Client), group(r.paths, path),
	} {
		if due {
			g.due(o, r.bounds)
		}
		if finished {
			g.finish(o, r.bounds)
		}
	}
}

func group(of map[string]*Group, name string) *Group {
	g := of[name]
	if g == nil {
		if len(of) >= mostGroups {
			name = "others"
			if g = of[name]; g != nil {
				return g
			}
		}
		g = newGroup()
		of[name] = g
	}
	return g
}

// latestSecond bounds the time series: a week.
const latestSecond = 7 * 24 * 3600

func (r *Recorder) at(t time.Time) *second {
	i := min(max(int(t.Sub(r.start)/time.Second), 0), latestSecond)
	for len(r.seconds) <= i {
		r.seconds = append(r.seconds, second{})
	}
	return &r.seconds[i]
}

// Recent returns the requests that ended in the last whole second before now,
// and the 99th percentile of their latencies, milliseconds.
func (r *Recorder) Recent(now time.Time) (ended int, p99 float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := int(now.Sub(r.start)/time.Second) - 1
	if i < 0 || i >= len(r.seconds) {
		return 0, 0
	}
	s := &r.seconds[i]
	return s.ended, percentile(s.latencies, 0.99)
}

// percentile returns a quantile of microseconds in milliseconds.
func percentile(us []uint32, q float64) float64 {
	if len(us) == 0 {
		return 0
	}
	sorted := slices.Clone(us)
	slices.Sort(sorted)
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / 1000
}

// Finish ends the window at a time, if it would end later.
func (r *Recorder) Finish(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.Before(r.end) && at.After(r.begin) {
		r.end = at
	}
}
