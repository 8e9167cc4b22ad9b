package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// normals returns n normally distributed values.
func normals(n int, seed uint64) []float32 {
	random := rand.New(rand.NewPCG(seed, 7))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

// attention is the definition, in float64.
func attention(query, memory []float32, entries int) []float64 {
	width := len(query)
	scores, largest := make([]float64, entries), math.Inf(-1)
	for t := range scores {
		for j, q := range query {
			scores[t] += float64(q) * float64(memory[t*width+j])
		}
		largest = max(largest, scores[t])
	}
	sum := 0.0
	for t := range scores {
		scores[t] = math.Exp(scores[t] - largest)
		sum += scores[t]
	}
	out := make([]float64, width)
	for t, p := range scores {
		for j := range out {
			out[j] += p / sum * float64(memory[t*width+j])
		}
	}
	return out
}

func TestAttend(t *testing.T) {
	t.Parallel()
	for _, table := range kernel.Tables() {
		for _, tc := range []struct{ width, entries int }{
			{1, 1},
			{5, 3},
			{16, 4},
			{33, 9},
			{128, 31},
			{300, 70},
			{20000, 5},
			{3, 40000},
		} {
			t.Run(fmt.Sprintf("%s/%dx%d", table.Name, tc.width, tc.entries), func(t *testing.T) {
				t.Parallel()
				query, memory := normals(tc.width, 1), normals(tc.width*tc.entries, 2)
				for i := range query {
					query[i] /= float32(math.Sqrt(float64(tc.width)))
				}
				out, scores := normals(tc.width, 3), make([]float32, tc.entries)
				table.Attend(query, memory, scores, out)
				for j, want := range attention(query, memory, tc.entries) {
					if math.Abs(float64(out[j])-want) > 1e-5 {
						t.Fatalf("element %d is %g, want %g", j, out[j], want)
					}
				}
				again := make([]float32, tc.width)
				kernel.Tables()[0].Attend(query, memory, scores, again)
				for j, want := range again {
					if out[j] != want {
						t.Fatalf("element %d is %g, and %g in the portable table", j, out[j], want)
					}
				}
			})
		}
	}
}

func TestAttendToNothing(t *testing.T) {
	t.Parallel()
	for _, table := range kernel.Tables() {
		out := []float32{1, 2, 3}
		table.Attend(make([]float32, 3), nil, nil, out)
		if out[0] != 0 || out[1] != 0 || out[2] != 0 {
			t.Errorf("%s: %v without entries", table.Name, out)
		}
		table.Attend(nil, nil, make([]float32, 3), nil)
	}
}

func TestAttendToWhatIsNotFinite(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, table := range kernel.Tables() {
		for _, tc := range []struct {
			name   string
			memory []float32
		}{
			{"NaN", []float32{1, 2, nan, 1, 3, 3}},
			{"Inf", []float32{1, 2, inf, 1, 3, 3}},
			{"-Inf", []float32{-inf, 2, 2, -1, 3, 3}},
		} {
			out := make([]float32, 2)
			table.Attend([]float32{1, 0.5}, tc.memory, make([]float32, 3), out)
			if out[0] == out[0] {
				t.Errorf("%s, %s: %v, want NaN", table.Name, tc.name, out)
			}
		}
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	for _, table := range kernel.Tables() {
		for _, n := range []int{0, 1, 17, 40000} {
			x, y, out := normals(n, 1), normals(n, 2), make([]float32, n)
			table.Add(out, x, y)
			for i := range out {
				if out[i] != x[i]+y[i] {
					t.Fatalf("%s: element %d of %d is %g, want %g", table.Name, i, n, out[i], x[i]+y[i])
				}
			}
		}
	}
}

func BenchmarkAttend(b *testing.B) {
	for _, table := range kernel.Tables() {
		for _, bc := range []struct{ width, entries int }{{128, 12}, {256, 24}, {512, 60}} {
			b.Run(fmt.Sprintf("%s/%dx%d", table.Name, bc.width, bc.entries), func(b *testing.B) {
				b.ReportAllocs()
				query, memory := normals(bc.width, 1), normals(bc.width*bc.entries, 2)
				out, scores := make([]float32, bc.width), make([]float32, bc.entries)
				for b.Loop() {
					table.Attend(query, memory, scores, out)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(memory)), "ns/element")
			})
		}
	}
}
