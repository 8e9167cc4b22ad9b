package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/backendtest"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// sizes that are no multiple of any panel, and more than one of each.
const (
	vocabulary = 87
	inputs     = 37
	hidden     = 67
	positions  = 9
)

// world is a program with what it takes to run it for some rows at a time.
type world struct {
	program *cellrt.Program
	// run computes batches with step, until it is done.
	run func(step func(cell int, args func(row int) [cellrt.MaxArgs]int32) []cellrt.Output)
}

// trace is everything a run left: the outputs of all steps, and the states.
type trace struct {
	outputs []cellrt.Output
	states  []float32
}

func (w world) trace(tb testing.TB, cfg cpu.Config, weights cellrt.Weights, rows, threads int) trace {
	tb.Helper()
	x, err := cpu.New(cfg).Load(w.program.WithWeights(weights), rows)
	if err != nil {
		tb.Fatal(err)
	}
	runner := x.NewRunner()
	runner.SetThreads(threads)
	defer runner.SetThreads(1)
	batch, out := make([]cellrt.Row, rows), make([]cellrt.Output, rows)
	var t trace
	w.run(func(cell int, args func(int) [cellrt.MaxArgs]int32) []cellrt.Output {
		for i := range batch {
			batch[i] = cellrt.Row{Slot: int32(i), Args: args(i)}
		}
		runner.Run(w.program.Cells[cell], batch, out)
		t.outputs = append(t.outputs, out...)
		return out
	})
	state := make([]float32, w.program.Layout.Size())
	for slot := range int32(rows) {
		x.(backendtest.Inspector).ReadState(slot, 0, state)
		t.states = append(t.states, state...)
	}
	return t
}

