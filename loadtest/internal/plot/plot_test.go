package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

var update = flag.Bool("update", false, "write the golden files")

func latency() *plot.Figure {
	return &plot.Figure{
		Title: "Latency over throughput", Subtitle: "seed 1, <10 s> a point", XLabel: "throughput, requests/s", YLabel: "latency, ms", LogY: true,
		Series: []plot.Series{
			{Name: "cellular, p50", X: []float64{100, 500, 1000, 1500}, Y: []float64{2.1, 2.4, 3.3, 18}, Markers: true},
			{Name: "padded, p50", X: []float64{100, 500, 700, 900}, Y: []float64{9.5, 14, math.NaN(), 240}, Markers: true},
			{Name: "bound", X: []float64{0, 1500}, Y: []float64{100, 100}, Reference: true},
		},
	}
}

func draw(t *testing.T, f *plot.Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := f.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	samples := make([]float64, 3000)
	for i := range samples {
		samples[i] = 1 + float64(i*7919%3000)/100
	}
	for name, f := range map[string]*plot.Figure{
		"testdata/latency.svg": latency(),
		"testdata/cdf.svg": {
			Title: "Distribution", XLabel: "latency, ms", YLabel: "share of requests", LogX: true,
			Series: []plot.Series{plot.CDF("e2el", samples)},
		},
	} {
		got := draw(t, f)
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; -update writes it", name)
		}
	}
}

// TestShapes wants every figure to be XML with its texts and without numbers
// that are none.
func TestShapes(t *testing.T) {
	t.Parallel()
	many := make([]plot.Series, 20)
	for i := range many {
		many[i] = plot.Series{Name: strings.Repeat("n", i), X: []float64{0, 1}, Y: []float64{float64(i), 1}}
	}
	for name, tc := range map[string]struct {
		figure plot.Figure
		want   []string
	}{
		"latency":      {*latency(), []string{">cellular, p50<", ">latency, ms<", "&lt;10 s&gt;", ">100<", "prefers-color-scheme:dark", `class="r"`}},
		"one point":    {plot.Figure{Series: []plot.Series{{X: []float64{3}, Y: []float64{7}, Markers: true}}}, []string{"<circle"}},
		"zero":         {plot.Figure{Series: []plot.Series{{X: []float64{0}, Y: []float64{0}, Markers: true}}}, []string{"<circle", ">0<"}},
		"one on logs":  {plot.Figure{LogX: true, LogY: true, Series: []plot.Series{{X: []float64{1}, Y: []float64{20}, Markers: true}}}, []string{"<circle"}},
		"negative":     {plot.Figure{Series: []plot.Series{{X: []float64{-5, 5}, Y: []float64{-0.2, 0.1}}}}, []string{">-0.20<"}},
		"large":        {plot.Figure{Series: []plot.Series{{X: []float64{1e6, 2e6}, Y: []float64{12_000, 48_000}}}}, []string{">2.0M<", ">50k<"}},
		"far apart":    {plot.Figure{LogY: true, Series: []plot.Series{{X: []float64{1, 2}, Y: []float64{1e-6, 1e9}}}}, []string{">1e-06<", ">1G<"}},
		"close":        {plot.Figure{Series: []plot.Series{{X: []float64{100, 101}, Y: []float64{7, 7.001}}}}, []string{">100.2<", ">7.0002<"}},
		"not on a log": {plot.Figure{LogY: true, Series: []plot.Series{{X: []float64{1, 2, 3}, Y: []float64{0, 1, 2}, Markers: true}}}, []string{"<circle"}},
		"infinite":     {plot.Figure{Series: []plot.Series{{X: []float64{1, 2, 3}, Y: []float64{1, math.Inf(1), 2}}}}, nil},
		"many":         {plot.Figure{Series: many}, []string{`class="l d1"`, `class="l d2"`}},
		"control":      {plot.Figure{Title: "a\x00\xff\n&b", Series: []plot.Series{{X: []float64{1}, Y: []float64{1}}}}, []string{">a&amp;b<"}},
		"small":        {plot.Figure{Width: 240, Height: 240, Series: latency().Series}, []string{`width="240"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := draw(t, &tc.figure)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in\n%s", want, got)
				}
			}
			if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
				t.Errorf("a number that is none in\n%s", got)
			}
			for d := xml.NewDecoder(strings.NewReader(got)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		figure plot.Figure
		want   string
	}{
		"nothing": {plot.Figure{}, "nothing to draw"},
		"gaps":    {plot.Figure{LogX: true, Series: []plot.Series{{X: []float64{0}, Y: []float64{1}}}}, "nothing to draw"},
		"lengths": {plot.Figure{Series: []plot.Series{{Name: "s", X: []float64{0}}}}, `series "s": 1 values of x and 0 of y`},
		"width":   {plot.Figure{Width: 10}, "width 10: must be between 240 and 4000"},
		"series":  {plot.Figure{Series: make([]plot.Series, 25)}, "25 series: more than 24"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tc.figure.WriteSVG(io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	if err := (&plot.Figure{}).WriteSVG(io.Discard); !errors.Is(err, plot.ErrNothing) {
		t.Errorf("%v is not ErrNothing", err)
	}
}

func TestCDF(t *testing.T) {
	t.Parallel()
	s := plot.CDF("x", []float64{3, 1, 2, 2})
	for i, want := range []struct{ x, y float64 }{{1, 0.25}, {2, 0.5}, {2, 0.75}, {3, 1}} {
		if s.X[i] != want.x || s.Y[i] != want.y {
			t.Errorf("point %d: (%g, %g), want %v", i, s.X[i], s.Y[i], want)
		}
	}
	long := make([]float64, 10_001)
	for i := range long {
		long[i] = float64(i)
	}
	s = plot.CDF("x", long)
	if n := len(s.X); n > 500 || s.X[0] != 0 || s.X[n-1] != 10_000 || s.Y[n-1] != 1 {
		t.Errorf("%d points from %g to %g", n, s.X[0], s.X[n-1])
	}
	if s := plot.CDF("x", nil); len(s.X) != 0 {
		t.Errorf("%v of nothing", s)
	}
}
