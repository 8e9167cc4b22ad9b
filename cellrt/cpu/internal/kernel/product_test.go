package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// chain is the contract of [kernel.Accumulate] for one output, word for word.
func chain(start float32, x, w []float32) float32 {
	for k := range x {
		start = float32(x[k]*w[k]) + start
	}
	return start
}

func TestAccumulate(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct{ n, k int }{{1, 1}, {1, 7}, {31, 3}, {32, 4}, {33, 5}, {64, 32}, {87, 129}, {96, 2}, {130, 66}} {
		for _, rows := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%dx%d/%d", shape.n, shape.k, rows), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(shape.n), uint64(shape.k)))
				w, x, bias := random(r, shape.n*shape.k), random(r, rows*shape.k), random(r, shape.n)
				m := kernel.Pack(shape.n, [][]float32{w}, []int{shape.k})
				stride := kernel.Padded(shape.n)
				y := kernel.Rows{Data: make([]float32, rows*stride), Stride: stride}
				y.Fill(rows, bias)
				in := kernel.Rows{Data: x, Stride: shape.k}
				// In two parts, as a recurrent step does it.
				cut := shape.k / 3
				kernel.Accumulate(m, y, in, rows, 0, cut)
				kernel.Accumulate(m, y, kernel.Rows{Data: x[cut:], Stride: shape.k}, rows, cut, shape.k-cut)
				for row := range rows {
					for n := range shape.n {
						want := chain(bias[n], in.Row(row, shape.k), w[n*shape.k:(n+1)*shape.k])
						if got := y.Row(row, shape.n)[n]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("row %d output %d = %x, want %x", row, n, got, want)
						}
					}
				}
			})
		}
	}
}

func TestPackConcatenates(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	const rows, a, b = 37, 5, 9
	left, right := random(r, rows*a), random(r, rows*b)
	m := kernel.Pack(rows, [][]float32{left, right}, []int{a, b})
	x := random(r, a+b)
	y := kernel.Rows{Data: make([]float32, kernel.Padded(rows)), Stride: kernel.Padded(rows)}
	kernel.Accumulate(m, y, kernel.Rows{Data: x, Stride: a + b}, 1, 0, a+b)
	for n := range rows {
		want := chain(chain(0, x[:a], left[n*a:(n+1)*a]), x[a:], right[n*b:(n+1)*b])
		if y.Data[n] != want {
			t.Fatalf("output %d = %g, want %g", n, y.Data[n], want)
		}
	}
}

func TestAttend(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct{ length, width int }{{0, 3}, {1, 1}, {3, 5}, {4, 8}, {9, 33}} {
		t.Run(fmt.Sprintf("%dx%d", shape.length, shape.width), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(3, uint64(shape.length)))
			query, memory := random(r, shape.width), random(r, shape.length*shape.width)
			out := random(r, shape.width)
			kernel.Attend(query, memory, make([]float32, shape.length), out)

			weights, sum := make([]float64, shape.length), 0.0
			for i := range weights {
				for j, q := range query {
					weights[i] += float64(q) * float64(memory[i*shape.width+j])
				}
				weights[i] = math.Exp(weights[i])
				sum += weights[i]
			}
			for j := range out {
				want := 0.0
				for i, w := range weights {
					want += w / sum * float64(memory[i*shape.width+j])
				}
				if math.Abs(float64(out[j])-want) > 1e-5 {
					t.Errorf("column %d = %g, want %g", j, out[j], want)
				}
			}
		})
	}
}

func BenchmarkAccumulate(b *testing.B) {
	for _, shape := range []struct{ n, k int }{{1536, 512}, {87, 384}} {
		for _, rows := range []int{1, 4, 16, 32} {
			b.Run(fmt.Sprintf("%dx%d/rows=%d", shape.n, shape.k, rows), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				m := kernel.Pack(shape.n, [][]float32{random(r, shape.n*shape.k)}, []int{shape.k})
				x := kernel.Rows{Data: random(r, rows*shape.k), Stride: shape.k}
				y := kernel.Rows{Data: make([]float32, rows*kernel.Padded(shape.n)), Stride: kernel.Padded(shape.n)}
				bias := make([]float32, shape.n)
				b.ReportAllocs()
				for b.Loop() {
					y.Fill(rows, bias)
					kernel.Accumulate(m, y, x, rows, 0, shape.k)
				}
				flop := 2 * float64(rows) * float64(shape.n) * float64(shape.k) * float64(b.N)
				b.ReportMetric(flop/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

func BenchmarkActivation(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	v := random(r, 4096)
	for _, bench := range []struct {
		name string
		f    func(float32) float32
	}{{"sigmoid", kernel.Sigmoid}, {"tanh", kernel.Tanh}} {
		b.Run(bench.name, func(b *testing.B) {
			var sink float32
			for b.Loop() {
				for _, x := range v {
					sink += bench.f(x)
				}
			}
			if sink != sink {
				b.Fatal("NaN")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(v)), "ns/value")
		})
	}
}
