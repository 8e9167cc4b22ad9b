package accuracy

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// Figure is a measure of one model for each weight type.
type Figure struct {
	// Model is the model's name and Measure what was measured.
	Model   string `json:"model"`
	Measure string `json:"measure"`
	// Cases is the size of the test set, 0 where that is one text.
	Cases int   `json:"cases"`
	Types []Row `json:"types"`
}

// Row is one weight type's part of a [Figure].
type Row struct {
	Weights string `json:"weights"`
	// Value is the share of wrong cases in percent, or the bits per byte. It is
	// absent where there is no truth.
	Value *float64 `json:"value,omitempty"`
	// Margin is half the 95 % interval of a share.
	Margin *float64 `json:"margin,omitempty"`
	// Difference is Value less that of float32 and DifferenceMargin half the
	// 95 % interval of that of a share.
	Difference       *float64 `json:"difference,omitempty"`
	DifferenceMargin *float64 `json:"difference_margin,omitempty"`
	// Unlike is how many answers are not those of float32.
	Unlike int `json:"unlike"`
}

// z is how many standard errors a 95 % interval reaches to either side.
const z = 1.96

// figure compares the sheets of one test set, of which the first is that of
// float32.
func figure(model string, types []cellrt.Weights, sheets []sheet) Figure {
	first := sheets[0]
	f := Figure{Model: model, Measure: first.measure, Cases: len(first.answers)}
	for i, s := range sheets {
		row := Row{Weights: types[i].String()}
		for k, a := range s.answers {
			if a != first.answers[k] {
				row.Unlike++
			}
		}
		switch {
		case s.bits != 0:
			row.Value = &s.bits
			if i > 0 {
				row.Difference = scaled(s.bits-first.bits, 1)
			}
		case len(s.wrong) > 0:
			row.shares(first.wrong, s.wrong, i > 0)
		}
		f.Types = append(f.Types, row)
	}
	return f
}

// shares fills in the share of wrong cases and, of another type than the
// first, the difference to the first.
func (r *Row) shares(first, wrong []bool, other bool) {
	n := float64(len(wrong))
	share := count(wrong) / n
	r.Value = scaled(share, 100)
	r.Margin = scaled(z*math.Sqrt(share*(1-share)/n), 100)
	if other {
		difference, margin := paired(first, wrong)
		r.Difference, r.DifferenceMargin = scaled(difference, 100), scaled(margin, 100)
	}
}

// paired returns how much larger the share of true values is in b than in a,
// which are about the same cases, and half its 95 % interval.
func paired(a, b []bool) (difference, margin float64) {
	n, onlyA, onlyB := float64(len(a)), 0.5, 0.5
	for i := range a {
		switch {
		case a[i] && !b[i]:
			onlyA++
		case b[i] && !a[i]:
			onlyB++
		}
	}
	difference = (onlyB - onlyA) / n
	variance := (onlyA + onlyB - (onlyB-onlyA)*(onlyB-onlyA)/n) / (n * n)
	return difference, z * math.Sqrt(variance)
}

func count(wrong []bool) float64 {
	n := 0.0
	for _, w := range wrong {
		if w {
			n++
		}
	}
	return n
}

func scaled(v, scale float64) *float64 {
	v *= scale
	return &v
}
