package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
	"github.com/cellmq/cellmq/loadtest/internal/record"
)

// Figures are the plots of a load, by file name: the distribution of latencies
// and the course of time.
func (r *Report) Figures() map[string]*plot.Figure {
	subtitle := shape(&r.Plan)
	cdf := &plot.Figure{Title: "Latency", Subtitle: subtitle, XLabel: "latency, ms", YLabel: "share that is not above", LogX: true}
	for _, l := range []struct {
		name string
		of   record.Histogram
	}{{"ttft", r.All.TTFT}, {"itl", r.All.ITL}, {"e2el", r.All.E2EL}} {
		ms, share := l.of.Points()
		cdf.Series = append(cdf.Series, plot.Series{Name: l.name, X: ms, Y: share, Steps: true})
	}
	x := make([]float64, len(r.Seconds))
	column := func(of func(*record.Second) float64) []float64 {
		y := make([]float64, len(x))
		for i := range y {
			y[i] = of(&r.Seconds[i])
		}
		return y
	}
	for i := range x {
		x[i] = float64(i) + 0.5
	}
	rate := &plot.Figure{Title: "Throughput over time", Subtitle: subtitle, XLabel: "time since the start, s", YLabel: "requests/s", Series: []plot.Series{
		{Name: "due", X: x, Y: column(func(s *record.Second) float64 { return float64(s.Due) })},
		{Name: "ended", X: x, Y: column(func(s *record.Second) float64 { return float64(s.Ended) })},
		{Name: "failed", X: x, Y: column(func(s *record.Second) float64 { return float64(s.Failed) })},
	}}
	latency := &plot.Figure{Title: "Latency over time", Subtitle: subtitle, XLabel: "time since the start, s", YLabel: "e2el, ms", LogY: true, Series: []plot.Series{
		{Name: "p50", X: x, Y: column(func(s *record.Second) float64 { return s.P50 })},
		{Name: "p99", X: x, Y: column(func(s *record.Second) float64 { return s.P99 })},
	}}
	return map[string]*plot.Figure{"cdf.svg": cdf, "throughput.svg": rate, "latency.svg": latency}
}

// PointsFigures are the plots of loads at several rates, by file name.
func PointsFigures(points []Point) map[string]*plot.Figure {
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b Point) int {
		switch {
		case a.Rate < b.Rate:
			return -1
		case a.Rate > b.Rate:
			return 1
		}
		return 0
	})
	f := &plot.Figure{Title: "Latency over throughput", XLabel: "throughput, requests/s", YLabel: "latency, ms", LogY: true}
	if len(points) > 0 {
		f.Subtitle = conditions(points[0].Report)
	}
	for _, l := range []struct {
		name string
		q    float64
		of   func(*Report) record.Histogram
	}{
		{"ttft p50", 0.5, func(r *Report) record.Histogram { return r.All.TTFT }},
		{"e2el p50", 0.5, func(r *Report) record.Histogram { return r.All.E2EL }},
		{"e2el p90", 0.9, func(r *Report) record.Histogram { return r.All.E2EL }},
		{"e2el p99", 0.99, func(r *Report) record.Histogram { return r.All.E2EL }},
	} {
		s := plot.Series{Name: l.name, Markers: true}
		for _, p := range sorted {
			if v, ok := l.of(p.Report).Quantile(l.q); ok {
				s.X, s.Y = append(s.X, p.Report.Throughput()), append(s.Y, v)
			}
		}
		if len(s.X) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	return map[string]*plot.Figure{"latency-throughput.svg": f}
}

// WriteFigures writes figures into a directory, which it makes. Those that have
// nothing to draw are left out.
func WriteFigures(dir string, figures map[string]*plot.Figure) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	for name, f := range figures {
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
		err = f.WriteSVG(out)
		if errors.Is(err, plot.ErrNothing) {
			err = os.Remove(out.Name())
		}
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}
