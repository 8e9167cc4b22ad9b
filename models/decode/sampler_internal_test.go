package decode

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// distribution is the distribution that a sampler draws from, by the
// definition.
func distribution(s Sampling, logits []float32) []float64 {
	order := make([]int, len(logits))
	p := make([]float64, len(logits))
	for i, x := range logits {
		order[i], p[i] = i, math.Exp((float64(x)-float64(slices.Max(logits)))/s.Temperature)
	}
	slices.SortStableFunc(order, func(a, b int) int { return -cmp.Compare(logits[a], logits[b]) })
	if s.TopK > 0 {
		for _, i := range order[min(s.TopK, len(order)):] {
			p[i] = 0
		}
	}
	normalise(p)
	if s.TopP > 0 {
		sum := 0.0
		for _, i := range order {
			if sum >= s.TopP {
				p[i] = 0
			}
			sum += p[i]
		}
		normalise(p)
	}
	return p
}

func normalise(p []float64) {
	sum := 0.0
	for _, x := range p {
		sum += x
	}
	for i := range p {
		p[i] /= sum
	}
}

// TestSamplerDrawsTheDistribution counts draws of random distributions.
func TestSamplerDrawsTheDistribution(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 5))
	for range 60 {
		logits := make([]float32, 1+rng.IntN(12))
		for i := range logits {
			logits[i] = float32(math.Round(4*rng.NormFloat64()) / 2) // with ties
		}
		s := Sampling{Temperature: 0.3 + 2*rng.Float64(), Seed: rng.Uint64()}
		if rng.IntN(2) == 0 {
			s.TopK = 1 + rng.IntN(14)
		}
		if rng.IntN(2) == 0 {
			s.TopP = 0.1 + 0.9*rng.Float64()
		}
		want := distribution(s, logits)
		counts := make([]float64, len(logits))
		d := newSampler(s, len(logits))
		const n = 20000
		for step := range uint64(n) {
			counts[d.choose(logits, step)]++
		}
		for i, p := range want {
			if got := counts[i] / n; math.Abs(got-p) > 0.02 || p == 0 && got > 0 {
				t.Errorf("%+v %v: token %d drawn with %v, want %v", s, logits, i, got, p)
			}
		}
	}
}

func TestSamplerAtItsLimits(t *testing.T) {
	t.Parallel()
	logits := []float32{1, 3, -2, 3, 2.9999998}
	tests := map[string]Sampling{
		"top_k 1":            {Temperature: 5, TopK: 1},
		"top_p tiny":         {Temperature: 5, TopP: 1e-300},
		"temperature tiny":   {Temperature: 5e-324, TopK: 1},
		"both":               {Temperature: 1, TopK: 3, TopP: 0.01},
		"top_p and all kept": {Temperature: 1, TopK: 5, TopP: 0.01},
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newSampler(s, len(logits))
			for step := range uint64(2000) {
				if got := d.choose(logits, step); got != 1 {
					t.Fatalf("step %d: token %d, want 1", step, got)
				}
			}
		})
	}
	for _, s := range []Sampling{{Temperature: 5e-324}, {Temperature: 100, TopP: 1, TopK: 100}, {Temperature: 1e-30, TopP: 0.5}} {
		d := newSampler(s, len(logits))
		for step := range uint64(2000) {
			if got := d.choose(logits, step); got < 0 || int(got) >= len(logits) || s.Temperature < 1 && got != 1 && got != 3 {
				t.Fatalf("%+v: token %d", s, got)
			}
		}
	}
}

// TestSamplesAreTheSameEverywhere pins drawn tokens.
func TestSamplesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	logits := make([]float32, 50)
	for i := range logits {
		logits[i] = float32(i*i%17) / 4
	}
	for _, tt := range []struct {
		s    Sampling
		want []int32
	}{
		{Sampling{Temperature: 1, Seed: 42}, []int32{24, 14, 31, 36, 43, 13, 38, 21}},
		{Sampling{Temperature: 0.7, TopK: 20, Seed: 42}, []int32{47, 38, 27, 27, 8, 30, 41, 47}},
		{Sampling{Temperature: 1.5, TopP: 0.8, Seed: 1 << 40}, []int32{41, 20, 24, 13, 24, 8, 47, 43}},
		{Sampling{Temperature: 1.5, TopK: 10, TopP: 0.5, Seed: math.MaxUint64}, []int32{4, 13, 21, 30, 30, 38, 13, 30}},
	} {
		d := newSampler(tt.s, len(logits))
		var got []int32
		for step := range uint64(8) {
			got = append(got, d.choose(logits, step))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: got %v, want %v", tt.s, got, tt.want)
		}
	}
}

func TestSamplingAllocatesNothing(t *testing.T) {
	logits := make([]float32, 256)
	for i := range logits {
		logits[i] = float32(i % 31)
	}
	for _, s := range []Sampling{{Temperature: 1}, {Temperature: 1, TopK: 9}, {Temperature: 1, TopP: 0.9}, {Temperature: 1, TopK: 50, TopP: 0.9}} {
		d := newSampler(s, len(logits))
		step := uint64(0)
		if n := testing.AllocsPerRun(50, func() { d.choose(logits, step); step++ }); n != 0 {
			t.Errorf("%+v: %v allocations", s, n)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	for _, vocab := range []int{256, 32000} {
		rng := rand.New(rand.NewPCG(1, 1))
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(3 * rng.NormFloat64())
		}
		for _, s := range []Sampling{{Temperature: 1}, {Temperature: 1, TopK: 40}, {Temperature: 1, TopP: 0.9}} {
			b.Run(fmt.Sprintf("%d/top_k=%d/top_p=%g", vocab, s.TopK, s.TopP), func(b *testing.B) {
				d := newSampler(s, len(logits))
				step := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					d.choose(logits, step)
					step++
				}
			})
		}
	}
}

// The shares of the whole distribution are those that single tokens have, to
// the last bit.
func TestSamplerShares(t *testing.T) {
	t.Parallel()
	logits := []float32{-3, 7.5, 0, 7.5, -701, -700.4, float32(math.Copysign(0, -1)), 1e-30, -math.MaxFloat32, math.MaxFloat32, -90}
	for _, from := range []int{0, 4, 9} {
		for _, temperature := range []float64{1, 0.3, 1e-300, 50} {
			d := newSampler(Sampling{Temperature: temperature}, len(logits)-from)
			got, want := d.share(logits[from:]), 0.0
			largest := slices.Max(logits[from:])
			for i, x := range logits[from:] {
				w := d.weight(x, largest)
				want += w
				if math.Float64bits(d.shares[i]) != math.Float64bits(w) {
					t.Errorf("temperature %g: share of %g is %g, want %g", temperature, x, d.shares[i], w)
				}
			}
			if got != want {
				t.Errorf("temperature %g: mass %g, want %g", temperature, got, want)
			}
		}
	}
}

// A place at the very end of the mass belongs to the most probable token.
func TestSamplerDrawsAtTheEnd(t *testing.T) {
	t.Parallel()
	d := newSampler(Sampling{Temperature: 1}, 4)
	mass := d.share([]float32{1, 3, 2, 3})
	if got := d.draw(mass); got != 1 {
		t.Errorf("token %d, want 1", got)
	}
}
