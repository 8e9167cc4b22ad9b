package kernel_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

func TestInt8Rows(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for rows := 1; rows <= 64; rows++ {
			p := random(rows, 5*32+7, 37+rows, 1)
			p.same(t, p.compute(t, table, kernel.Int8, call{}), p.compute(t, portable, kernel.Int8, call{}))
		}
		p := random(256, 99, 301, 1)
		p.same(t, p.compute(t, table, kernel.Int8, call{}), p.compute(t, portable, kernel.Int8, call{}))
	})
}

func TestInt8Inputs(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for k := range 71 {
			p := random(1+k%17, 33, k, 2)
			p.same(t, p.compute(t, table, kernel.Int8, call{}), p.compute(t, portable, kernel.Int8, call{}))
		}
		// These are long enough to be cut into several calls.
		for _, p := range []product{
			random(1, 131, 9001, 2), random(2, 97, 16385, 2), random(3, 64, 12345, 2),
			random(4, 65, 9003, 2), random(7, 97, 12346, 2), random(15, 33, 40003, 2),
		} {
			p.same(t, p.compute(t, table, kernel.Int8, call{}), p.compute(t, portable, kernel.Int8, call{}))
		}
	})
}

func TestInt8Calls(t *testing.T) {
	t.Parallel()
	calls := map[string]call{
		"in place":             {inPlace: true},
		"rows apart":           {padX: 3, padY: 5},
		"single panels":        {step: 1},
		"two panels":           {step: 2, inPlace: true},
		"three panels":         {step: 3, padY: 1},
		"five panels":          {step: 5},
		"rows in twos":         {batch: 2},
		"rows in sevens":       {batch: 7, step: 3},
		"a matrix after other": {cut: 50},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
				t.Helper()
				for n := 1; n <= 260; n += 19 {
					p := random(1+n%9, n, 127, 3)
					want := p.compute(t, portable, kernel.Int8, call{cut: c.cut})
					p.same(t, p.compute(t, table, kernel.Int8, c), want)
				}
			})
		})
	}
}

func TestInt8Bias(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, rows := range []int{2, 3, 8, 15, 29} {
			p := random(rows, 77, 61, 4)
			p.start = p.start[:p.n]
			p.same(t, p.compute(t, table, kernel.Int8, call{step: 2}), p.compute(t, portable, kernel.Int8, call{}))
		}
	})
}

func TestInt8Interleaved(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, gates := range [][]int{{0, 1, 2, 3}, {2, 0, 1}} {
			for rows := 1; rows <= 5; rows++ {
				p := random(rows, 50*len(gates), 61, 5)
				want := p.compute(t, portable, kernel.Int8, call{})
				p.gates = gates
				p.same(t, p.compute(t, table, kernel.Int8, call{step: len(gates)}), want)
			}
		}
	})
}

// specialRows are vectors that a conversion to codes could get wrong.
func specialRows() map[string]func(v []float32) {
	set := func(x float32) func(v []float32) {
		return func(v []float32) {
			for i := range v {
				v[i] = x
			}
		}
	}
	at := func(i func(n int) int, bits uint32) func(v []float32) {
		return func(v []float32) { v[i(len(v))] = math.Float32frombits(bits) }
	}
	first, middle, last := func(int) int { return 0 }, func(n int) int { return n / 2 }, func(n int) int { return n - 1 }
	return map[string]func(v []float32){
		"zero":             set(0),
		"minus zero":       set(float32(math.Copysign(0, -1))),
		"least denormal":   set(math.SmallestNonzeroFloat32),
		"denormal":         set(-0x1p-130),
		"below the least":  set(0x0.fffffep-100),
		"the least":        set(-0x1p-100),
		"largest":          set(-math.MaxFloat32),
		"infinity":         at(middle, 0x7f800000),
		"last is infinite": at(last, 0xff800000),
		"NaN":              at(first, 0x7fc00000),
		"negative NaN":     at(last, 0xffc00001),
		"signalling NaN":   at(middle, 0x7f800001),
		"ties": func(v []float32) {
			for i := range v {
				v[i] = float32(i%255-127) / 2
			}
			v[0] = 127
		},
		"wide range": func(v []float32) {
			for i := range v {
				v[i] = float32(math.Ldexp(1, -i))
			}
		},
	}
}

func TestInt8Specials(t *testing.T) {
	t.Parallel()
	for name, set := range specialRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
				t.Helper()
				for _, k := range []int{1, 5, 8, 15, 16, 17, 31, 64, 133} {
					p := random(5, 37, k, 6)
					set(p.x[2*k : 3*k])
					set(p.w[7*k : 8*k])
					p.same(t, p.compute(t, table, kernel.Int8, call{}), p.compute(t, portable, kernel.Int8, call{}))
				}
			})
		})
	}
}

// A row or an output that is not finite gives NaN everywhere, and only there.
func TestInt8NotFinite(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, _, table *kernel.Table) {
		t.Helper()
		p := random(4, 40, 45, 7)
		p.x[1*p.k+44] = float32(math.Inf(-1))
		p.w[9*p.k+3] = float32(math.NaN())
		for i, v := range p.compute(t, table, kernel.Int8, call{}) {
			want := i/p.n == 1 || i%p.n == 9
			if (v != v) != want {
				t.Errorf("row %d output %d is %v", i/p.n, i%p.n, v)
			}
		}
	})
}

