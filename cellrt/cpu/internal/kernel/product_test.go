package kernel_test

import (
	"fmt"
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
