package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/backendtest"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// backendCase is a configuration to test a weight type with.
type backendCase struct {
	name    string
	cfg     cpu.Config
	weights cellrt.Weights
}

func (c *backendCase) open(testing.TB) cellrt.Backend { return cpu.New(c.cfg) }

// backendCases returns configurations of all tiers for all weight types.
func backendCases() []backendCase {
	habits := []backendCase{
		{name: "without folding, always sharing work", cfg: cpu.Config{FoldBytes: -1, SplitWork: 1}},
		{name: "default"},
		{name: "without folding", cfg: cpu.Config{FoldBytes: -1}},
		{name: "always sharing work, parking at once", cfg: cpu.Config{SplitWork: 1, Spin: -1}},
	}
	var cases []backendCase
	for _, tier := range cpu.Tiers() {
		for _, weights := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
			count := len(habits)
			switch {
			case tier == "purego":
				count = 1 // it is slow, most of all under the race detector
			case weights != cellrt.F32:
				count = 2
			}
			for _, c := range habits[:count] {
				c.cfg.ISA, c.weights = tier, weights
				c.name = fmt.Sprintf("%s/%v/%s", tier, weights, c.name)
				cases = append(cases, c)
			}
		}
	}
	return cases
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range backendCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, c.weights, c.open)
		})
	}
}

func TestBatchesAllocateNothing(t *testing.T) { // not parallel: it counts allocations
	for _, c := range backendCases() {
		t.Run(c.name, func(t *testing.T) { backendtest.RunAllocations(t, c.weights, c.open) })
	}
}

// decoder is a program of one cell like a decoder's: an embedding, a recurrent
// step, a projection and the choice of a token.
func decoder(tb testing.TB, kind string, vocabulary, input, hidden int) *cellrt.Program {
	tb.Helper()
	r := rand.New(rand.NewPCG(7, uint64(hidden)))
	matrix := func(rows, cols int) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64()) * 0.1
		}
		return m
	}
	vector := func(n int) []float32 { return matrix(1, n).Data }
	layout := &cellrt.Layout{}
	hf, cf := layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	b := cellrt.NewCell("decoder", layout, 2)
	x := b.Embed(matrix(vocabulary, input), 0)
	h, c := b.Load(hf, 1), b.Load(cf, 1)
	if kind == "lstm" {
		h, c = b.LSTM(matrix(4*hidden, input), matrix(4*hidden, hidden), vector(4*hidden), x, h, c)
	} else {
		h = b.GRU(matrix(3*hidden, input), matrix(3*hidden, hidden), vector(3*hidden), vector(3*hidden), x, h)
	}
	b.Store(hf, cellrt.Zero, 0, h)
	b.Store(cf, cellrt.Zero, 0, c)
	b.Greedy(b.Linear(matrix(vocabulary, hidden), vector(vocabulary), cellrt.None, h))
	cell, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	p, err := cellrt.NewProgram(kind, layout, cell)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// decode feeds each row's token back for some steps and returns the outputs.
func decode(tb testing.TB, cfg cpu.Config, p *cellrt.Program, rows, steps int) []cellrt.Output {
	tb.Helper()
	x, err := cpu.New(cfg).Load(p, rows)
	if err != nil {
		tb.Fatal(err)
	}
	return decodeOn(x, p, rows, steps)
}

// decodeOn is decode on an executable of the program.
func decodeOn(x cellrt.Executable, p *cellrt.Program, rows, steps int) []cellrt.Output {
	runner := x.NewRunner()
	batch, out := make([]cellrt.Row, rows), make([]cellrt.Output, rows)
	for i := range batch {
		batch[i] = cellrt.Row{Slot: int32(i), Args: [cellrt.MaxArgs]int32{int32(i), -1}}
	}
	var all []cellrt.Output
	for range steps {
		runner.Run(p.Cells[0], batch, out)
		all = append(all, out...)
		for i := range batch {
			batch[i].Args = [cellrt.MaxArgs]int32{out[i].Token, 0}
		}
	}
	return all
}

func TestFoldingKeepsBits(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"lstm", "gru"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := decoder(t, kind, 29, 11, 35)
			folded, plain := decode(t, cpu.Config{}, p, 9, 30), decode(t, cpu.Config{FoldBytes: -1}, p, 9, 30)
			for i := range folded {
				if folded[i].Token != plain[i].Token || math.Float32bits(folded[i].LogProb) != math.Float32bits(plain[i].LogProb) {
					t.Fatalf("output %d: %v folded, %v not", i, folded[i], plain[i])
				}
			}
		})
	}
}

func TestArgumentsOutOfRangePanic(t *testing.T) {
	t.Parallel()
	layout := &cellrt.Layout{}
	a, z := layout.Add("a", 2, 3), layout.Add("z", 2, 3)
	for _, tc := range []struct {
		name string
		args [cellrt.MaxArgs]int32
	}{
		{name: "load", args: [cellrt.MaxArgs]int32{2, 0, 1, 1}},
		{name: "store", args: [cellrt.MaxArgs]int32{0, 2, 1, 1}},
		{name: "negative store", args: [cellrt.MaxArgs]int32{0, -1, 1, 1}},
		{name: "attend", args: [cellrt.MaxArgs]int32{0, 0, 3, 1}},
		{name: "mean", args: [cellrt.MaxArgs]int32{0, 0, 1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := cellrt.NewCell("cell", layout, 4)
			v := b.Load(a, 0)
			b.Store(a, 1, 0, b.Mean(b.Attend(v, a, 2), 3))
			b.Store(z, cellrt.Zero, 0, v)
			cell, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			p, err := cellrt.NewProgram("p", layout, cell)
			if err != nil {
				t.Fatal(err)
			}
			x, err := cpu.New(cpu.Config{}).Load(p, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if recover() == nil {
					t.Error("no panic: it would have reached a neighbouring field")
				}
			}()
			x.NewRunner().Run(cell, []cellrt.Row{{Args: tc.args}}, make([]cellrt.Output, 1))
		})
	}
}
