package safetensors_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/models/safetensors"
)

func TestHalvesRoundTrip(t *testing.T) {
	t.Parallel()
	for i := range 1 << 16 {
		h := uint16(i)
		if v := safetensors.FromBF16(h); v == v {
			if got := safetensors.ToBF16(v); got != h {
				t.Fatalf("bf16 %#04x is %g, which is %#04x", h, v, got)
			}
		} else if back := safetensors.FromBF16(safetensors.ToBF16(v)); back == back {
			t.Fatalf("bf16 NaN %#04x became %g", h, back)
		}
		if v := safetensors.FromF16(h); v == v {
			if got := safetensors.ToF16(v); got != h {
				t.Fatalf("f16 %#04x is %g, which is %#04x", h, v, got)
			}
		} else if back := safetensors.FromF16(safetensors.ToF16(v)); back == back {
			t.Fatalf("f16 NaN %#04x became %g", h, back)
		}
	}
}

func TestKnownHalves(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	tests := []struct {
		v         float32
		f16, bf16 uint16
	}{
		{0, 0, 0},
		{float32(math.Copysign(0, -1)), 0x8000, 0x8000},
		{1, 0x3c00, 0x3f80},
		{-2, 0xc000, 0xc000},
		{65504, 0x7bff, 0x4780},
		{65519.996, 0x7bff, 0x4780},
		{65520, 0x7c00, 0x4780},
		{inf, 0x7c00, 0x7f80},
		{-inf, 0xfc00, 0xff80},
		{math.MaxFloat32, 0x7c00, 0x7f80},
		{0x1p-14, 0x0400, 0x3880},
		{0x1p-24, 0x0001, 0x3380},
		{0x1p-25, 0x0000, 0x3300}, // tie to even
		{0x1.8p-24, 0x0002, 0x33c0},
		{1 + 0x1p-11, 0x3c00, 0x3f80},   // tie, even below
		{1 + 0x1.8p-10, 0x3c02, 0x3f80}, // tie, even above
		{1 + 0x1p-8, 0x3c04, 0x3f80},    // bf16 tie, even below
		{1 + 0x1.8p-7, 0x3c0c, 0x3f82},  // bf16 tie, even above
	}
	for _, tt := range tests {
		if got := safetensors.ToF16(tt.v); got != tt.f16 {
			t.Errorf("ToF16(%g) = %#04x, want %#04x", tt.v, got, tt.f16)
		}
		if got := safetensors.ToBF16(tt.v); got != tt.bf16 {
			t.Errorf("ToBF16(%g) = %#04x, want %#04x", tt.v, got, tt.bf16)
		}
	}
}

// TestRoundsToNearest compares each conversion with the two neighbours of its
// result, in float64.
func TestRoundsToNearest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(name string, v float32, to func(float32) uint16, from func(uint16) float32) {
		h := to(v)
		off := math.Abs(float64(from(h)) - float64(v))
		for _, n := range []uint16{h - 1, h + 1} {
			other := math.Abs(float64(from(n)) - float64(v))
			if other < off || other == off && h&1 == 1 {
				t.Fatalf("%s(%g) = %#04x, but %#04x is nearer or even", name, v, h, n)
			}
		}
	}
	for range 200_000 {
		v := math.Float32frombits(rng.Uint32())
		if a := math.Abs(float64(v)); a >= 0x1p-126 && a < 0x1p126 {
			check("ToBF16", v, safetensors.ToBF16, safetensors.FromBF16)
		}
		u := float32(math.Ldexp(rng.Float64()+1, rng.IntN(38)-24))
		if u < 65000 {
			check("ToF16", u, safetensors.ToF16, safetensors.FromF16)
		}
	}
}
