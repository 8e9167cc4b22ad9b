package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

var update = flag.Bool("update", false, "write the golden files")

// server is a queue with one server that takes service for each request, and
// stands still for a time. It runs in a bubble.
type server struct {
	service        time.Duration
	stallAt, stall time.Duration // since the first request
	begun          time.Time
	free           time.Time // when the server is done with what it has
	inFlight       atomic.Int64
	fail           string
	failEvery      int // requests, of which one fails; 0: all of them, or none
	refuse         bool
	parallel       bool          // it takes any number of requests at once
	slowness       time.Duration // how long sending takes, from the request slowFrom on
	slowFrom       int
}

func (s *server) Ask(r *workload.Request, due time.Time, done func(*ask.Outcome)) error {
	if s.refuse {
		return errors.New("refused")
	}
	if s.slowness > 0 && r.Number >= s.slowFrom {
		time.Sleep(s.slowness)
	}
	now := time.Now()
	if s.begun.IsZero() {
		s.begun = now
	}
	start := now
	if s.free.After(start) && !s.parallel {
		start = s.free
	}
	if stalled := s.begun.Add(s.stallAt); s.stall > 0 && !start.Before(stalled) && start.Before(stalled.Add(s.stall)) {
		start = stalled.Add(s.stall)
	}
	s.free = start.Add(s.service)
	s.inFlight.Add(1)
	request, first, end, code := *r, start.Add(s.service/2), s.free, s.fail
	if s.failEvery > 0 && r.Number%s.failEvery > 0 {
		code = ""
	}
	time.AfterFunc(time.Until(end), func() {
		s.inFlight.Add(-1)
		done(&ask.Outcome{
			Request: &request, Due: due, Sent: now, First: first, End: time.Now(), Reason: "stop", Input: 3, Output: 2, Code: code,
			Gaps: []ask.Gap{{Wait: s.service / 2, Tokens: 1}}, Attempts: 1,
		})
	})
	return nil
}

func (s *server) Expire(time.Time)   {}
func (s *server) InFlight() int      { return int(s.inFlight.Load()) }
func (s *server) Counts() ask.Counts { return ask.Counts{} }

func options(t *testing.T, a workload.Arrivals) load.Options {
	t.Helper()
	mix := func(text string) workload.Mix {
		m, err := workload.ParseMix("mix", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	lengths, err := workload.ParseLaw("fixed:1")
	if err != nil {
		t.Fatal(err)
	}
	return load.Options{
		Plan: workload.Plan{
			Seed: 1, Arrivals: a, Lengths: lengths, Models: mix("a,b"), Priorities: mix("std"), Clients: mix("c"),
			Makers: map[string]*workload.Maker{"a": {}, "b": {}},
		},
		Warmup: 2 * time.Second, Duration: 20 * time.Second,
	}
}

func run(t *testing.T, s *server, o load.Options) *load.Report {
	t.Helper()
	r, err := load.Run(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func quantile(t *testing.T, h record.Histogram, q float64) float64 {
	t.Helper()
	v, ok := h.Quantile(q)
	if !ok {
		t.Fatalf("no quantile %g of %d values", q, h.Count())
	}
	return v
}

// TestCoordinatedOmission has a server stand still for 2 of 20 s. With arrivals
// that do not wait for it the latencies of a tenth of the requests show that; in
// a closed load only that of the one which was under way.
func TestCoordinatedOmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stalled := &server{service: time.Millisecond, stallAt: 10 * time.Second, stall: 2 * time.Second}
		open := run(t, stalled, options(t, workload.Arrivals{Law: workload.Constant, Rate: 100}))
		if p50, p95, p99 := quantile(t, open.All.E2EL, 0.5), quantile(t, open.All.E2EL, 0.95), quantile(t, open.All.E2EL, 0.99); p50 > 2 || p95 < 900 || p99 < 1700 {
			t.Errorf("open: p50 %g, p95 %g, p99 %g ms", p50, p95, p99)
		}
		// A bound of concurrency does not hide it either: requests wait for their turn
		// after they were due.
		bounded := run(t, &server{service: time.Millisecond, stallAt: 10 * time.Second, stall: 2 * time.Second},
			options(t, workload.Arrivals{Law: workload.Constant, Rate: 100, InFlight: 4}))
		if p95 := quantile(t, bounded.All.E2EL, 0.95); p95 < 900 {
			t.Errorf("bounded: p95 %g ms", p95)
		}
		if w := bounded.Warnings(); len(w) != 1 || !strings.Contains(w[0], "bound of concurrency") {
			t.Errorf("%q", w)
		}
		closed := run(t, &server{service: time.Millisecond, stallAt: 10 * time.Second, stall: 2 * time.Second},
			options(t, workload.Arrivals{Law: workload.Closed, InFlight: 1}))
		if p99 := quantile(t, closed.All.E2EL, 0.99); p99 > 2 || closed.All.E2EL.Max() < 1900 {
			t.Errorf("closed: p99 %g, max %g ms", p99, closed.All.E2EL.Max())
		}
	})
}

// TestPoissonQueue compares the mean latency at an M/D/1 queue with the formula
// of Pollaczek and Khinchine.
func TestPoissonQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Poisson, Rate: 70})
		o.Duration = 400 * time.Second
		r := run(t, &server{service: 10 * time.Millisecond}, o)
		const load, service = 0.7, 10.0
		want := service * (1 + load/(2*(1-load)))
		got := r.All.Fields(r.Window, r.Bounds)["mean_e2el_ms"].(float64)
		if math.Abs(got/want-1) > 0.08 || math.Abs(r.Throughput()/70-1) > 0.03 {
			t.Errorf("mean %g ms at %g/s, want %g ms at 70/s", got, r.Throughput(), want)
		}
	})
}

