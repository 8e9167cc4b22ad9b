package load_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// TestGoodputOfShortWindows has workers that take longer than warm-up and window: the
// requests that were due are judged when they have ended, and a rate is not sustained
// because of those that broke a bound.
func TestGoodputOfShortWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			bounds record.Bounds
			want   bool
		}{
			{record.Bounds{E2EL: 6 * time.Second}, true},
			{record.Bounds{TTFT: 6 * time.Second}, true},
			{record.Bounds{E2EL: 4 * time.Second}, false},
			{record.Bounds{TTFT: time.Second}, false},
		} {
			o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 10})
			o.Warmup, o.Duration, o.Bounds = time.Second, 2*time.Second, tc.bounds
			r := run(t, &server{parallel: true, service: 5 * time.Second}, o)
			if r.Due != 20 || load.Sustained(r, 0.99) != tc.want {
				t.Errorf("%+v: sustained %v, %d due, %s", tc.bounds, !tc.want, r.Due, r.Markdown())
			}
		}
	})
}

// TestTokenBoundsAndBacklog has a server fall behind while its tokens come at the usual
// pace: a bound on the time between tokens alone does not show that.
func TestTokenBoundsAndBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 150})
		o.Bounds = record.Bounds{TPOT: time.Second}
		if r := run(t, &server{service: 10 * time.Millisecond}, o); load.Sustained(r, 0.99) {
			t.Errorf("sustained: %s", r.Markdown())
		}
	})
}

// TestSlowGenerator has a load test that cannot send as fast as it is to, or may not:
// it ends at its time, and says how many requests it sent and why.
func TestSlowGenerator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name   string
			server *server
			flight int
			limit  int // requests; 0: none
			sent   int
			of     int
			want   string
		}{
			{name: "generator", server: &server{service: time.Millisecond, parallel: true, slowness: 10 * time.Millisecond}, sent: 2300, of: 22000, want: "could not send faster than 100/s"},
			{name: "bound", server: &server{service: 10 * time.Millisecond}, flight: 4, sent: 2300, of: 22000, want: "bound of concurrency"},
			{name: "few", server: &server{service: time.Millisecond, parallel: true, slowness: 10 * time.Millisecond}, limit: 3000, sent: 2300, of: 3000, want: "could not send"},
			{name: "fast", server: &server{service: time.Millisecond, parallel: true}, sent: 22000, of: 22000},
			{name: "late at the end", server: &server{service: time.Millisecond, parallel: true, slowness: 10 * time.Millisecond, slowFrom: 21990}, sent: 22000, of: 22000},
		} {
			o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 1000, InFlight: tc.flight})
			o.Plan.Requests = tc.limit
			began := time.Now()
			r := run(t, tc.server, o)
			if took := time.Since(began); took > 23500*time.Millisecond {
				t.Errorf("%s: it took %v", tc.name, took)
			}
			if math.Abs(float64(r.Sent-tc.sent)) > 30 || math.Abs(float64(r.Planned-tc.of)) > 5 || r.Limited() != (tc.want != "") {
				t.Errorf("%s: %d sent of %d", tc.name, r.Sent, r.Planned)
			}
			text := r.Markdown()
			if tc.want != "" && (!strings.Contains(text, tc.want) || !strings.Contains(text, "requests sent, of about") || load.Sustained(r, 0.5)) {
				t.Errorf("%s: %s", tc.name, text)
			}
			if tc.want == "" && strings.Contains(text, "requests sent") {
				t.Errorf("%s: %s", tc.name, text)
			}
		}
	})
}

// TestSaturationOfTheGenerator wants a search that ends at what can be sent to say so.
func TestSaturationOfTheGenerator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		try := func(ctx context.Context, rate float64) (*load.Report, error) {
			return load.Run(ctx, &server{service: time.Millisecond, parallel: true, slowness: 5 * time.Millisecond},
				options(t, workload.Arrivals{Law: workload.Constant, Rate: rate}))
		}
		got, err := load.Saturate(t.Context(), load.Search{First: 50, Tolerance: 0.1, Trials: 20, Attainment: 0.99}, try, func(load.Point) {})
		if err != nil || got.Rate > 220 || !strings.Contains(got.Markdown(), "the load test itself") || !strings.Contains(got.Markdown(), "At 400 requests/s: only") {
			t.Errorf("%v: %s", err, got.Markdown())
		}
	})
}

// TestLooseBounds wants a search whose loads are too short to see a backlog to say so.
func TestLooseBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for bound, want := range map[time.Duration]bool{500 * time.Millisecond: false, 20 * time.Second: true} {
			try := func(ctx context.Context, rate float64) (*load.Report, error) {
				o := options(t, workload.Arrivals{Law: workload.Constant, Rate: rate})
				o.Bounds = record.Bounds{E2EL: bound}
				return load.Run(ctx, &server{service: 10 * time.Millisecond}, o)
			}
			got, err := load.Saturate(t.Context(), load.Search{First: 90, Tolerance: 0.05, Trials: 20, Attainment: 0.99}, try, func(load.Point) {})
			if err != nil || strings.Contains(got.Markdown(), "--duration 6m38s") != want {
				t.Errorf("bound %v: %v: %s", bound, err, got.Markdown())
			}
		}
	})
}
