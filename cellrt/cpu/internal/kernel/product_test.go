package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// floats are the formats whose products are chains of float32.
var floats = []kernel.Format{kernel.F32, kernel.BF16}

// everyTable runs a test for each table, with the portable one to compare with.
func everyTable(t *testing.T, test func(t *testing.T, portable, table *kernel.Table)) {
	t.Helper()
	tables := kernel.Tables()
	for _, table := range tables {
		t.Run(table.Name, func(t *testing.T) {
			t.Parallel()
			test(t, tables[0], table)
		})
	}
}

func TestProductRows(t *testing.T) {
	t.Parallel()
	rows := []int{256}
	for r := range 64 {
		rows = append(rows, r+1)
	}
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, r := range rows {
				p := random(r, 5*32+7, 13, 1)
				p.same(t, p.compute(t, table, f, call{}), p.compute(t, portable, f, call{}))
			}
		}
	})
}

func TestProductInputs(t *testing.T) {
	t.Parallel()
	inputs := []int{127, 128, 512, 1000, 1001, 1023, 4099, 9001}
	for k := range 71 {
		inputs = append(inputs, k)
	}
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, k := range inputs {
				for _, rows := range []int{1, 3, 6, 14} {
					p := random(rows, 4*32, k, 2)
					if k > 100 {
						p = random(min(rows, 2), 99, k, 2)
					}
					p.same(t, p.compute(t, table, f, call{}), p.compute(t, portable, f, call{}))
				}
			}
		}
	})
}

func TestProductOutputs(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 63, 65, 87, 96, 129, 160, 257} {
				for _, rows := range []int{1, 2, 3, 4, 5, 9} {
					p := random(rows, n, 11, 3)
					p.same(t, p.compute(t, table, f, call{padX: 3, padY: 5}), p.compute(t, portable, f, call{}))
				}
			}
		}
	})
}

// Whatever way a product is divided, the results are the same.
func TestProductDivided(t *testing.T) {
	t.Parallel()
	calls := []call{
		{step: 1},
		{step: 2, inPlace: true},
		{step: 3, padY: 1},
		{step: 4, batch: 1, padX: 16},
		{batch: 3},
		{batch: 7, inPlace: true, padY: 33},
		{cut: 1},
		{cut: 22, inPlace: true, step: 1},
		{cut: 31, batch: 5},
	}
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, p := range []product{random(1, 300, 45, 4), random(4, 300, 45, 4), random(19, 210, 45, 4)} {
				want := p.compute(t, portable, f, call{})
				for _, c := range calls {
					t.Run(fmt.Sprintf("%v/%d/%+v", f, p.rows, c), func(t *testing.T) {
						p.same(t, p.compute(t, table, f, c), want)
					})
				}
			}
		}
	})
}

func TestProductBias(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, rows := range []int{2, 5, 40} {
				p := random(rows, 100, 9, 5)
				p.start = p.start[:p.n]
				got := p.compute(t, table, f, call{})
				repeated := p
				repeated.start = nil
				for range rows {
					repeated.start = append(repeated.start, p.start...)
				}
				p.same(t, got, repeated.compute(t, portable, f, call{}))
			}
		}
	})
}

func TestProductInterleaved(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, gates := range [][]int{{0, 1, 2, 3}, {2, 0, 1}, {1, 2, 0, 4, 3}} {
				for _, hidden := range []int{5, 32, 43} {
					p := random(6, len(gates)*hidden, 10, 6)
					want := p.compute(t, portable, f, call{})
					p.gates = gates
					p.same(t, p.compute(t, table, f, call{step: len(gates)}), want)
				}
			}
		}
	})
}

// Special values give the same bits in every table, up to the bits of a NaN.
func TestProductSpecials(t *testing.T) {
	t.Parallel()
	everyTable(t, func(t *testing.T, portable, table *kernel.Table) {
		t.Helper()
		for _, f := range floats {
			for _, rows := range []int{1, 3, 7, 13} {
				for seed := range uint64(20) {
					p := random(rows, 70, 9, seed)
					r := rand.New(rand.NewPCG(seed, 10))
					sprinkle(r, p.x)
					sprinkle(r, p.w)
					sprinkle(r, p.start)
					p.same(t, p.compute(t, table, f, call{}), p.compute(t, portable, f, call{}))
				}
			}
		}
	})
}

// sprinkle replaces some values by special ones. Those that spoil a whole row are rare.
func sprinkle(r *rand.Rand, v []float32) {
	negativeZero := float32(math.Copysign(0, -1))
	often := []float32{0, negativeZero, 0x1p-149, -0x1p-149, 0x1p-126, 0x1.8p-127, -0x1p-75, 0x1p-64, 0x1p24, -0x1.000002p24}
	rare := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32, -math.MaxFloat32}
	for i := range v {
		switch r.IntN(100) {
		case 0:
			v[i] = rare[r.IntN(len(rare))]
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
			v[i] = often[r.IntN(len(often))]
		case 21, 22, 23, 24, 25:
			v[i] = math.Float32frombits(r.Uint32()) // anything
		}
	}
}

// FuzzProduct compares all tables on products of any shape and bits, divided in
// any way. The bits come from the data, over and over.
func FuzzProduct(f *testing.F) {
	f.Add(uint8(1), uint8(1), uint8(1), uint8(0), uint8(0), uint8(0), []byte{0, 0, 0x80, 0x3f})
	f.Add(uint8(14), uint8(130), uint8(9), uint8(3), uint8(4), uint8(5), []byte("\x00\x00\x80\x3f\x01\x00\x00\x00\xff\xff\x7f\x7f\x00\x00\xc0\x7f"))
	f.Add(uint8(33), uint8(65), uint8(70), uint8(0), uint8(1), uint8(69), []byte("seven b"))
	f.Add(uint8(7), uint8(200), uint8(33), uint8(2), uint8(0), uint8(32), []byte("\x01\x02\x03\x34\xfe\xff\xff\xbf\x00\x00\x00\x80"))
	f.Fuzz(func(t *testing.T, rows, n, k, step, batch, cut uint8, data []byte) {
		p := product{rows: int(rows%64) + 1, n: int(n) + 1, k: int(k % 80)}
		position := 0
		take := func(count int) []float32 {
			v := make([]float32, count)
			for i := range v {
				var bits uint32
				for range 4 {
					if len(data) > 0 {
						bits = bits<<8 | uint32(data[position%len(data)])
						position++
					}
				}
				v[i] = math.Float32frombits(bits)
			}
			return v
		}
		p.w, p.x, p.start = take(p.n*p.k), take(p.rows*p.k), take(p.rows*p.n)
		c := call{step: int(step % 6), batch: int(batch), inPlace: step > 127, padX: int(cut % 5), padY: int(batch % 3)}
		if p.k > 1 {
			c.cut = int(cut) % p.k
		}
		tables := kernel.Tables()
		for _, format := range floats {
			want := p.compute(t, tables[0], format, call{})
			for _, table := range tables {
				p.same(t, p.compute(t, table, format, c), want)
			}
		}
	})
}
