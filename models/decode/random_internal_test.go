package decode

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPhilox compares with the known answers that come with the generator's
// reference implementation, Random123.
func TestPhilox(t *testing.T) {
	t.Parallel()
	tests := []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	}
	for _, tt := range tests {
		if got := philox(tt.counter, tt.key); got != tt.want {
			t.Errorf("philox(%x, %x) = %x, want %x", tt.counter, tt.key, got, tt.want)
		}
	}
}

// TestUniform pins how a block becomes a number, and that step and seed both
// matter in all their bits.
func TestUniform(t *testing.T) {
	t.Parallel()
	if got, want := uniform(0, 0), float64(0xe169c58d6627e8d5>>11)/(1<<53); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	seen := map[float64]bool{uniform(0, 0): true}
	for bit := range 64 {
		for _, u := range []float64{uniform(1<<bit, 0), uniform(0, 1<<bit)} {
			if u < 0 || u >= 1 || seen[u] {
				t.Errorf("bit %d: %v", bit, u)
			}
			seen[u] = true
		}
	}
	sum := 0.0
	const n = 100000
	for step := range uint64(n) {
		sum += uniform(7, step)
	}
	if mean := sum / n; math.Abs(mean-0.5) > 0.003 {
		t.Errorf("mean %v", mean)
	}
}

func TestExp(t *testing.T) {
	t.Parallel()
	if Exp(0) != 1 || Exp(math.Inf(-1)) != 0 || Exp(-709) != 0 {
		t.Errorf("got %v, %v, %v", Exp(0), Exp(math.Inf(-1)), Exp(-709))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200000 {
		x := -708 * math.Pow(rng.Float64(), 4)
		if got, want := Exp(x), math.Exp(x); math.Abs(got-want) > 1e-11*want {
			t.Fatalf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	// The bits are the same on every machine.
	for x, want := range map[float64]uint64{-1: 0x3fd78b56362ca968, -0.5: 0x3fe368b2fc6f95af, -100: 0x36ea8c1f14e2aede} {
		if got := math.Float64bits(Exp(x)); got != want {
			t.Errorf("Exp(%v) has the bits %x, want %x", x, got, want)
		}
	}
}
