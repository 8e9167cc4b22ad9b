package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// tolerance is the largest difference from the reference, absolute for values
// up to 1 and relative above.
const (
	tolerance      = 2e-5
	codedTolerance = 2e-2
)

// testOperations compares every cell with the reference.
func testOperations(t *testing.T, open func(testing.TB) cellrt.Backend, weights cellrt.Weights) {
	t.Helper()
	const slots = 6
	for _, s := range append(shapes(), largeShape()) {
		r := rand.New(rand.NewPCG(1, uint64(s.hidden)))
		l := load(t, open, r, s, slots)
		for _, name := range l.names() {
			t.Run(fmt.Sprintf("%s/%d", name, s.hidden), func(t *testing.T) { l.compare(t, r, name, weights, slots) })
		}
	}
}

// compare runs a batch of one cell and compares states and outputs with the
// reference's.
func (l loaded) compare(t *testing.T, r *rand.Rand, name string, weights cellrt.Weights, slots int) {
	t.Helper()
	var rows []cellrt.Row
	for _, slot := range r.Perm(slots)[:slots-1] {
		rows = append(rows, l.row(r, int32(slot)))
	}
	references := make([]*reference, len(rows))
	for slot := range int32(slots) {
		l.WriteState(slot, 0, vector(r, l.layout.Size()))
	}
	for i, row := range rows {
		references[i] = newReference(weights, l.layout, l.state(row.Slot))
		references[i].run(l.cells[name], row)
	}
	out := l.run(t, name, rows)
	for i, row := range rows {
		for j, x := range l.state(row.Slot) {
			if want := references[i].state[j]; !references[i].near(float64(x), want) {
				t.Fatalf("row %d state value %d = %g, want %g", i, j, x, want)
			}
		}
		references[i].check(t, i, out[i])
	}
}

// batchSizes returns the sizes of batches to compare: most of those that a
// kernel may have a way of its own for, and some that are several of them.
func batchSizes(most int) []int {
	return []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 23, most}
}

// testBatchInvariance compares, bit for bit, each row of batches of 1 to 40
// with the same row alone, wherever it stands and whatever its slot is.
func testBatchInvariance(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const most = 40
	for _, s := range shapes() {
		r := rand.New(rand.NewPCG(2, uint64(s.hidden)))
		l := load(t, open, r, s, most+1)
		for _, name := range l.names() {
			t.Run(fmt.Sprintf("%s/%d", name, s.hidden), func(t *testing.T) {
				states, rows := make([][]float32, most), make([]cellrt.Row, most)
				wantStates, want := make([][]float32, most), make([]cellrt.Output, most)
				for i := range rows {
					states[i], rows[i] = vector(r, l.layout.Size()), l.row(r, most)
					l.WriteState(most, 0, states[i])
					want[i] = l.run(t, name, rows[i:i+1])[0]
					wantStates[i] = l.state(most)
				}
				for _, count := range batchSizes(most) {
					order, places := r.Perm(most)[:count], r.Perm(most + 1)[:count]
					batch := make([]cellrt.Row, count)
					for i, which := range order {
						batch[i] = rows[which]
						batch[i].Slot = int32(places[i])
						l.WriteState(batch[i].Slot, 0, states[which])
					}
					out := l.run(t, name, batch)
					for i, which := range order {
						if !sameBits(l.state(batch[i].Slot), wantStates[which]) {
							t.Fatalf("row %d of %d left another state than alone", i, count)
						}
						if !sameOutput(out[i], want[which]) {
							t.Fatalf("row %d of %d gave %v, alone %v", i, count, out[i], want[which])
						}
					}
				}
			})
		}
	}
}

