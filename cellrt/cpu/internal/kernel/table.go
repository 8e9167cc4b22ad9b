package kernel

//go:generate go run ../kernelgen

import (
	"fmt"
	"strings"
)

// Table is the kernels of one instruction tier. It is read-only and safe for
// concurrent use. The results of all tables are the same, bit for bit.
type Table struct {
	// Name is the tier's name: purego, avx2, avx512, avx512vnni, neon or
	// neondot.
	Name string
	// Width is the number of output columns in a panel, 16 or 32.
	Width int

	products
	elementwise
}

// products are a table's matrix products.
type products struct {
	f32, bf16, int8 productFunc
	peak            peak
	// quantize fills the codes and scales of rows from to to-1.
	quantize func(in *Input, from, to int)
	// layout is how int8 and quantize arrange codes, and excess what quantize adds
	// to an input's code.
	layout codeLayout
	excess int32
}

// productFunc is [Matrix.Product] after its checks.
type productFunc func(m *Matrix, y, init Rows, x *Input, rows, first, last int)

// elementwise are a table's routines for whole vectors. Their arguments have
// been checked.
type elementwise struct {
	tanh     func(v []float32)
	lstm     func(gates []float32, stride int, c, cOut, h []float32)
	gru      func(gates []float32, stride int, h, hOut []float32)
	treeLeaf func(gates []float32, stride int, h, c []float32)
	treeNode func(gates []float32, stride int, left, right, h, c []float32)

	dots      func(query, memory, scores []float32)
	weigh     func(out, memory, weights []float32)
	exps      func(v []float32, largest float32) (sum float32)
	divide    func(v []float32, by float32)
	addVector func(out, x, y []float32)

	largest func(v []float32) (largest float32, finite bool)
	find    func(v []float32, x float32) int
	sumExp  func(v []float32, largest float32) float64
}

// Tables returns the tables this machine can run, the fastest last. The first
// is always the portable one, purego.
func Tables() []*Table { return append([]*Table{portable()}, native()...) }

// Find returns the table of that name, or the fastest one for an empty name.
// It fails when the machine, or this build, lacks it.
func Find(name string) (*Table, error) {
	tables := Tables()
	if name == "" {
		return tables[len(tables)-1], nil
	}
	var names []string
	for _, t := range tables {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return nil, fmt.Errorf("instruction tier %q: this build and machine have %s", name, strings.Join(names, ", "))
}

// portable returns the table in pure Go.
func portable() *Table {
	return &Table{
		Name: "purego", Width: 32,
		products: products{f32: productF32, bf16: productBF16, int8: productInt8, peak: portablePeak(), quantize: quantize, layout: singles},
		elementwise: elementwise{
			tanh: tanhRow, lstm: lstm, gru: gru, treeLeaf: treeLeaf, treeNode: treeNode,
			dots: dots, weigh: weigh, exps: exps, divide: divide, addVector: addVector,
			largest: largestOf, find: find, sumExp: sumExp,
		},
	}
}
