package plot

import (
	"math"
	"strconv"
)

// axis maps values to pixels.
type axis struct {
	log        bool
	low, high  float64 // values at its ends
	from, to   float64 // pixels of its ends
	ticks      []float64
	step       float64 // between ticks of a linear axis
	allLabels  bool    // every tick is labelled, not only the powers of ten
	labelTexts []string
}

// newAxis returns an axis that shows low to high, with about want ticks.
func newAxis(low, high float64, log bool, want int) axis {
	a := axis{log: log}
	if log {
		a.logTicks(low, high, want)
	} else {
		a.linearTicks(low, high, want)
	}
	a.labelTexts = make([]string, len(a.ticks))
	for i, v := range a.ticks {
		a.labelTexts[i] = a.label(v)
	}
	return a
}

func (a *axis) linearTicks(low, high float64, want int) {
	if low >= 0 && low <= high/2 {
		low = 0
	}
	if low == high {
		spread := math.Abs(high) / 2
		if spread == 0 {
			spread = 1
		}
		high += spread
		if low != 0 {
			low -= spread
		}
	}
	a.step = roundUp((high - low) / float64(want))
	first, last := math.Floor(low/a.step), math.Ceil(high/a.step)
	a.low, a.high = first*a.step, last*a.step
	for i := first; i <= last; i++ {
		a.ticks = append(a.ticks, i*a.step)
	}
}

// roundUp returns the smallest of 1, 2 and 5 times a power of ten that is not
// below v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= v*(1-1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

func (a *axis) logTicks(low, high float64, want int) {
	digits := []float64{1, 2, 5}
	firstDecade, lastDecade := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	var all []float64
	for d := firstDecade; d <= lastDecade; d++ {
		for _, digit := range digits {
			all = append(all, digit*math.Pow(10, d))
		}
	}
	first, last := 0, len(all)-1
	for first+1 < len(all) && all[first+1] <= low*(1+1e-9) {
		first++
	}
	for last > first+1 && all[last-1] >= high*(1-1e-9) {
		last--
	}
	if last == first { // cannot be: the last decade ends above high
		last++
	}
	a.ticks = all[first : last+1]
	a.low, a.high = a.ticks[0], a.ticks[len(a.ticks)-1]
	a.allLabels = len(a.ticks) <= want+4
}

// at returns the pixel of a value.
func (a *axis) at(v float64) float64 {
	share := (v - a.low) / (a.high - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return a.from + share*(a.to-a.from)
}

// label is the text at a tick, empty where there is none.
func (a *axis) label(v float64) string {
	if a.log {
		if power := math.Pow(10, math.Round(math.Log10(v))); !a.allLabels && math.Abs(v/power-1) > 1e-6 {
			return ""
		}
		return short(v, 0)
	}
	return short(v, a.step)
}

// short writes a number of a tick. Numbers of five digits and more have a
// suffix. step, unless 0, says how many decimals tell ticks apart.
func short(v, step float64) string {
	suffix := ""
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size && math.Abs(v) >= 9999 {
			v, step, suffix = v/unit.size, step/unit.size, unit.name
			break
		}
	}
	if step == 0 {
		return strconv.FormatFloat(v, 'g', 6, 64) + suffix
	}
	decimals := 0
	for decimals < 12 && math.Abs(step-math.Round(step)) > 1e-6 {
		step *= 10
		decimals++
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if v == 0 {
		text = "0"
	}
	return text + suffix
}
