package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA is fma by exact arithmetic: the sum of a product and a number of
// float32 spans fewer than 600 bits.
func exactFMA(x, y, z float32) float32 {
	s := float64(x)*float64(y) + float64(z)
	if math.IsNaN(s) || math.IsInf(float64(x), 0) || math.IsInf(float64(y), 0) || math.IsInf(float64(z), 0) {
		return float32(s)
	}
	number := func(v float32) *big.Float { return new(big.Float).SetPrec(700).SetFloat64(float64(v)) }
	sum := number(x)
	sum.Mul(sum, number(y)).Add(sum, number(z))
	if sum.Sign() == 0 {
		return float32(s) // float64 knows the sign, and nothing else matters
	}
	want, _ := sum.Float32()
	return want
}

func checkFMA(t *testing.T, x, y, z float32) {
	t.Helper()
	got, want := fma(x, y, z), exactFMA(x, y, z)
	if got != got && want != want {
		return
	}
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Errorf("fma(%x, %x, %x) = %x, want %x", x, y, z, got, want)
	}
}

// Points on the scale of float32.
const (
	least  = 0x1p-149 // denormal
	normal = 0x1p-126
	most   = math.MaxFloat32
	ulp    = 0x1p-23 // of 1
)

type fmaCase struct {
	name    string
	x, y, z float32
}

// fmaTies are sums at and near points half way between two values, and of
// parts far from each other.
func fmaTies() []fmaCase {
	return []fmaCase{
		{"tie to even below", ulp, 0.5, 1},
		{"tie to even above", ulp, 0.5, 1 + ulp},
		{"just below a tie", 0x1.0002p-12, 0x1.fffcp-13, 1 + ulp},
		{"just below a tie of a denormal", 0x1.0002p-75, 0x1.fffcp-76, normal/2 + least},
		{"tie of the product, just above", 1 + ulp, 1.5, 0x1p-60},
		{"tie of the product, just below", 1 + ulp, 1.5, -0x1p-60},
		{"other tie of the product, just above", 1 + 3*ulp, 1.5, 0x1p-60},
		{"other tie of the product, just below", 1 + 3*ulp, 1.5, -0x1p-60},
		{"negative tie", -ulp, 0.5, -1},
		{"tie seen only by the product", 1 + ulp, 1 + ulp, 0},
		{"tie in float64, sum above it", 0x1.000002p0, 0x1.000002p-24, 0x1p30},
		{"large z, tiny product", least, least, 1 + ulp},
		{"large z, tiny product, at a power of two", -least, least, 1},
		{"tie with a tiny opposite part", least, -least, 1},
	}
}

// fmaEdges are sums that cancel, and those at the ends of the scale.
func fmaEdges() []fmaCase {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negativeZero := float32(math.Copysign(0, -1))
	return []fmaCase{
		{"cancellation", 1 + ulp, 1 + ulp, -1 - 2*ulp},
		{"cancellation to a denormal", 0x1.000002p-75, 0x1.000002p-75, -0x1.000004p-150},
		{"cancellation to zero", 3, 5, -15},
		{"negative zero stays", negativeZero, 1, negativeZero},
		{"zeros of both signs", negativeZero, 1, 0},
		{"half of the least denormal", least, 0.5, 0},
		{"more than half of the least denormal", least, 0.5 + ulp, 0},
		{"half of the least denormal beside z", least, 0.5, least},
		{"half of the least denormal beside an even z", least, 0.5, 2 * least},
		{"denormal tie", 3 * least, 0.5, 0},
		{"into the normal range", normal, 1 - ulp/2, least / 2},
		{"up to the least normal number", 0x1.fffffep-64, 0x1.000002p-63, 0},
		{"double rounding of a denormal", 0x1.000002p-64, 0x1.fffffep-64, 0x1p-140},
		{"largest", most, 1, 0},
		{"to infinity by a tie", most, 1, 0x1p103},
		{"not to infinity", most, 1, 0x1.fffffep102},
		{"overflow", most, 2, 0},
		{"overflow taken back", most, 2, -most},
		{"infinity", inf, 1, -1},
		{"infinity less infinity", inf, 1, -inf},
		{"zero times infinity", 0, inf, 1},
		{"not a number in x", nan, 1, 1},
		{"not a number in z", 1, 1, nan},
	}
}

func TestFMA(t *testing.T) {
	t.Parallel()
	for _, c := range append(fmaTies(), fmaEdges()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, sign := range []float32{1, -1} {
				checkFMA(t, c.x, c.y, c.z)
				checkFMA(t, sign*c.y, c.x, sign*c.z)
			}
		})
	}
}