// testThreads compares, bit for bit, batches run by several threads with those
// of one, and changes their number between batches.
func testThreads(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const slots = 17
	for _, s := range shapes() {
		r := rand.New(rand.NewPCG(7, uint64(s.hidden)))
		l := load(t, open, r, s, slots)
		defer l.runner.SetThreads(1)
		for _, name := range l.names() {
			states, rows := make([][]float32, slots), make([]cellrt.Row, slots)
			for i := range rows {
				states[i], rows[i] = vector(r, l.layout.Size()), l.row(r, int32(i))
			}
			var want []cellrt.Output
			var wantStates [][]float32
			for _, threads := range []int{1, 2, 4, 3, 1, 2} {
				l.runner.SetThreads(threads)
				for i, state := range states {
					l.WriteState(int32(i), 0, state)
				}
				out := l.run(t, name, rows)
				if want == nil {
					want = out
					for i := range rows {
						wantStates = append(wantStates, l.state(int32(i)))
					}
				}
				for i := range rows {
					if !sameOutput(out[i], want[i]) || !sameBits(l.state(int32(i)), wantStates[i]) {
						t.Fatalf("%s/%d: row %d differs with %d threads", name, s.hidden, i, threads)
					}
				}
			}
		}
	}
}

func testNegativeLoad(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 0))
	layout := &cellrt.Layout{}
	from, to := layout.Add("from", 3, 5), layout.Add("to", 1, 5)
	b := cellrt.NewCell("copy", layout, 1)
	b.Store(to, cellrt.Zero, 0, b.Load(from, 0))
	cell, program := single(t, layout, b)
	x, err := open(t).Load(program, 2)
	if err != nil {
		t.Fatal(err)
	}
	state := vector(r, layout.Size())
	for slot := range int32(2) {
		x.(Inspector).WriteState(slot, 0, state)
	}
	rows := []cellrt.Row{{Slot: 1, Args: [cellrt.MaxArgs]int32{-1}}, {Slot: 0, Args: [cellrt.MaxArgs]int32{2}}}
	x.NewRunner().Run(cell, rows, make([]cellrt.Output, 2))

	got := make([]float32, 5)
	x.(Inspector).ReadState(1, layout.Offset(to), got)
	if !sameBits(got, make([]float32, 5)) {
		t.Errorf("index -1 loaded %v, want zeros", got)
	}
	x.(Inspector).ReadState(0, layout.Offset(to), got)
	if !sameBits(got, state[10:15]) {
		t.Errorf("index 2 loaded %v, want %v", got, state[10:15])
	}
}

// testStoreOrder swaps two entries in place and overwrites part of a third.
func testStoreOrder(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 0))
	layout := &cellrt.Layout{}
	pair, wide := layout.Add("pair", 2, 3), layout.Add("wide", 1, 7)
	b := cellrt.NewCell("swap", layout, 2)
	first, second := b.Load(pair, 0), b.Load(pair, 1)
	b.Store(pair, 0, 0, second)
	b.Store(pair, 1, 0, first)
	b.Store(wide, cellrt.Zero, 2, first)
	b.Store(wide, cellrt.Zero, 4, b.Load(pair, 0)) // stands after the stores: the new first entry
	cell, program := single(t, layout, b)
	x, err := open(t).Load(program, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := vector(r, layout.Size())
	x.(Inspector).WriteState(0, 0, s)
	x.NewRunner().Run(cell, []cellrt.Row{{Args: [cellrt.MaxArgs]int32{0, 1}}}, make([]cellrt.Output, 1))
	want := slices.Concat(s[3:6], s[0:3], s[6:8], s[0:2], s[3:6])
	got := make([]float32, layout.Size())
	x.(Inspector).ReadState(0, 0, got)
	if !sameBits(got, want) {
		t.Errorf("state %v, want %v", got, want)
	}
}

// testPoisonedRow puts NaN, then an infinity, into one row of a batch.
func testPoisonedRow(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const slots, poisoned = 7, 3
	r := rand.New(rand.NewPCG(5, 0))
	l := load(t, open, r, sizes{input: 9, hidden: 13, positions: 4, vocabulary: 21}, slots)
	states, rows := make([][]float32, slots), make([]cellrt.Row, slots)
	for i := range rows {
		states[i], rows[i] = vector(r, l.layout.Size()), l.row(r, int32(i))
	}
	reset := func() {
		for i, s := range states {
			l.WriteState(int32(i), 0, s)
		}
	}
	reset()
	want := l.run(t, "all", rows)
	wantStates := make([][]float32, slots)
	for i := range wantStates {
		wantStates[i] = l.state(int32(i))
	}
	reset()
	l.WriteState(poisoned, l.layout.Offset(l.hidden)+2, []float32{float32(math.NaN())})
	got := l.run(t, "all", rows)
	for i := range rows {
		if i == poisoned {
			if got[i].LogProb == got[i].LogProb {
				t.Errorf("poisoned row has log-probability %g, want NaN", got[i].LogProb)
			}
			continue
		}
		if !sameOutput(got[i], want[i]) || !sameBits(l.state(int32(i)), wantStates[i]) {
			t.Errorf("row %d changed when row %d was poisoned", i, poisoned)
		}
	}
	// An infinite logit ends in NaN too, though nothing before it is NaN.
	reset()
	l.WriteState(poisoned, l.layout.Offset(l.cell), []float32{float32(math.Inf(1))})
	if got := l.run(t, "greedy", rows)[poisoned].LogProb; got == got {
		t.Errorf("infinite logits gave log-probability %g, want NaN", got)
	}
}

