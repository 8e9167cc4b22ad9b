package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/record"
)

// Point is a load at one rate.
type Point struct {
	// Rate is what was asked for.
	Rate   float64 `json:"rate"`
	Report *Report `json:"report"`
	// Sustained says that the workers kept up; see [Sustained].
	Sustained bool `json:"sustained"`
}

// Trial puts a load of a rate on.
type Trial func(ctx context.Context, rate float64) (*Report, error)

// Sweep tries each rate. With an error come the points before it.
func Sweep(ctx context.Context, rates []float64, try Trial, done func(Point)) ([]Point, error) {
	var out []Point
	for _, rate := range rates {
		report, err := try(ctx, rate)
		if err != nil {
			return out, fmt.Errorf("at %g requests/s: %w", rate, err)
		}
		p := Point{Rate: rate, Report: report, Sustained: Sustained(report, DefaultAttainment)}
		out = append(out, p)
		done(p)
	}
	return out, nil
}

const (
	// keptUp is the share of what is offered that has to end well in the window.
	keptUp = 0.98
	// DefaultAttainment is the share of requests that have to keep the bounds.
	DefaultAttainment = 0.99
)

// Sustained reports whether the workers kept up with a load.
//
// With bounds a share of the requests that were due in the window has to end well and
// keep them, in the window or after it. A backlog that grows breaks a bound that
// begins when a request was due, of ttft or e2el, once it is as long.
//
// Without such a bound as many requests as 98 % of those that were due have to end
// well in the window, which a backlog that grows prevents, 98 % of those that were due
// have to end well at all, and what is under way may not have grown by more than 2 %
// of them. Where 2 % are but a few requests the chance of one more or less under way
// does not count.
//
// Requests that were cancelled as planned never count, and a load that was
// [Report.Limited] says nothing about the workers.
func Sustained(r *Report, attainment float64) bool {
	wanted := float64(r.Due - r.All.Cancelled)
	if wanted <= 0 || r.Limited() {
		return false
	}
	if r.Bounds != (record.Bounds{}) && float64(r.All.Kept) < attainment*wanted {
		return false
	}
	if r.Bounds.Waiting() > 0 {
		return true
	}
	slack := max(wanted*(1-keptUp), 3*math.Sqrt(float64(r.InFlight[0]+1)))
	return r.Throughput()*r.Window.Seconds() >= wanted-slack &&
		float64(r.All.Completed) >= keptUp*wanted && float64(r.InFlight[1]-r.InFlight[0]) <= slack
}

// Search describes a search for the highest sustained rate.
type Search struct {
	// First is the rate that is tried first.
	First float64 `json:"first_rate"`
	// Tolerance is how far apart, relatively, the highest sustained and the lowest
	// other rate may be at the end.
	Tolerance float64 `json:"tolerance"`
	// Trials bounds the number of loads.
	Trials int `json:"trials"`
	// Attainment is the share of requests that have to keep the bounds.
	Attainment float64 `json:"attainment"`
}

// Validate reports what is wrong with a search.
func (s *Search) Validate() error {
	switch {
	case !(s.First > 0):
		return fmt.Errorf("first rate %g: not positive", s.First)
	case !(s.Tolerance > 0 && s.Tolerance < 1):
		return fmt.Errorf("tolerance %g: must be between 0 and 1", s.Tolerance)
	case s.Trials < 1 || s.Trials > 100:
		return fmt.Errorf("trials %d: must be between 1 and 100", s.Trials)
	case !(s.Attainment > 0 && s.Attainment <= 1):
		return fmt.Errorf("attainment %g: must be above 0 and at most 1", s.Attainment)
	}
	return nil
}

// Saturation is what a search found.
type Saturation struct {
	Search Search `json:"search"`
	// Rate is the highest sustained rate that was tried; 0: none was.
	Rate float64 `json:"rate"`
	// Limit is the lowest rate above it that was not sustained; 0: none was tried.
	Limit float64 `json:"limit,omitempty"`
	// Found says that the two are as close as was asked for.
	Found bool `json:"found"`
	// Points in the order of the trials.
	Points []Point `json:"points"`
}

// Warnings say what makes the result doubtful.
func (s *Saturation) Warnings() []string {
	var out []string
	for _, p := range s.Points {
		if p.Rate == s.Limit && p.Report.Limited() {
			out = append(out, fmt.Sprintf("at %.4g requests/s the load test itself, or its --max-concurrency, was the limit: workers may sustain more than was found", p.Rate))
			break
		}
	}
	if len(s.Points) == 0 {
		return out
	}
	r := s.Points[0].Report
	whole, bound := r.Warmup+r.Duration, r.Bounds.Waiting()
	if enough := time.Duration(float64(bound) / s.Search.Tolerance); enough > whole {
		out = append(out, fmt.Sprintf("loads of %v are short for a bound of %v: a rate that is too high by less than %.0f %% need not break it in that time; --duration %v tells rates apart as --tolerance says",
			whole, bound, 100*float64(bound)/float64(whole), (enough-r.Warmup).Round(time.Second)))
	}
	if p50, ok := s.Points[len(s.Points)-1].Report.All.E2EL.Quantile(0.5); ok && s.Rate == 0 && bound == 0 && p50 > float64(r.Warmup.Milliseconds()) {
		out = append(out, fmt.Sprintf("half of the requests took longer than the warm-up, %.0f ms: a window that begins before the first answers cannot have as many as were due in it; make --warmup longer", p50))
	}
	return out
}

// errRate: a search left the rates that can be.
var errRate = errors.New("no sustained rate above 0.001 requests/s")

// Saturate doubles the rate until it is not sustained, or halves it until it is,
// and then bisects. When a trial fails, what the others found comes with the error.
func Saturate(ctx context.Context, s Search, try Trial, done func(Point)) (*Saturation, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	out := &Saturation{Search: s}
	rate := s.First
	for range s.Trials {
		report, err := try(ctx, rate)
		if err != nil {
			return out, fmt.Errorf("at %g requests/s: %w", rate, err)
		}
		p := Point{Rate: rate, Report: report, Sustained: Sustained(report, s.Attainment)}
		out.Points = append(out.Points, p)
		done(p)
		if p.Sustained {
			out.Rate = rate
		} else {
			out.Limit = rate
		}
		switch {
		case out.Limit == 0:
			rate *= 2
		case out.Rate == 0:
			if rate /= 2; rate < 0.001 {
				return out, errRate
			}
		case out.Limit/out.Rate <= 1+s.Tolerance:
			out.Found = true
			return out, nil
		default:
			rate = math.Sqrt(out.Rate * out.Limit)
		}
	}
	return out, nil
}