// TestClosedLoad wants as many requests under way as were asked for, and the
// rate that follows.
func TestClosedLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{service: 5 * time.Millisecond}
		r := run(t, s, options(t, workload.Arrivals{Law: workload.Closed, InFlight: 8}))
		if p50 := quantile(t, r.All.E2EL, 0.5); math.Abs(r.Throughput()/200-1) > 0.01 || math.Abs(p50/40-1) > 0.01 || min(r.InFlight[0], r.InFlight[1]) < 7 {
			t.Errorf("%g/s, median %g ms, in flight %v", r.Throughput(), p50, r.InFlight)
		}
	})
}

// TestCountedRequests wants a load that ends with its requests to end its window
// there.
func TestCountedRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 100})
		o.Warmup, o.Plan.Requests = 0, 500
		r := run(t, &server{service: 20 * time.Millisecond}, o)
		if r.All.Completed != 500 || math.Abs(r.Window.Seconds()-10) > 0.1 || math.Abs(r.Throughput()-50) > 0.5 {
			t.Errorf("%d in %v, %g/s", r.All.Completed, r.Window, r.Throughput())
		}
	})
}

// TestSaturation searches for the capacity of servers whose capacity is known.
func TestSaturation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		service time.Duration
		first   float64
		bounds  record.Bounds
		least   float64
		most    float64
	}{
		{service: 10 * time.Millisecond, first: 7, least: 94, most: 106},
		{service: 10 * time.Millisecond, first: 900, least: 94, most: 106},
		{service: 10 * time.Millisecond, first: 40, bounds: record.Bounds{E2EL: 15 * time.Millisecond}, least: 1, most: 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			try := func(ctx context.Context, rate float64) (*load.Report, error) {
				o := options(t, workload.Arrivals{Law: workload.Poisson, Rate: rate})
				o.Bounds, o.Duration = tc.bounds, 30*time.Second
				return load.Run(ctx, &server{service: tc.service}, o)
			}
			points := 0
			got, err := load.Saturate(t.Context(), load.Search{First: tc.first, Tolerance: 0.03, Trials: 30, Attainment: 0.99}, try, func(load.Point) { points++ })
			if err != nil {
				t.Fatal(err)
			}
			if !got.Found || got.Rate < tc.least || got.Rate > tc.most || got.Limit <= got.Rate || points != len(got.Points) || points > 20 {
				t.Errorf("%+v: %g to %g in %d trials\n%s", tc, got.Rate, got.Limit, points, got.Markdown())
			}
		})
	}
}

func TestSaturationEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		try := func(ctx context.Context, rate float64) (*load.Report, error) {
			return load.Run(ctx, &server{service: time.Microsecond}, options(t, workload.Arrivals{Law: workload.Constant, Rate: rate}))
		}
		got, err := load.Saturate(t.Context(), load.Search{First: 10, Tolerance: 0.1, Trials: 3, Attainment: 1}, try, func(load.Point) {})
		if err != nil || got.Found || got.Rate != 40 || got.Limit != 0 || !strings.Contains(got.Markdown(), "Every rate") {
			t.Errorf("%+v, %v", got, err)
		}
		for _, s := range []load.Search{{}, {First: 1}, {First: 1, Tolerance: 0.1}, {First: 1, Tolerance: 0.1, Trials: 1}} {
			if _, err := load.Saturate(t.Context(), s, try, func(load.Point) {}); err == nil {
				t.Errorf("%+v was taken", s)
			}
		}
	})
}

// TestFewRequestsAreSustained has a server that is busy a third of the time, and windows
// of so few requests that 2 % of them are less than one: whether one happens to be
// under way at the end says nothing.
func TestFewRequestsAreSustained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(30) {
			o := options(t, workload.Arrivals{Law: workload.Poisson, Rate: 10})
			o.Plan.Seed, o.Duration = seed, 2*time.Second
			if r := run(t, &server{service: 30 * time.Millisecond}, o); r.Due > 0 && !load.Sustained(r, 1) {
				t.Errorf("seed %d: not sustained, %d of %d, in flight %v", seed, r.All.Completed, r.Due, r.InFlight)
			}
		}
	})
}