func testGreedy(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const width = 40
	layout := &cellrt.Layout{}
	layout.Add("unused", 1, 1)
	b := cellrt.NewCell("greedy", layout, 1)
	table := &cellrt.Matrix{Name: "table", Rows: 5, Cols: width, Data: make([]float32, 5*width)}
	inf := float32(math.Inf(1))
	table.Data[1*width+33], table.Data[1*width+37] = 2, 2
	table.Data[2*width+39] = inf
	table.Data[3*width+5] = -inf
	table.Data[4*width+17] = float32(math.NaN())
	b.Greedy(b.Embed(table, 0))
	cell, program := single(t, layout, b)
	x, err := open(t).Load(program, 5)
	if err != nil {
		t.Fatal(err)
	}
	rows, out := make([]cellrt.Row, 5), make([]cellrt.Output, 5)
	for i := range rows {
		rows[i] = cellrt.Row{Slot: int32(i), Args: [cellrt.MaxArgs]int32{int32(i)}}
	}
	x.NewRunner().Run(cell, rows, out)
	if out[0].Token != 0 || out[1].Token != 33 {
		t.Errorf("tokens %d and %d, want the lowest index of the largest: 0 and 33", out[0].Token, out[1].Token)
	}
	for i, want := range []float64{-math.Log(width), -math.Log(2 + (width-2)*math.Exp(-2))} {
		if !near(float64(out[i].LogProb), want) {
			t.Errorf("log-probability %g, want %g", out[i].LogProb, want)
		}
		if out[i].Values != nil {
			t.Errorf("values %v from a cell that exposes none", out[i].Values)
		}
	}
	for i, what := range []string{"an infinity", "a negative infinity", "NaN"} {
		if p := out[2+i].LogProb; p == p {
			t.Errorf("log-probability %g with %s among the logits, want NaN", p, what)
		}
	}
}

func testAllocations(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const slots = 12
	r := rand.New(rand.NewPCG(6, 0))
	l := load(t, open, r, sizes{input: 9, hidden: 13, positions: 4, vocabulary: 21}, slots)
	rows, out := make([]cellrt.Row, slots), make([]cellrt.Output, slots)
	for i := range rows {
		rows[i] = l.row(r, int32(i))
	}
	cell := l.cells["all"]
	l.runner.Run(cell, rows, out)
	defer l.runner.SetThreads(1)
	for _, threads := range []int{1, 2} {
		l.runner.SetThreads(threads)
		count := 0
		if n := testing.AllocsPerRun(50, func() {
			count = count%slots + 1
			l.runner.Run(cell, rows[:count], out[:count])
		}); n != 0 {
			t.Errorf("%g allocations on %d threads in a batch no larger than one before, want none", n, threads)
		}
	}
}

// single builds the cell and a program of it alone.
func single(t *testing.T, layout *cellrt.Layout, b *cellrt.CellBuilder) (*cellrt.Cell, *cellrt.Program) {
	t.Helper()
	cell, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	program, err := cellrt.NewProgram("test", layout, cell)
	if err != nil {
		t.Fatal(err)
	}
	return cell, program
}

func near(got, want float64) bool {
	return math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}

func sameOutput(a, b cellrt.Output) bool {
	return a.Token == b.Token && sameBits([]float32{a.LogProb}, []float32{b.LogProb}) && sameBits(a.Values, b.Values)
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
