package kernel

import (
	"math"
	"testing"
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
// million of them, and with close ones where activations bend.
func sweep(f func(x float32)) {
	const stride = 4999 // a prime, so that the last bits vary too
	for bits := uint32(0); bits < 0x7f800000; bits += stride {
		x := math.Float32frombits(bits)
		f(x)
		f(-x)
	}
	for x := float32(-25); x < 25; x += 1.0 / 1024 {
		f(x)
	}
}

func TestActivationsAreAccurate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		f     func(float32) float32
		want  func(float64) float64
		bound float64
	}{
		{name: "exp", f: exp, want: math.Exp, bound: 2},
		{name: "sigmoid", f: sigmoid, want: func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, bound: 3},
		{name: "tanh", f: tanh, want: math.Tanh, bound: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			worst, at := 0.0, float32(0)
			sweep(func(x float32) {
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
			})
			if !(worst <= tc.bound) {
				t.Errorf("error %.2f units in the last place at %g, want at most %g", worst, at, tc.bound)
			}
			t.Logf("worst error %.2f units in the last place at %g", worst, at)
		})
	}
}

func TestActivationsOfSpecialValues(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	tiny := math.Float32frombits(1)
	minusZero := float32(math.Copysign(0, -1))
	for _, tc := range []struct {
		name      string
		got, want float32
	}{
		{"exp -inf", exp(-inf), 0},
		{"exp inf", exp(inf), inf},
		{"exp 0", exp(0), 1},
		{"exp -0", exp(minusZero), 1},
		{"exp denormal", exp(tiny), 1},
		{"exp 1e30", exp(1e30), inf},
		{"exp -1e30", exp(-1e30), 0},
		{"exp to a denormal", exp(-103.2), tiny},
		{"sigmoid -inf", sigmoid(-inf), 0},
		{"sigmoid inf", sigmoid(inf), 1},
		{"sigmoid 1e30", sigmoid(1e30), 1},
		{"sigmoid -1e30", sigmoid(-1e30), 0},
		{"sigmoid 0", sigmoid(0), 0.5},
		{"tanh -inf", tanh(-inf), -1},
		{"tanh inf", tanh(inf), 1},
		{"tanh 1e30", tanh(1e30), 1},
		{"tanh 10", tanh(10), 1},
		{"tanh 0", tanh(0), 0},
		{"tanh -0", tanh(minusZero), minusZero},
		{"tanh denormal", tanh(tiny), tiny},
		{"tanh -denormal", tanh(-tiny), -tiny},
	} {
		if math.Float32bits(tc.got) != math.Float32bits(tc.want) {
			t.Errorf("%s = %g, want %g", tc.name, tc.got, tc.want)
		}
	}
	for name, f := range map[string]func(float32) float32{"exp": exp, "sigmoid": sigmoid, "tanh": tanh} {
		for _, bits := range []uint32{math.Float32bits(nan), 0x7f800001, 0xffffffff, 0x7fc001ff} {
			if got := f(math.Float32frombits(bits)); got == got {
				t.Errorf("%s(NaN %#x) = %g, want NaN", name, bits, got)
			}
		}
	}
}

func TestTanhIsOddAndGrows(t *testing.T) {
	t.Parallel()
	const rounding = 1.0 / (1 << 23)
	last := float32(-1)
	for x := float32(-12); x < 12; x += 1.0 / 512 {
		y := tanh(x)
		if y != -tanh(-x) {
			t.Errorf("tanh(%g) = %g, and of the opposite %g", x, y, tanh(-x))
		}
		if y < last-rounding {
			t.Errorf("tanh(%g) = %g, less than before, %g", x, y, last)
		}
		last = y
	}
}

func TestLog1p(t *testing.T) {
	t.Parallel()
	for s := 1e-300; s < 1e308; s *= 1.01 {
		got, want := log1p(s), math.Log1p(s)
		if math.Abs(got-want) > 1e-14*want {
			t.Fatalf("log1p(%g) = %g, want %g", s, got, want)
		}
	}
	for _, s := range []float64{0, math.Inf(1)} {
		if got := log1p(s); got != s {
			t.Errorf("log1p(%g) = %g", s, got)
		}
	}
	if got := log1p(math.NaN()); got == got {
		t.Errorf("log1p(NaN) = %g", got)
	}
}
