package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Mix is names with weights.
type Mix struct {
	Names   []string
	weights []float64 // cumulative
	text    string
}

// String is the mix as it was written.
func (m Mix) String() string { return m.text }

// MarshalText implements [encoding.TextMarshaler].
func (m Mix) MarshalText() ([]byte, error) { return []byte(m.text), nil }

// ParseMix reads names with weights, as in "high=1,std=4". A weight left out is
// 1. valid, unless nil, tells names that may be. what names the mix in errors.
func ParseMix(what, text string, valid func(string) bool) (Mix, error) {
	m := Mix{text: text}
	sum := 0.0
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(part), "=")
		weight := 1.0
		if weighted {
			var err error
			if weight, err = strconv.ParseFloat(number, 64); err != nil || !(weight > 0 && weight <= 1e9) {
				return Mix{}, fmt.Errorf("%s %q: weight %q must be above 0 and at most 1e9", what, name, number)
			}
		}
		if name == "" || valid != nil && !valid(name) {
			return Mix{}, fmt.Errorf("%s %q: no such name can be", what, name)
		}
		if seen[name] {
			return Mix{}, fmt.Errorf("%s %s: twice", what, name)
		}
		seen[name] = true
		sum += weight
		m.Names, m.weights = append(m.Names, name), append(m.weights, sum)
	}
	return m, nil
}

// pick draws a name.
func (m *Mix) pick(random *rand.Rand) string {
	if len(m.Names) == 1 {
		return m.Names[0]
	}
	at := random.Float64() * m.weights[len(m.weights)-1]
	for i, w := range m.weights {
		if at < w {
			return m.Names[i]
		}
	}
	return m.Names[len(m.Names)-1]
}
