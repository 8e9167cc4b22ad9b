package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

func TestGreedy(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	minusZero := float32(math.Copysign(0, -1))
	many := normals(100_000, 1) // in several calls
	many[70_000] = 9
	late := append(make([]float32, 77), 1, nan)
	for _, tc := range []struct {
		name   string
		logits []float32
		index  int
		bad    bool
	}{
		{name: "one", logits: []float32{-3}, index: 0},
		{name: "largest", logits: []float32{0, 2, 1}, index: 1},
		{name: "lowest index on ties", logits: []float32{1, 2, 2, 2}, index: 1},
		{name: "zeros of either sign", logits: []float32{-1, minusZero, 0}, index: 1},
		{name: "zeros of either sign, the other way", logits: []float32{-1, 0, minusZero}, index: 1},
		{name: "far apart", logits: []float32{3e38, -3e38}, index: 0},
		{name: "certain", logits: []float32{12, 0, 0.5, 1}, index: 0},
		{name: "all equal", logits: make([]float32, 1000), index: 0},
		{name: "many", logits: many, index: 70_000},
		{name: "tie between calls", logits: make([]float32, 100_000), index: 0},
		{name: "NaN last", logits: []float32{1, 2, nan}, bad: true},
		{name: "NaN first", logits: []float32{nan, 2}, bad: true},
		{name: "NaN after vectors", logits: late, bad: true},
		{name: "Inf", logits: []float32{1, inf}, bad: true},
		{name: "-Inf", logits: []float32{-inf, 1}, bad: true},
		{name: "all -Inf", logits: []float32{-inf, -inf}, bad: true},
	} {
		for _, table := range kernel.Tables() {
			t.Run(table.Name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				index, logProb := table.Greedy(tc.logits)
				if tc.bad {
					if index != 0 || logProb == logProb {
						t.Fatalf("got %d, %g, want 0, NaN", index, logProb)
					}
					return
				}
				others := 0.0
				for i, x := range tc.logits {
					if i != tc.index {
						others += math.Exp(float64(x) - float64(tc.logits[tc.index]))
					}
				}
				want := -math.Log1p(others)
				if index != tc.index || math.Abs(float64(logProb)-want) > 3e-7*math.Abs(want) || logProb > 0 {
					t.Errorf("got %d, %.9g, want %d, %.9g", index, logProb, tc.index, want)
				}
				if _, portable := kernel.Tables()[0].Greedy(tc.logits); logProb != portable {
					t.Errorf("got %.9g, and %.9g in the portable table", logProb, portable)
				}
			})
		}
	}
}

func BenchmarkGreedy(b *testing.B) {
	for _, table := range kernel.Tables() {
		for _, n := range []int{87, 1000, 32000} {
			b.Run(fmt.Sprintf("%s/%d", table.Name, n), func(b *testing.B) {
				b.ReportAllocs()
				logits := normals(n, 1)
				for b.Loop() {
					table.Greedy(logits)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/element")
			})
		}
	}
}