// TestFailuresAreNotSustained hides failures behind what the warm-up left to do:
// as many requests end well in the window as were due in it.
func TestFailuresAreNotSustained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 100})
		o.Warmup = 10 * time.Second
		r := run(t, &server{service: 9 * time.Millisecond, stall: 2 * time.Second, stallAt: 8 * time.Second, fail: "busy", failEvery: 20}, o)
		if r.All.FailedCount() != 100 || load.Sustained(r, 1) {
			t.Errorf("sustained with %d failures: %g of %g/s", r.All.FailedCount(), r.Throughput(), r.Offered())
		}
		r = run(t, &server{service: 9 * time.Millisecond}, o)
		if !load.Sustained(r, 1) {
			t.Errorf("not sustained: %g of %g/s", r.Throughput(), r.Offered())
		}
	})
}

// TestInterrupted wants the report of what was until somebody loses patience, without
// the requests that are under way then, and the points of loads that had ended.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 10})
		until := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		s := &server{service: 250 * time.Millisecond} // it falls behind
		r, err := load.Run(until(7*time.Second+50*time.Millisecond), s, o)
		if !errors.Is(err, context.DeadlineExceeded) || r == nil || !r.Interrupted || r.Window < 5*time.Second || r.Window > 5100*time.Millisecond ||
			r.Due != 51 || r.All.FailedCount() != 0 || r.InFlight[1] < 30 || !strings.Contains(r.Markdown(), "interrupted") {
			t.Fatalf("%v, %+v", err, r)
		}
		time.Sleep(time.Minute) // the server answers the others
		if r, err := load.Run(until(time.Second), &server{service: time.Millisecond}, o); err == nil || r != nil {
			t.Errorf("%v after the warm-up was interrupted, %v", r, err)
		}
		ctx := until(30 * time.Second)
		try := func(_ context.Context, rate float64) (*load.Report, error) {
			o := options(t, workload.Arrivals{Law: workload.Constant, Rate: rate})
			return load.Run(ctx, &server{service: time.Millisecond}, o)
		}
		points, err := load.Sweep(ctx, []float64{10, 20, 30}, try, func(load.Point) {})
		if len(points) != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d points, %v", len(points), err)
		}
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 10})
		r := run(t, &server{service: time.Millisecond, fail: "busy"}, o)
		if r.All.Completed != 0 || r.All.Failed["busy"] != 200 || r.Throughput() != 0 || load.Sustained(r, 1) || !strings.Contains(r.Markdown(), "200 (busy 200)") {
			t.Errorf("%s", r.Markdown())
		}
		r = run(t, &server{refuse: true}, o)
		if r.All.Failed["unsent"] != 200 || r.Due != 200 {
			t.Errorf("%s", r.Markdown())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := load.Run(ctx, &server{service: time.Millisecond}, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		o.Duration = 0
		if _, err := load.Run(t.Context(), &server{}, o); err == nil || !strings.Contains(err.Error(), "duration 0s") {
			t.Errorf("%v", err)
		}
	})
}

// TestReportGolden compares keys and values of a report with the golden file, but
// for the machine's.
func TestReportGolden(t *testing.T) {
	t.Parallel()
	const golden = "testdata/report.json"
	var got []byte
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Gamma, Rate: 50, Burstiness: 0.5})
		o.Bounds = record.Bounds{E2EL: 30 * time.Millisecond}
		r := run(t, &server{service: 10 * time.Millisecond}, o)
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		fields["host"] = "machine"
		if got, err = json.MarshalIndent(fields, "", " "); err != nil {
			t.Fatal(err)
		}
	})
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(want), got) {
		t.Errorf("%s differs; -update writes it\n%s", golden, got)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plots")
	synctest.Test(t, func(t *testing.T) {
		try := func(ctx context.Context, rate float64) (*load.Report, error) {
			return load.Run(ctx, &server{service: 5 * time.Millisecond}, options(t, workload.Arrivals{Law: workload.Poisson, Rate: rate}))
		}
		points, err := load.Sweep(t.Context(), []float64{50, 150, 300}, try, func(load.Point) {})
		if err != nil {
			t.Fatal(err)
		}
		if points[0].Sustained != true || points[2].Sustained != false || !strings.Contains(load.PointsMarkdown(points), "| 300 |") {
			t.Errorf("%s", load.PointsMarkdown(points))
		}
		figures := points[0].Report.Figures()
		maps.Copy(figures, load.PointsFigures(points))
		// Of several curves one has to see which is which.
		if said := figures["latency-throughput.svg"].Subtitle; said == "" || !strings.HasPrefix(load.PointsMarkdown(points), said+". ") {
			t.Errorf("the curve says %q, the table\n%s", said, load.PointsMarkdown(points))
		}
		if err := load.WriteFigures(dir, figures); err != nil {
			t.Fatal(err)
		}
	})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"cdf.svg", "latency-throughput.svg", "latency.svg", "throughput.svg"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}
