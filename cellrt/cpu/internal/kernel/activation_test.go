package kernel_test

import (
	"math"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// ulps returns the distance of got from want in units in the last place of the
// float32 nearest to want.
func ulps(got float32, want float64) float64 {
	near := float32(want)
	unit := float64(math.Nextafter32(near, float32(math.Inf(1)))) - float64(near)
	if math.IsInf(unit, 0) {
		unit = float64(near) - float64(math.Nextafter32(near, 0))
	}
	return math.Abs(float64(got)-want) / unit
}

// sweep calls f with values of all magnitudes and signs, a little under a
// million of them.
func sweep(f func(x float32)) {
	const stride = 4999 // a prime, so that the last bits vary too
	for bits := uint32(0); bits < 0x7f800000; bits += stride {
		x := math.Float32frombits(bits)
		f(x)
		f(-x)
	}
}

func TestActivations(t *testing.T) {
	t.Parallel()
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, tc := range []struct {
		name  string
		f     func(float32) float32
		want  func(float64) float64
		bound float64
	}{
		{name: "exp", f: kernel.Exp, want: math.Exp, bound: 2},
		{name: "sigmoid", f: kernel.Sigmoid, want: sigmoid, bound: 3},
		{name: "tanh", f: kernel.Tanh, want: math.Tanh, bound: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			worst, at := 0.0, float32(0)
			check := func(x float32) {
				got, want := tc.f(x), tc.want(float64(x))
				if want > math.MaxFloat32 {
					if !math.IsInf(float64(got), 1) && got < math.MaxFloat32*0.9999 {
						t.Errorf("%s(%g) = %g, want overflow", tc.name, x, got)
					}
					return
				}
				if math.Abs(want) < 1e-37 && tc.name == "sigmoid" {
					return // 1+e^-x overflows before the quotient does
				}
				if u := ulps(got, want); u > worst || math.IsNaN(u) {
					worst, at = u, x
				}
			}
			sweep(check)
			for x := float32(-25); x < 25; x += 1.0 / 1024 {
				check(x)
			}
			if !(worst <= tc.bound) {
				t.Errorf("error %.2f units in the last place at %g, want at most %g", worst, at, tc.bound)
			}
			t.Logf("worst error %.2f units in the last place at %g", worst, at)
		})
	}
}

func TestActivationsSpecialValues(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, tc := range []struct {
		name      string
		got, want float32
	}{
		{"exp -inf", kernel.Exp(-inf), 0},
		{"exp inf", kernel.Exp(inf), inf},
		{"exp 0", kernel.Exp(0), 1},
		{"exp 1e30", kernel.Exp(1e30), inf},
		{"exp -1e30", kernel.Exp(-1e30), 0},
		{"sigmoid -inf", kernel.Sigmoid(-inf), 0},
		{"sigmoid inf", kernel.Sigmoid(inf), 1},
		{"sigmoid 1e30", kernel.Sigmoid(1e30), 1},
		{"sigmoid -1e30", kernel.Sigmoid(-1e30), 0},
		{"sigmoid 0", kernel.Sigmoid(0), 0.5},
		{"tanh -inf", kernel.Tanh(-inf), -1},
		{"tanh inf", kernel.Tanh(inf), 1},
		{"tanh 1e30", kernel.Tanh(1e30), 1},
	} {
		if tc.got != tc.want {
			t.Errorf("%s = %g, want %g", tc.name, tc.got, tc.want)
		}
	}
	for name, f := range map[string]func(float32) float32{"exp": kernel.Exp, "sigmoid": kernel.Sigmoid, "tanh": kernel.Tanh} {
		if got := f(nan); got == got {
			t.Errorf("%s(NaN) = %g, want NaN", name, got)
		}
	}
}

func TestGreedy(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, tc := range []struct {
		name   string
		logits []float32
		index  int
		bad    bool
	}{
		{name: "one", logits: []float32{-3}, index: 0},
		{name: "largest", logits: []float32{0, 2, 1}, index: 1},
		{name: "lowest index on ties", logits: []float32{1, 2, 2, 2}, index: 1},
		{name: "far apart", logits: []float32{3e38, -3e38}, index: 0},
		{name: "certain", logits: []float32{12, 0, 0.5, 1}, index: 0},
		{name: "all equal", logits: make([]float32, 1000), index: 0},
		{name: "NaN last", logits: []float32{1, 2, nan}, bad: true},
		{name: "NaN first", logits: []float32{nan, 2}, bad: true},
		{name: "Inf", logits: []float32{1, inf}, bad: true},
		{name: "-Inf", logits: []float32{-inf, 1}, bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			index, logProb := kernel.Greedy(tc.logits)
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
		})
	}
}
