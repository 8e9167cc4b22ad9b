package plot

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// The default size of a figure, pixels.
const (
	defaultWidth  = 760
	defaultHeight = 440
)

// Bounds of a figure.
const (
	mostSeries = 24
	leastSide  = 240
	mostSide   = 4000
)

// Figure is a line plot. It may be drawn by many goroutines at once.
type Figure struct {
	// Title and the line below it, which says how it was measured. Either may be
	// empty.
	Title, Subtitle string
	// XLabel and YLabel name the axes with their units.
	XLabel, YLabel string
	// LogX and LogY make an axis logarithmic.
	LogX, LogY bool
	// Series are drawn in their order. At least one has a point that can be drawn.
	Series []Series
	// Width and Height, pixels; 0 is 760 and 440.
	Width, Height int
}

// Series is a line through points, in their order.
type Series struct {
	// Name in the legend. Without one the series is not in it.
	Name string
	// X and Y are as long as each other.
	X, Y []float64
	// Markers shows the points.
	Markers bool
	// Steps holds Y until the next X, as a cumulative distribution does.
	Steps bool
	// Reference is a thin dashed line in the colour of the axes: a bound, for
	// example.
	Reference bool
}

// ErrNothing says that a figure has no point that can be drawn.
var ErrNothing = errors.New("nothing to draw")

// Validate reports what is wrong with a figure.
func (f *Figure) Validate() error {
	var errs []error
	for _, side := range []struct {
		name  string
		value int
	}{{"width", f.Width}, {"height", f.Height}} {
		if side.value != 0 && (side.value < leastSide || side.value > mostSide) {
			errs = append(errs, fmt.Errorf("%s %d: must be between %d and %d", side.name, side.value, leastSide, mostSide))
		}
	}
	if len(f.Series) > mostSeries {
		errs = append(errs, fmt.Errorf("%d series: more than %d", len(f.Series), mostSeries))
	}
	points := 0
	for i := range f.Series {
		s := &f.Series[i]
		if len(s.X) != len(s.Y) {
			errs = append(errs, fmt.Errorf("series %q: %d values of x and %d of y", s.Name, len(s.X), len(s.Y)))
			continue
		}
		for j := range s.X {
			if f.drawable(s.X[j], s.Y[j]) {
				points++
			}
		}
	}
	if points == 0 && len(errs) == 0 {
		errs = append(errs, ErrNothing)
	}
	return errors.Join(errs...)
}

func (f *Figure) drawable(x, y float64) bool { return fits(x, f.LogX) && fits(y, f.LogY) }

// most is the largest magnitude that an axis shows; beyond it ticks would
// overflow.
const most = 1e15

func fits(v float64, log bool) bool {
	if math.IsNaN(v) || math.Abs(v) > most {
		return false
	}
	return !log || v >= 1/most
}

// cdfPoints bounds the points of a distribution: as many as a figure is wide.
const cdfPoints = 500

// CDF returns the cumulative distribution of samples as a series of steps: for
// each value the share of samples that are not above it. Of many samples it takes
// evenly spaced ranks, the first and the last among them. It leaves samples as
// they are.
func CDF(name string, samples []float64) Series {
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	s := Series{Name: name, Steps: true}
	n := len(sorted)
	points := min(n, cdfPoints)
	for i := range points {
		at := i
		if points < n {
			at = i * (n - 1) / (points - 1)
		}
		s.X = append(s.X, sorted[at])
		s.Y = append(s.Y, float64(at+1)/float64(n))
	}
	return s
}
