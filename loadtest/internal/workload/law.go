package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// longest bounds a length.
const longest = 100_000

// Law draws lengths. Its text is as [ParseLaw] reads it.
type Law struct {
	text string
	draw func(*rand.Rand) int
}

// String is the law as it was written.
func (l Law) String() string { return l.text }

// MarshalText implements [encoding.TextMarshaler].
func (l Law) MarshalText() ([]byte, error) { return []byte(l.text), nil }

// sentences is the law of lengths of translated sentences, as in the proceedings
// of the European Parliament: mean 24, 1 % above 90.
const sentences = "lognormal:20:0.65:330"

// ParseLaw reads a law of lengths: "fixed:N", "uniform:LEAST:MOST",
// "lognormal:MEDIAN:SIGMA:MOST", or "wmt", which is lognormal:20:0.65:330, the
// lengths of sentences in translation corpora.
func ParseLaw(text string) (Law, error) {
	wrong := func(want string) (Law, error) {
		return Law{}, fmt.Errorf("lengths %q: want %s, numbers from 1 to %d", text, want, longest)
	}
	name, rest, _ := strings.Cut(text, ":")
	var n []float64
	for field := range strings.SplitSeq(rest, ":") {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			v = math.NaN() // refused below, as any number out of bounds
		}
		n = append(n, v)
	}
	whole := func(v float64) bool { return v == math.Trunc(v) && v >= 1 && v <= longest }
	switch name {
	case "wmt":
		if text != name {
			return wrong("wmt alone")
		}
		law, err := ParseLaw(sentences)
		law.text = text
		return law, err
	case "fixed":
		if len(n) != 1 || !whole(n[0]) {
			return wrong("fixed:N")
		}
		return Law{text, func(*rand.Rand) int { return int(n[0]) }}, nil
	case "uniform":
		if len(n) != 2 || !whole(n[0]) || !whole(n[1]) || n[0] > n[1] {
			return wrong("uniform:LEAST:MOST")
		}
		return Law{text, func(r *rand.Rand) int { return int(n[0]) + r.IntN(int(n[1]-n[0])+1) }}, nil
	case "lognormal":
		if len(n) != 3 || !(n[0] >= 1 && n[0] <= longest) || !(n[1] >= 0 && n[1] <= 10) || !whole(n[2]) {
			return wrong("lognormal:MEDIAN:SIGMA:MOST")
		}
		return Law{text, func(r *rand.Rand) int {
			v := math.Round(n[0] * math.Exp(n[1]*r.NormFloat64()))
			return int(min(max(v, 1), n[2]))
		}}, nil
	}
	return wrong("wmt, fixed:N, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA:MOST")
}