// A vector whose largest magnitude is below 2^-100 counts as zero.
func TestInt8Tiny(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, _, table *kernel.Table) {
		t.Helper()
		for exponent, zero := range map[int]bool{-102: true, -101: true, -100: false, -149: true} {
			p := random(3, 35, 20, 8)
			clear(p.start)
			for i := range p.x {
				p.x[i] = float32(math.Ldexp(1, exponent))
			}
			for i, v := range p.compute(t, table, kernel.Int8, call{}) {
				if (v == 0) != zero {
					t.Errorf("all inputs 2^%d: row %d output %d is %v", exponent, i/p.n, i%p.n, v)
				}
			}
		}
	})
}

// With every code at an end of its range, sums are right up to the largest
// number of inputs.
func TestInt8Extremes(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, _, table *kernel.Table) {
		t.Helper()
		for _, k := range []int{65536, kernel.MaxInt8Inputs} {
			p := product{rows: 2, n: 2, k: k, w: make([]float32, 2*k), x: make([]float32, 2*k), start: make([]float32, 4)}
			for i := range k {
				p.w[i], p.w[k+i], p.x[i], p.x[k+i] = 127, -127, 127, -127
			}
			sum := float32(127 * 127 * k)
			p.same(t, p.compute(t, table, kernel.Int8, call{}), []float32{sum, -sum, -sum, sum})
		}
	})
}

func TestInt8RefusesMoreInputs(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	k := kernel.MaxInt8Inputs + 1
	table := kernel.Tables()[0]
	table.Pack(kernel.Int8, kernel.Weights{Data: make([]float32, k), Stride: k, K: k}, table.Plain(1))
}

// The error of a product of normally distributed values is about one in a
// hundred.
func TestInt8Error(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, _, table *kernel.Table) {
		t.Helper()
		p := random(16, 96, 512, 9)
		clear(p.start)
		var off, all float64
		for i, got := range p.compute(t, table, kernel.Int8, call{}) {
			var want float64
			for k := range p.k {
				want += float64(p.x[i/p.n*p.k+k]) * float64(p.w[i%p.n*p.k+k])
			}
			off += (float64(got) - want) * (float64(got) - want)
			all += want * want
		}
		if rms := math.Sqrt(off / all); rms > 0.015 {
			t.Errorf("the error is %.4f of the result", rms)
		}
	})
}

// An input that held a longer and wider block, and whose rows are prepared one
// by one, gives the same results as a new one.
func TestInt8InputUsedAgain(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, _, table *kernel.Table) {
		t.Helper()
		p := random(9, 40, 70, 10)
		want := p.compute(t, table, kernel.Int8, call{})
		m := table.Pack(kernel.Int8, kernel.Weights{Data: p.w, Stride: p.k, K: p.k}, table.Plain(p.n))
		x := kernel.Rows{Data: p.x, Stride: p.k}
		var in kernel.Input
		in.Reset(table, kernel.Int8, kernel.Rows{Data: normal(rand.New(rand.NewPCG(1, 1)), 2000), Stride: 100}, 20, 100)
		in.Prepare(0, 20)
		in.Reset(table, kernel.Int8, x, p.rows, p.k)
		for r := p.rows - 1; r >= 0; r-- {
			in.Prepare(r, r+1)
		}
		y := p.startRows(m.Panels, table.Width)
		m.Product(y, y, &in, p.rows, 0, len(m.Panels))
		p.same(t, p.collect(y, m.Panels, table.Width), want)
	})
}

func TestInt8AllocatesNothing(t *testing.T) {
	for _, table := range kernel.Tables() {
		for _, k := range []int{64, 20000} {
			p := random(5, 96, k, 11)
			m := table.Pack(kernel.Int8, kernel.Weights{Data: p.w, Stride: k, K: k}, table.Plain(p.n))
			y := p.startRows(m.Panels, table.Width)
			var in kernel.Input
			step := func(rows int) {
				in.Reset(table, kernel.Int8, kernel.Rows{Data: p.x, Stride: k}, rows, k)
				in.Prepare(0, rows)
				m.Product(y, y, &in, rows, 0, len(m.Panels))
			}
			step(p.rows)
			if n := testing.AllocsPerRun(3, func() { step(p.rows); step(1) }); n != 0 {
				t.Errorf("%s, %d inputs: %v allocations", table.Name, k, n)
			}
		}
	}
}

// FuzzInt8 compares all tables; the given bits are one row or one output.
func FuzzInt8(f *testing.F) {
	f.Add(uint64(1), uint16(17), uint16(40), uint8(5), []byte{0, 0, 0x80, 0x7f})
	f.Add(uint64(2), uint16(255), uint16(3), uint8(63), []byte{1, 0, 0, 0, 0xff, 0xff, 0x7f, 0x7f})
	f.Add(uint64(4), uint16(7), uint16(130), uint8(2), []byte{0xff, 0xff, 0x7f, 0x0d, 0, 0, 0x80, 0x8d})
	tables := kernel.Tables()
	f.Fuzz(func(t *testing.T, seed uint64, k, n uint16, rows uint8, bits []byte) {
		p := random(1+int(rows)%64, 1+int(n)%200, int(k)%700, seed)
		v := p.x
		if seed%2 == 0 {
			v = p.w
		}
		for i := 0; i < p.k && len(bits) >= 4*(i+1); i++ {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(bits[4*i:]))
		}
		c := call{step: int(seed>>8) % 6, batch: int(seed>>16) % 70, inPlace: seed>>24&1 == 1, padX: int(seed>>32) % 9}
		want := p.compute(t, tables[0], kernel.Int8, call{})
		for _, table := range tables[1:] {
			p.same(t, p.compute(t, table, kernel.Int8, c), want)
		}
	})
}
