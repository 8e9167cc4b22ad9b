package batchmaker

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// server is a way to serve requests.
type server struct {
	name   string
	policy sim.Policy
}

// traffic is the requests that servers are offered.
type traffic struct {
	// all are there in a backlog, and arrive at servers with buckets, which take
	// long to settle: each bucket has to fill.
	all []sim.Shape
	// some are the first of them, which arrive at other servers.
	some []sim.Shape
}

// patience is how many times as many requests arrive at servers with buckets.
const patience = 8

// of returns the requests that arrive at a server.
func (t traffic) of(s server) []sim.Shape {
	if _, ok := s.policy.(sim.Padded); ok {
		return t.all
	}
	return t.some
}

// outcome is what a run came to.
type outcome struct {
	// offered and throughput are in requests a second; offered is 0 with a
	// backlog.
	offered, throughput float64
	// latency, queueing and computing are percentiles of the time from arrival
	// to answer, to the first step, and from there on. Entry i is p(i+1).
	latency, queueing, computing, firstToken [100]time.Duration
	padding, rowsPerStep                     float64
	// growth is by how much the number of requests in the server grows with each
	// that arrives, in the long run.
	growth float64
}

// mostGrowth is the growth of a server that keeps up.
const mostGrowth = 0.03

// sustained reports whether the server kept up with the offered rate.
func (o *outcome) sustained() bool { return o.growth <= mostGrowth }

// p returns a percentile of the latency in milliseconds.
func (o *outcome) p(percent int) float64 { return milliseconds(o.latency[percent-1]) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// lab runs everything, several runs at a time, and keeps the outcomes.
type lab struct {
	seeds
	requests int
	runs     []record
}

// record is an outcome with its place in the report, for the table of all runs.
type record struct {
	study, machine, server, setting string
	outcome
}

// few returns how many requests arrive at a server without buckets.
func (l *lab) few(h *hardware) int { return l.requests * h.busy }

// drawn returns traffic for a network.
func (l *lab) drawn(network string, h *hardware) traffic {
	all := l.draw(network, l.few(h)*patience)
	return traffic{all: all, some: all[:l.few(h)]}
}

// keep notes an outcome for the table of all runs.
func (l *lab) keep(study string, h *hardware, s server, setting string, o outcome) {
	l.runs = append(l.runs, record{study: study, machine: h.key, server: s.name, setting: setting, outcome: o})
}

// run runs a trace.
func run(m sim.Machine, s server, trace []sim.Request) (outcome, error) {
	r, err := sim.Run(m, s.policy, trace)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{throughput: r.Throughput(), padding: r.Padding() - 1, rowsPerStep: r.RowsPerStep()}
	if last := trace[len(trace)-1].Arrival; last > 0 {
		o.offered = float64(len(trace)) / last.Seconds()
		half := inside(r, last*3/4, last) - inside(r, last/4, last/2)
		o.growth = 2 * half / float64(len(trace))
	}
	percentiles(&o.latency, r.Latency())
	percentiles(&o.queueing, r.Join())
	percentiles(&o.computing, r.Distribution(func(t sim.Timing) time.Duration { return t.End - t.Joined }))
	percentiles(&o.firstToken, r.FirstToken())
	return o, nil
}

// inside returns the mean number of requests that are in the server between two
// moments.
func inside(r *sim.Report, from, to time.Duration) float64 {
	var sum time.Duration
	for i := range r.Requests {
		t := &r.Requests[i]
		sum += max(0, min(t.End, to)-max(t.Arrival, from))
	}
	return float64(sum) / float64(to-from)
}

func percentiles(to *[100]time.Duration, d sim.Distribution) {
	for i := range to {
		to[i] = d.Quantile(float64(i+1) / 100)
	}
}

// each calls f for 0 to n-1, several at a time, and returns the results in that
// order.
func each[T any](ctx context.Context, n int, f func(i int) (T, error)) ([]T, error) {
	results := make([]T, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var err error
			results[i], err = f(i)
			return err
		})
	}
	return results, g.Wait()
}

// searchSteps is how often the highest sustained rate is narrowed down: to a
// hundredth.
const searchSteps = 7

// sustainable returns the highest rate that a server keeps up with, at most
// its peak.
func (l *lab) sustainable(m sim.Machine, s server, t traffic, peak float64) (float64, error) {
	low, high := 0.0, peak
	for range searchSteps {
		rate := (low + high) / 2
		o, err := run(m, s, l.open(rate, t.of(s)))
		if err != nil {
			return 0, err
		}
		if o.sustained() {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}
