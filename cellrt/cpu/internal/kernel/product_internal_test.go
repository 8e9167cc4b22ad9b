package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// The portable product is what [Matrix.Product] says, word for word.
func TestProductDefinition(t *testing.T) {
	t.Parallel()
	table := portable()
	const rows, n, k = 3, 69, 37
	r := rand.New(rand.NewPCG(9, 9))
	fill := func(count int) []float32 {
		v := make([]float32, count)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	w, x, start := fill(n*k), Rows{Data: fill(rows * k), Stride: k}, Rows{Data: fill(rows * 96), Stride: 96}
	for _, f := range []Format{F32, BF16} {
		m := table.Pack(f, Weights{Data: w, Stride: k, K: k}, table.Plain(n))
		y := Rows{Data: make([]float32, rows*96), Stride: 96}
		var in Input
		in.Reset(table, f, x, rows, k)
		m.Product(y, start, &in, rows, 0, len(m.Panels))
		for row := range rows {
			for c := range n {
				want := start.Row(row, n)[c]
				for i, v := range x.Row(row, k) {
					weight := w[c*k+i]
					if f == BF16 {
						weight = fromBF16(bf16(weight))
					}
					want = exactFMA(v, weight, want)
				}
				if got := y.Row(row, n)[c]; math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v: row %d output %d = %x, want %x", f, row, c, got, want)
				}
			}
		}
	}
}

func TestBF16(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		x    float32
		want uint16
	}{
		{"zero", 0, 0},
		{"negative zero", float32(math.Copysign(0, -1)), 0x8000},
		{"one", 1, 0x3f80},
		{"tie to even below", 0x1.01p0, 0x3f80},
		{"tie to even above", 0x1.03p0, 0x3f82},
		{"above a tie", 0x1.010002p0, 0x3f81},
		{"below a tie", 0x1.00fffep0, 0x3f80},
		{"carry into the exponent", 0x1.ffp0, 0x4000},
		{"largest becomes infinite", math.MaxFloat32, 0x7f80},
		{"infinity", float32(math.Inf(-1)), 0xff80},
		{"denormal", 0x1p-133, 1},
		{"tie of denormals", 0x1p-134, 0},
		{"quiet NaN", math.Float32frombits(0x7fc00000), 0x7fc0},
		{"NaN with low bits only", math.Float32frombits(0x7f800001), 0x7fc0},
		{"negative NaN of all ones", math.Float32frombits(0xffffffff), 0xffff},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := bf16(c.x); got != c.want {
				t.Errorf("bf16(%x) = %#04x, want %#04x", c.x, got, c.want)
			}
		})
	}
	for v := range 1 << 16 {
		if x := fromBF16(uint16(v)); x == x && bf16(x) != uint16(v) {
			t.Fatalf("%#04x does not survive", v)
		}
	}
}

func TestWeightsAreAligned(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 100, 1000, 100_000} {
		f, h := aligned[float32](n), aligned[uint16](n)
		if len(f) != n || len(h) != n {
			t.Errorf("%d values: got %d and %d", n, len(f), len(h))
		}
		if uintptr(unsafe.Pointer(&f[0]))%cacheLine != 0 || uintptr(unsafe.Pointer(&h[0]))%cacheLine != 0 {
			t.Errorf("%d values: %p and %p are not at a cache line", n, f, h)
		}
	}
}

func TestProductAllocatesNothing(t *testing.T) {
	for _, table := range Tables() {
		for _, f := range []Format{F32, BF16} {
			for _, rows := range []int{1, 5, 30} {
				t.Run(fmt.Sprintf("%s/%v/%d", table.Name, f, rows), func(t *testing.T) {
					const k, n = 65, 100
					m := table.Pack(f, Weights{Data: make([]float32, n*k), Stride: k, K: k}, table.Plain(n))
					x := Rows{Data: make([]float32, rows*k), Stride: k}
					width := len(m.Panels) * table.Width
					y := Rows{Data: make([]float32, rows*width), Stride: width}
					var in Input
					if count := testing.AllocsPerRun(10, func() {
						in.Reset(table, f, x, rows, k)
						in.Prepare(0, rows)
						m.Product(y, y, &in, rows, 0, len(m.Panels))
					}); count != 0 {
						t.Errorf("%v allocations", count)
					}
				})
			}
		}
	}
}

func TestProductRefuses(t *testing.T) {
	t.Parallel()
	table := portable()
	m := table.Pack(F32, Weights{Data: make([]float32, 12), Stride: 3, K: 3}, table.Plain(4))
	block := func(rows int) Rows { return Rows{Data: make([]float32, rows*32), Stride: 32} }
	for _, c := range []struct {
		name        string
		y, start, x Rows
		width, last int
	}{
		{"short output", block(1), block(2), block(2), 3, 1},
		{"short start", block(2), block(1), block(2), 3, 1},
		{"short input", block(2), block(2), block(1), 3, 1},
		{"other width", block(2), block(2), block(2), 4, 1},
		{"panels it has not", block(2), block(2), block(2), 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			var in Input
			in.Reset(table, F32, c.x, 2, c.width)
			m.Product(c.y, c.start, &in, 2, 0, c.last)
		})
	}
}