func (t trace) same(o trace) bool {
	return slices.EqualFunc(t.outputs, o.outputs, func(x, y cellrt.Output) bool {
		return x.Token == y.Token && math.Float32bits(x.LogProb) == math.Float32bits(y.LogProb)
	}) && slices.EqualFunc(t.states, o.states, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// source makes random weights.
type source struct{ *rand.Rand }

func (s source) matrix(rows, cols int) *cellrt.Matrix {
	m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = float32(s.NormFloat64()) * 0.15
	}
	return m
}

func (s source) vector(n int) []float32 { return s.matrix(1, n).Data }

func build(tb testing.TB, layout *cellrt.Layout, builders ...*cellrt.CellBuilder) *cellrt.Program {
	tb.Helper()
	var cells []*cellrt.Cell
	for _, b := range builders {
		c, err := b.Build()
		if err != nil {
			tb.Fatal(err)
		}
		cells = append(cells, c)
	}
	p, err := cellrt.NewProgram("test", layout, cells...)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// languageModel feeds tokens back.
func languageModel(tb testing.TB, kind string) world {
	tb.Helper()
	p := decoder(tb, kind, vocabulary, inputs, hidden)
	return world{p, func(step func(int, func(int) [cellrt.MaxArgs]int32) []cellrt.Output) {
		var out []cellrt.Output
		for range 15 {
			out = step(0, func(row int) [cellrt.MaxArgs]int32 {
				if out == nil {
					return [cellrt.MaxArgs]int32{int32(row), -1}
				}
				return [cellrt.MaxArgs]int32{out[row].Token, 0}
			})
		}
	}}
}

// translator reads a source, then writes with attention over it.
func translator(tb testing.TB) world {
	tb.Helper()
	r := source{rand.New(rand.NewPCG(3, 3))}
	layout := &cellrt.Layout{}
	memory := layout.Add("memory", positions, hidden)
	h, c := layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	table := r.matrix(vocabulary, inputs)

	encoder := cellrt.NewCell("encoder", layout, 3) // token, position, previous
	outH, outC := encoder.LSTM(r.matrix(4*hidden, inputs), r.matrix(4*hidden, hidden), r.vector(4*hidden),
		encoder.Embed(table, 0), encoder.Load(h, 2), encoder.Load(c, 2))
	encoder.Store(h, cellrt.Zero, 0, outH)
	encoder.Store(c, cellrt.Zero, 0, outC)
	encoder.Store(memory, 1, 0, outH)

	writer := cellrt.NewCell("writer", layout, 2) // token, length
	y := writer.GRU(r.matrix(3*hidden, inputs), r.matrix(3*hidden, hidden), r.vector(3*hidden), r.vector(3*hidden),
		writer.Embed(table, 0), writer.Load(h, cellrt.Zero))
	writer.Store(h, cellrt.Zero, 0, y)
	context := writer.Attend(writer.Linear(r.matrix(hidden, hidden), nil, cellrt.None, y), memory, 1)
	y = writer.Linear(r.matrix(hidden, 2*hidden), r.vector(hidden), cellrt.Tanh, y, context)
	writer.Greedy(writer.Linear(r.matrix(vocabulary, hidden), nil, cellrt.None, y))

	return world{build(tb, layout, encoder, writer), func(step func(int, func(int) [cellrt.MaxArgs]int32) []cellrt.Output) {
		for i := range int32(positions) {
			step(0, func(row int) [cellrt.MaxArgs]int32 {
				return [cellrt.MaxArgs]int32{(int32(row)*7 + i) % vocabulary, i, min(0, i-1)}
			})
		}
		var out []cellrt.Output
		for range 8 {
			out = step(1, func(row int) [cellrt.MaxArgs]int32 {
				token := int32(row)
				if out != nil {
					token = out[row].Token
				}
				return [cellrt.MaxArgs]int32{token, int32(1 + row%positions)}
			})
		}
	}}
}

// tree reads leaves, and joins neighbours until one is left.
func tree(tb testing.TB) world {
	tb.Helper()
	const leaves = 8
	r := source{rand.New(rand.NewPCG(4, 4))}
	layout := &cellrt.Layout{}
	h, c := layout.Add("h", leaves, hidden), layout.Add("c", leaves, hidden)

	leaf := cellrt.NewCell("leaf", layout, 2) // token, where to
	outH, outC := leaf.TreeLeaf(r.matrix(3*hidden, inputs), r.vector(3*hidden), leaf.Embed(r.matrix(vocabulary, inputs), 0))
	leaf.Store(h, 1, 0, outH)
	leaf.Store(c, 1, 0, outC)

	node := cellrt.NewCell("node", layout, 2) // left, which the node replaces, and right
	outH, outC = node.TreeNode(r.matrix(5*hidden, 2*hidden), r.vector(5*hidden),
		node.Load(h, 0), node.Load(c, 0), node.Load(h, 1), node.Load(c, 1))
	node.Store(h, 0, 0, outH)
	node.Store(c, 0, 0, outC)
	node.Greedy(node.Linear(r.matrix(vocabulary, hidden), nil, cellrt.None, outH))

	return world{build(tb, layout, leaf, node), func(step func(int, func(int) [cellrt.MaxArgs]int32) []cellrt.Output) {
		for i := range int32(leaves) {
			step(0, func(row int) [cellrt.MaxArgs]int32 { return [cellrt.MaxArgs]int32{(int32(row) + 3*i) % vocabulary, i} })
		}
		for width := int32(1); width < leaves; width *= 2 {
			for left := int32(0); left < leaves; left += 2 * width {
				step(1, func(int) [cellrt.MaxArgs]int32 { return [cellrt.MaxArgs]int32{left, left + width} })
			}
		}
	}}
}

// TestTiersGiveTheSameBits runs whole decodes on every tier and compares them
// with the portable one.
func TestTiersGiveTheSameBits(t *testing.T) {
	t.Parallel()
	const rows = 5
	for name, w := range map[string]world{
		"lstm": languageModel(t, "lstm"), "gru": languageModel(t, "gru"), "translator": translator(t), "tree": tree(t),
	} {
		for _, weights := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
			t.Run(fmt.Sprintf("%s/%v", name, weights), func(t *testing.T) {
				t.Parallel()
				want := w.trace(t, cpu.Config{ISA: "purego"}, weights, rows, 1)
				for _, tier := range cpu.Tiers() {
					for _, threads := range []int{1, 2} {
						cfg := cpu.Config{ISA: tier, SplitWork: 1, FoldBytes: int64(threads - 2)} // -1: nothing is folded
						if got := w.trace(t, cfg, weights, rows, threads); !got.same(want) {
							t.Errorf("%s with %d threads gave other bits than purego", tier, threads)
						}
					}
				}
			})
		}
	}
}

func TestUnknownTierIsRefused(t *testing.T) {
	t.Parallel()
	b := cpu.New(cpu.Config{ISA: "abacus"})
	_, err := b.Load(decoder(t, "lstm", 4, 2, 2), 1)
	if err == nil || !strings.Contains(err.Error(), "abacus") || !strings.Contains(err.Error(), "purego") {
		t.Errorf("error %v, want one that names the tier and those there are", err)
	}
	if b.ISA() != "" {
		t.Errorf("tier %q", b.ISA())
	}
}

func TestUnknownWeightsAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := cpu.New(cpu.Config{}).Load(decoder(t, "lstm", 4, 2, 2).WithWeights(99), 1); err == nil {
		t.Error("a weight type that does not exist was loaded")
	}
}

func TestTierComesFromTheEnvironment(t *testing.T) { // not parallel: it sets a variable
	tiers := cpu.Tiers()
	if tiers[0] != "purego" {
		t.Errorf("tiers %v, want purego first", tiers)
	}
	t.Setenv("CELLMQ_ISA", "")
	if got, want := cpu.New(cpu.Config{}).ISA(), tiers[len(tiers)-1]; got != want {
		t.Errorf("tier %s by default, want the fastest, %s", got, want)
	}
	t.Setenv("CELLMQ_ISA", "purego")
	if got := cpu.New(cpu.Config{}).ISA(); got != "purego" {
		t.Errorf("tier %s, want the environment's", got)
	}
	if got, want := cpu.New(cpu.Config{ISA: tiers[len(tiers)-1]}).ISA(), tiers[len(tiers)-1]; got != want {
		t.Errorf("tier %s, want the configured %s", got, want)
	}
}
