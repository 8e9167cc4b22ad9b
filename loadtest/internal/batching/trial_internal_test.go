package batching

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clockwork answers each request a fixed time after it was handed over.
type clockwork struct {
	takes    time.Duration
	handed   []time.Time
	together []int // requests handed over at once
	err      error
	mute     bool
}

func (s *clockwork) submit(_ context.Context, arrived []answer) error {
	s.together = append(s.together, len(arrived))
	for i := range arrived {
		s.handed = append(s.handed, time.Now())
		if !s.mute {
			time.AfterFunc(s.takes, func() { arrived[i].end(time.Now(), uint64(len(arrived[i].request.source)), s.err) })
		}
	}
	return nil
}

func (s *clockwork) counts() counts {
	n := uint64(len(s.handed))
	return counts{steps: n, rows: 4 * n, padded: n}
}

// arrivals returns requests that arrive after so many milliseconds.
func arrivals(ms ...int) []request {
	trace := make([]request, len(ms))
	for i := range trace {
		trace[i] = request{arrival: time.Duration(ms[i]) * time.Millisecond, source: make([]int32, i+1)}
	}
	return trace
}

func TestTrial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &clockwork{takes: 3 * time.Millisecond}
		began := time.Now()
		tr := newTrial(arrivals(0, 0, 5, 17))
		if err := tr.run(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{0, 0, 5, 17} {
			if at := s.handed[i].Sub(began); at != time.Duration(want)*time.Millisecond {
				t.Errorf("request %d was handed over after %s, want %d ms", i, at, want)
			}
		}
		if len(s.together) != 3 || s.together[0] != 2 {
			t.Errorf("handed over together: %v, want 2 1 1", s.together)
		}
		want := Measurement{Throughput: 4 / 0.020, P50: 3, RowsPerStep: 4, Padding: 0.2}
		if got := tr.measure(); math.Abs(got.Throughput-want.Throughput) > 1e-9 || got.P50 != 3 || got.P90 != 0 || got.P99 != 0 ||
			got.RowsPerStep != 4 || got.Padding != 0.2 || got.Late != 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestTrialFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		if err := newTrial(arrivals(1)).run(t.Context(), &clockwork{err: broken}); !errors.Is(err, broken) {
			t.Errorf("a failed request: %v, want %v", err, broken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := newTrial(arrivals(1)).run(ctx, &clockwork{mute: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that does not answer: %v, want the context's error", err)
		}
		if err := newTrial(arrivals(5000)).run(ctx, &clockwork{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a trace that goes on: %v, want the context's error", err)
		}
	})
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	trace := make([]request, 200)
	tr := newTrial(trace)
	for i := range tr.answers { // latencies of 1 to 200 ms
		trace[i].arrival = time.Duration(i) * time.Second
		tr.answers[i].ended = trace[i].arrival + time.Duration(200-i)*time.Millisecond
		tr.late = append(tr.late, time.Duration(i)*time.Millisecond)
	}
	if m := tr.measure(); m.P50 != 100 || m.P90 != 180 || m.P99 != 198 || m.Late != 197 {
		t.Errorf("p50 %v, p90 %v, p99 %v, late %v, want 100, 180, 198, 197", m.P50, m.P90, m.P99, m.Late)
	}
}

func TestDifferentAnswers(t *testing.T) {
	t.Parallel()
	trace := arrivals(0, 0)
	a, b := newTrial(trace), newTrial(trace)
	if err := a.sameAnswers(b); err != nil {
		t.Error(err)
	}
	b.answers[1].digest++
	if err := a.sameAnswers(b); err == nil || !strings.Contains(err.Error(), "request 1, of 2 nodes") {
		t.Errorf("%v, want the request that differs", err)
	}
}