// scaled returns a value of either sign and a power of two in the range.
func scaled(r *rand.Rand, low, high int) float32 {
	v := math.Ldexp(1+float64(r.Uint32()&(1<<23-1))/(1<<23), low+r.IntN(high-low+1))
	return float32(math.Copysign(v, r.Float64()-0.5))
}

// nearOne returns factors whose product differs from a power of two in no more
// than the last 18 of 47 bits, which float64 loses beside a number 2^24 times as
// large, and the exponent of that power.
func nearOne(r *rand.Rand) (x, y float32, exponent int) {
	for {
		m := 1<<23 + r.Int64N(1<<23)
		n := (1<<47 + m/2) / m
		if difference := m*n - 1<<47; n < 1<<24 && difference != 0 && difference < 1<<18 && difference > -1<<18 {
			return float32(m), float32(n), 47
		}
	}
}

// nearTie returns a triple whose sum lies so close to half way between two
// values of float32 that a float64 lies there: between normal values, or
// denormal ones.
func nearTie(r *rand.Rand, denormal bool) (x, y, z float32) {
	x, y, exponent := nearOne(r)
	unit := r.IntN(100) - 50
	z = float32(1<<23+r.IntN(1<<23)) * float32(math.Ldexp(1, unit))
	if denormal {
		unit = -149
		z = float32(1<<22+r.IntN(1<<22)) * 0x1p-149
	}
	// x*y becomes half a unit.
	shift := unit - 1 - exponent
	x *= float32(math.Ldexp(1, shift/2))
	y *= float32(math.Ldexp(1, shift-shift/2))
	if r.IntN(2) == 0 {
		x = -x
	}
	if r.IntN(2) == 0 {
		z = -z
	}
	return x, y, z
}

// Random patterns nearly never come near a tie or a denormal, so most of the
// triples below are made to.
func TestFMARandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	few := func(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1<<18 - 1)) }
	for range 30_000 {
		checkFMA(t, math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()))
		for _, denormal := range []bool{false, true} {
			x, y, z := nearTie(r, denormal)
			checkFMA(t, x, y, z)
		}
		// A product of some units in the last place of z, or fractions of one, and
		// with factors of few bits, which meet ties exactly.
		z := scaled(r, -126, 127)
		_, exponent := math.Frexp(float64(z))
		x := scaled(r, -20, 20)
		_, part := math.Frexp(float64(x))
		y := scaled(r, exponent-part-30, exponent-part+3)
		checkFMA(t, x, y, z)
		checkFMA(t, few(x), few(y), z)
		// Results around the least normal number and below.
		checkFMA(t, scaled(r, -80, -60), scaled(r, -80, -60), float32(r.IntN(1<<24)-1<<23)*0x1p-149)
		checkFMA(t, few(scaled(r, -80, -70)), few(scaled(r, -80, -70)), float32(r.IntN(64)-32)*0x1p-149)
		// Cancellation.
		y = scaled(r, -20, 20)
		checkFMA(t, x, y, -x*y)
	}
}

func FuzzFMA(f *testing.F) {
	f.Add(uint32(0x34000000), uint32(0x3f000000), uint32(0x3f800000))
	f.Add(uint32(1), uint32(0x3f000000), uint32(0x80000001))
	f.Add(uint32(0x7f7fffff), uint32(0x40000000), uint32(0xff7fffff))
	f.Fuzz(func(t *testing.T, x, y, z uint32) {
		checkFMA(t, math.Float32frombits(x), math.Float32frombits(y), math.Float32frombits(z))
	})
}

// The columns of chains are chains of fma each. One column ends near a tie, the
// others hold small integers, which meet zeros and ties, or anything.
func TestChains(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	for n := range 20_000 {
		const inputs, stride = 3, chainColumns + 3
		var start, got [chainColumns]float32
		x, w := make([]float32, inputs), make([]float32, inputs*stride)
		for i := range x {
			x[i] = float32(r.IntN(15) - 7)
		}
		for i := range w {
			w[i] = float32(r.IntN(15) - 7)
		}
		for i := range start {
			start[i] = scaled(r, -24, 4)
		}
		at := n % chainColumns
		for k := range inputs - 1 {
			w[k*stride+at] = 0
		}
		x[inputs-1], w[(inputs-1)*stride+at], start[at] = nearTie(r, n%3 == 0)
		chains(&got, &start, x, w, stride)
		for c := range got {
			want := start[c]
			for k, v := range x {
				want = exactFMA(v, w[k*stride+c], want)
			}
			if math.Float32bits(got[c]) != math.Float32bits(want) {
				t.Fatalf("column %d = %x, want %x: x %x w %x", c, got[c], want, x, w)
			}
		}
	}
}
