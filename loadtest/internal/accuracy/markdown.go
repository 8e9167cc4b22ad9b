package accuracy

import (
	"fmt"
	"strconv"
	"strings"
)

// Markdown returns the report as tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("| model | measured | cases | weights | value | difference to f32 | answers unlike f32's |")
	line("|---|---|---:|---|---:|---:|---:|")
	for _, f := range r.Figures {
		for _, row := range f.Types {
			line("| %s | %s | %s | %s | %s | %s | %s |", f.Model, f.Measure, whole(f.Cases), row.Weights,
				row.value(), row.difference(), row.unlike(f.Cases))
		}
	}
	line("\n| model | weights | golden outputs equal | a worker serves it |")
	line("|---|---|---:|---|")
	for _, g := range r.Golden {
		answer := "yes"
		if g.Refused {
			answer = "no"
		}
		line("| %s | %s | %d of %d | %s |", g.Model, g.Weights, g.Equal, g.Cases, answer)
	}
	if len(r.Drift) > 0 {
		line("\nDrift of %d sequences that read the same tokens as with f32, as a share of its root mean square:\n", r.Sequences)
		line("| model | weights | step | state h | logits |")
		line("|---|---|---:|---:|---:|")
	}
	for _, d := range r.Drift {
		line("| %s | %s | %d | %.2f %% | %.2f %% |", d.Model, d.Weights, d.Step, 100*d.H/d.HSize, 100*d.Logits/d.LogitsSize)
	}
	return b.String()
}

// value is a share with its interval, or bits per byte.
func (r Row) value() string {
	switch {
	case r.Value == nil:
		return ""
	case r.Margin == nil:
		return fmt.Sprintf("%.4f", *r.Value)
	default:
		return fmt.Sprintf("%.2f ± %.2f %%", *r.Value, *r.Margin)
	}
}

func (r Row) difference() string {
	switch {
	case r.Difference == nil:
		return ""
	case r.DifferenceMargin == nil:
		return fmt.Sprintf("%+.4f", *r.Difference)
	default:
		return fmt.Sprintf("%+.2f ± %.2f", *r.Difference, *r.DifferenceMargin)
	}
}

func (r Row) unlike(cases int) string {
	if cases == 0 {
		return ""
	}
	return strconv.Itoa(r.Unlike)
}

func whole(cases int) string {
	if cases == 0 {
		return "one text"
	}
	return strconv.Itoa(cases)
}
