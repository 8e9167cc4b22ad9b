package record

import "time"

// Second is what happened in one second of the load.
type Second struct {
	Due    int     `json:"due"`
	Ended  int     `json:"ended"`
	Failed int     `json:"failed"`
	P50    float64 `json:"p50_e2el_ms"`
	P99    float64 `json:"p99_e2el_ms"`
}

// Result is what a recorder gathered. Nothing changes it any more.
type Result struct {
	Window time.Duration
	Bounds Bounds
	// Due is the number of requests that were due in the window.
	Due int
	// All requests, and those of each model, priority, client and path.
	All                                *Group
	Models, Priorities, Clients, Paths map[string]*Group
	// Late is how much later than due requests were sent.
	Late Histogram
	// Seconds of the load, warm-up included.
	Seconds []Second
}

// Result ends the recording. The recorder must not be used any more.
func (r *Recorder) Result() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &Result{
		Window: r.end.Sub(r.begin), Bounds: r.bounds, Due: r.due, All: r.all, Models: r.models, Priorities: r.priorities,
		Clients: r.clients, Paths: r.paths, Late: r.late,
	}
	for i := range r.seconds {
		s := &r.seconds[i]
		out.Seconds = append(out.Seconds, Second{
			Due: s.due, Ended: s.ended, Failed: s.failed, P50: percentile(s.latencies, 0.5), P99: percentile(s.latencies, 0.99),
		})
	}
	return out
}

// Missing is the number of frames that never came.
func (g *Group) Missing() int { return g.missing }

// Repeated is the number of requests that took more than one attempt.
func (g *Group) Repeated() int { return g.repeated }

// Offered is the requests a second that were due.
func (r *Result) Offered() float64 { return float64(r.Due) / r.Window.Seconds() }

// Wanted is the requests a second that were due and not cancelled.
func (r *Result) Wanted() float64 { return float64(r.Due-r.All.Cancelled) / r.Window.Seconds() }

// Throughput is the requests a second that ended well.
func (r *Result) Throughput() float64 { return r.All.Throughput(r.Window) }
