package batching_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/loadtest/internal/batching"
)

func options() batching.Options {
	return batching.Options{
		Models: []string{batching.LSTM, batching.Seq2Seq}, Hidden: 4, Requests: 30, Duration: 10 * time.Millisecond, Rounds: 3,
		Width: 10, Loads: batching.DefaultLoads(), Baselines: batching.Baselines(), Rows: 8, Shape: cellrt.Shape{Executors: 1, Threads: 1}, Seed: 1,
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	var lines []string
	o := options()
	r, err := batching.Compare(t.Context(), o, func(line string) { lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	servers := 1 + len(o.Baselines)
	if want := 3 + 1 + 2*(1+3)*o.Rounds*servers; len(lines) != want { // cells, the estimate, trials
		t.Errorf("%d lines, want %d:\n%s", len(lines), want, strings.Join(lines, "\n"))
	}
	if len(r.Models) != 2 || r.Models[0].Name != batching.LSTM || r.Models[1].Name != batching.Seq2Seq {
		t.Fatalf("%+v", r.Models)
	}
	for _, m := range r.Models {
		if m.Requests != 30 || m.BucketRows != 8 || len(m.Saturation) != servers || len(m.Loads) != 3 {
			t.Fatalf("%+v", m)
		}
		best := 0.0
		for _, s := range m.Saturation[1:] {
			best = max(best, s.Throughput)
		}
		for i, s := range m.Saturation {
			if padded := s.Padding > 0; s.Throughput <= 0 || s.RowsPerStep <= 0 || padded != (i > 0) {
				t.Errorf("%s: %+v", m.Name, s)
			}
		}
		for i, share := range []float64{0.3, 0.5, 0.7} {
			l := m.Loads[i]
			if l.Share != share || l.Rate != share*best || len(l.Servers) != servers || l.Servers[0].Server != "cellular" {
				t.Errorf("%s: %+v", m.Name, l)
			}
			for _, s := range l.Servers {
				if s.P50 <= 0 || (s.P90 < s.P50) != (l.Requests < 10) || (s.P99 < s.P90) != (l.Requests >= 10 && l.Requests < 100) {
					t.Errorf("%s: %+v", m.Name, s)
				}
			}
		}
	}
}

func TestCompareEnds(t *testing.T) {
	t.Parallel()
	o := options()
	o.Duration = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	_, err := batching.Compare(ctx, o, func(line string) {
		if strings.Contains(line, "backlog") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*batching.Options)
		want   string // empty: valid
	}{
		{"valid", func(*batching.Options) {}, ""},
		{"measured batch", func(o *batching.Options) { o.Rows, o.Requests = 0, 0 }, ""},
		{"no model", func(o *batching.Options) { o.Models = nil }, "models"},
		{"unknown model", func(o *batching.Options) { o.Models[1] = "gru" }, `model "gru"`},
		{"no baseline", func(o *batching.Options) { o.Baselines = nil }, "baselines"},
		{"hidden", func(o *batching.Options) { o.Hidden = 0 }, "hidden 0"},
		{"requests", func(o *batching.Options) { o.Requests = -1 }, "requests -1"},
		{"rounds", func(o *batching.Options) { o.Rounds = 101 }, "rounds 101"},
		{"width", func(o *batching.Options) { o.Width = 0 }, "width 0"},
		{"rows", func(o *batching.Options) { o.Rows = 5000 }, "rows 5000"},
		{"duration", func(o *batching.Options) { o.Duration = 0 }, "duration 0s"},
		{"shape", func(o *batching.Options) { o.Shape.Threads = 0 }, "threads 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := options()
			tc.change(&o)
			err := o.Validate()
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want something about %s", err, tc.want)
			}
		})
	}
}

func TestBaselineNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, b := range batching.Baselines() {
		if got, err := batching.ParseBaseline(b.String()); err != nil || got != b {
			t.Errorf("%s is parsed as %v, %v", b, got, err)
		}
		seen[b.String()] = true
	}
	if len(seen) != 4 || !seen["round-robin"] || !seen["longest-queue-tight"] {
		t.Errorf("names %v", seen)
	}
	if _, err := batching.ParseBaseline("random"); err == nil {
		t.Error("an unknown baseline is accepted")
	}
}
