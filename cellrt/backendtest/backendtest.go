package backendtest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// Inspector gives access to the states in an arena. The executables of a
// backend under test implement it besides [cellrt.Executable]; it is called
// only while nothing runs.
type Inspector interface {
	// ReadState copies a slot's state from value number from on into to.
	ReadState(slot int32, from int, to []float32)
	// WriteState copies values to a slot's state from value number to on.
	WriteState(slot int32, to int, values []float32)
}

// Run tests the backends that open returns, with programs of the given weight
// type; open may return the same one each time.
func Run(t *testing.T, weights cellrt.Weights, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	weighted := with(weights, open)
	t.Run("operations", func(t *testing.T) { testOperations(t, weighted, weights) })
	t.Run("stores", func(t *testing.T) { testStores(t, weighted, weights) })
	t.Run("random cells", func(t *testing.T) { testRandomCells(t, weighted, weights) })
	t.Run("batch invariance", func(t *testing.T) { testBatchInvariance(t, weighted) })
	t.Run("threads", func(t *testing.T) { testThreads(t, weighted) })
	t.Run("negative index loads zeros", func(t *testing.T) { testNegativeLoad(t, weighted) })
	t.Run("loads come before later stores", func(t *testing.T) { testStoreOrder(t, weighted) })
	t.Run("poisoned row", func(t *testing.T) { testPoisonedRow(t, weighted) })
	t.Run("weights may change", func(t *testing.T) { testWeightsMayChange(t, weighted) })
	t.Run("greedy", func(t *testing.T) { testGreedy(t, weighted) })
}

// RunAllocations tests that batches no larger than one before allocate nothing,
// on the backend that open returns, with a program of the given weight type. It
// counts the allocations of the whole process, so the calling test must not be
// parallel.
func RunAllocations(t *testing.T, weights cellrt.Weights, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	testAllocations(t, with(weights, open))
}

// with returns a function that opens a backend for programs of a weight type.
func with(weights cellrt.Weights, open func(testing.TB) cellrt.Backend) func(testing.TB) cellrt.Backend {
	return func(tb testing.TB) cellrt.Backend {
		tb.Helper()
		return withWeights{open(tb), weights}
	}
}

// withWeights loads programs with another weight type.
type withWeights struct {
	cellrt.Backend
	weights cellrt.Weights
}

// Load implements [cellrt.Backend].
func (b withWeights) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	return b.Backend.Load(p.WithWeights(b.weights), slots)
}

// loaded is a model on the backend under test.
type loaded struct {
	*model
	Inspector
	runner cellrt.Runner
}

// load makes a random model and loads it.
func load(t *testing.T, open func(testing.TB) cellrt.Backend, r *rand.Rand, s sizes, slots int) loaded {
	t.Helper()
	return loadModel(t, open, newModel(t, r, s), slots)
}

// loadModel loads a model.
func loadModel(t *testing.T, open func(testing.TB) cellrt.Backend, m *model, slots int) loaded {
	t.Helper()
	b := open(t)
	x, err := b.Load(m.program, slots)
	if err != nil {
		t.Fatal(err)
	}
	inspector, ok := x.(Inspector)
	if !ok {
		t.Fatalf("%T does not implement Inspector", x)
	}
	checkSizes(t, b, m.program, x, slots)
	return loaded{model: m, Inspector: inspector, runner: x.NewRunner()}
}

// run runs one batch and checks the number of rows computed. The outputs'
// values are copies.
func (l loaded) run(t *testing.T, cell string, rows []cellrt.Row) []cellrt.Output {
	t.Helper()
	out := make([]cellrt.Output, len(rows))
	if computed := l.runner.Run(l.cells[cell], rows, out); computed < len(rows) {
		t.Fatalf("computed %d of %d rows", computed, len(rows))
	}
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
	}
	return out
}

// state returns a copy of a slot's state.
func (l loaded) state(slot int32) []float32 {
	s := make([]float32, l.layout.Size())
	l.ReadState(slot, 0, s)
	return s
}
