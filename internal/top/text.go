package top

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// clean returns a text of which each rune is printable and takes one column of a
// terminal; others become question marks. What it returns has no control
// characters.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		const wide = 0x1100 // from here on runes may take two columns
		if r >= wide && !drawn(r) || r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) {
			return '?'
		}
		return r
	}, s)
}

// drawn reports whether a rune is one that this package draws with.
func drawn(r rune) bool { return r >= '▀' && r <= '▟' || r == '…' || r == '·' || r == '─' }

// fit cuts a cleaned text to so many columns, or fills it up with spaces.
func fit(s string, width int) string {
	runes := []rune(s)
	switch n := len(runes); {
	case width <= 0:
		return ""
	case n > width && width > 1:
		return string(runes[:width-1]) + "~"
	case n > width:
		return string(runes[:width])
	default:
		return s + strings.Repeat(" ", width-n)
	}
}

// right puts a text at the right end of so many columns.
func right(s string, width int) string {
	if n := len([]rune(s)); n < width {
		return strings.Repeat(" ", width-n) + s
	}
	return fit(s, width)
}

// number writes a figure in at most five columns.
func number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0) || x < 0:
		return "-"
	case x == 0:
		return "0"
	case x < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	case x < 9999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	for _, unit := range "kMGTPE" {
		if x /= 1000; x < 999.5 {
			return short(x) + string(unit)
		}
	}
	return "huge"
}

// short writes a figure below 1000 with two or three digits.
func short(x float64) string {
	if x < 9.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}

// memory writes bytes.
func memory(n int64) string {
	if n < 0 {
		return "-"
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10) + "B"
	}
	x := float64(n)
	for _, unit := range "KMGTP" {
		if x /= 1024; x < 1000 {
			return short(x) + string(unit)
		}
	}
	return short(x/1024) + "E"
}

// took writes a latency; none when there was nothing to measure.
func took(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return "-"
	case ms < 0.95:
		return strconv.FormatInt(d.Microseconds(), 10) + "us"
	case ms < 9.95:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case ms < 999.5:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	}
	return short(min(d.Seconds(), 999)) + "s"
}

// lasted writes how long a worker has been there.
func lasted(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// bar draws a share of so many columns.
func bar(share float64, width int, ascii bool) string {
	if width <= 0 {
		return ""
	}
	if math.IsNaN(share) {
		share = 0
	}
	eighths := int(math.Round(min(max(share, 0), 1) * float64(8*width)))
	if ascii {
		full := (eighths + 4) / 8
		return strings.Repeat("#", full) + strings.Repeat(".", width-full)
	}
	out := strings.Repeat("█", eighths/8)
	used := eighths / 8
	if part := eighths % 8; part > 0 {
		out += string([]rune("▏▎▍▌▋▊▉")[part-1])
		used++
	}
	return out + strings.Repeat("░", width-used)
}

// spark draws the last values, each as a column of its height: how full steps were.
func spark(values []int, most, width int, ascii bool) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	if ascii {
		levels = []rune("_.-:=+*#")
	}
	values = values[max(len(values)-width, 0):]
	out := make([]rune, 0, width)
	for range width - len(values) {
		out = append(out, ' ')
	}
	for _, v := range values {
		level := 0
		if most > 0 {
			level = (max(v, 0)*len(levels) - 1) / most
		}
		out = append(out, levels[min(max(level, 0), len(levels)-1)])
	}
	return string(out)
}
