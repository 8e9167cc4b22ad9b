package cellrt_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// clockedBackend takes a fixed time for a step and some for each row, in the
// time of a bubble.
type clockedBackend struct {
	tb         testing.TB
	fixed, row time.Duration
	most       int // rows seen in one batch
	args       [][cellrt.MaxArgs]int32
}

func (b *clockedBackend) Load(*cellrt.Program, int) (cellrt.Executable, error) { return b, nil }
func (b *clockedBackend) NewRunner() cellrt.Runner                             { return b }
func (b *clockedBackend) SetThreads(int)                                       {}
func (b *clockedBackend) StateBytes() int64                                    { return 0 }
func (b *clockedBackend) WeightBytes() int64                                   { return 0 }
func (b *clockedBackend) Blocks(func(any, int64) bool)                         {}

func (b *clockedBackend) Run(_ *cellrt.Cell, rows []cellrt.Row, _ []cellrt.Output) int {
	slots := map[int32]bool{}
	for _, row := range rows {
		if slots[row.Slot] {
			b.tb.Errorf("slot %d twice in a batch", row.Slot)
		}
		slots[row.Slot] = true
		b.args = append(b.args, row.Args)
	}
	b.most = max(b.most, len(rows))
	time.Sleep(b.fixed + time.Duration(len(rows))*b.row) // in a bubble
	return len(rows)
}

func TestProfile(t *testing.T) {
	t.Parallel()
	const us = time.Microsecond
	for _, tc := range []struct {
		name             string
		fixed, row       time.Duration
		maxRows, slots   int
		cellRows         int // the limit of the first cell
		budget           time.Duration
		wantRows, within int // of the second and the third cell; rows tried at most
		wantCost         int64
	}{
		// n/(fixed + n row) is 0.9 of its value at 64 from 23.8 on for fixed = 4.
		{name: "rows cost most", fixed: 0, row: 100 * us, maxRows: 64, slots: 100, wantRows: 8, within: 8, wantCost: 100_000},
		{name: "between", fixed: 400 * us, row: 100 * us, maxRows: 64, slots: 100, wantRows: 24, within: 64, wantCost: 116_666},
		{name: "the step costs most", fixed: 1000 * us, row: us, maxRows: 64, slots: 100, wantRows: 64, within: 64},
		{name: "fewer slots than rows", fixed: 1000 * us, row: us, maxRows: 64, slots: 5, wantRows: 64, within: 5},
		{name: "a limit of the cell", fixed: 1000 * us, row: us, maxRows: 64, slots: 100, cellRows: 7, wantRows: 64, within: 64},
		{name: "no time", fixed: 400 * us, row: 100 * us, maxRows: 64, slots: 100, budget: 10 * time.Millisecond, wantRows: 64, within: 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &clockedBackend{tb: t, fixed: tc.fixed, row: tc.row}
				if tc.budget == 0 {
					tc.budget = time.Second
				}
				r, err := cellrt.New(cellrt.Config{MaxRows: tc.maxRows, Profile: tc.budget}, b, &discard{})
				if err != nil {
					t.Fatal(err)
				}
				p := scriptProgram(t)
				p.Cells[0].MaxRows = tc.cellRows
				began := time.Now()
				if _, err := r.Load(p, tc.slots); err != nil {
					t.Fatal(err)
				}
				longest := tc.fixed + time.Duration(tc.maxRows)*tc.row
				if took := time.Since(began); took > tc.budget+3*longest {
					t.Errorf("took %v, want about %v at most", took, tc.budget)
				}
				for i, c := range r.Stats().Cells {
					want := tc.wantRows
					if i == 0 && tc.cellRows > 0 {
						want = tc.cellRows
					}
					if c.MaxRows != want || tc.wantCost > 0 && c.RowCost != tc.wantCost {
						t.Errorf("%s: at most %d rows of %d ns, want %d of %d", c.Cell, c.MaxRows, c.RowCost, want, tc.wantCost)
					}
				}
				if b.most > tc.within {
					t.Errorf("tried %d rows, want at most %d", b.most, tc.within)
				}
			})
		})
	}
}

// TestProfileMakesUpArguments measures cells whose arguments have to be in
// range on a backend that panics when they are not.
func TestProfileMakesUpArguments(t *testing.T) {
	t.Parallel()
	layout := &cellrt.Layout{}
	memory, out := layout.Add("memory", 5, 4), layout.Add("out", 2, 4)
	one := layout.Add("one", 1, 4)
	table := &cellrt.Matrix{Name: "table", Rows: 3, Cols: 4, Data: make([]float32, 12)}
	b := cellrt.NewCell("good", layout, 4)
	b.Store(out, 1, 0, b.Add(b.Embed(table, 0), b.Attend(b.Load(memory, 1), memory, 2)))
	b.Store(out, cellrt.Zero, 0, b.Mean(b.Load(out, 1), 3))
	good := build(t, b, 1)
	b = cellrt.NewCell("length and count", layout, 1)
	b.Store(out, 0, 0, b.Mean(b.Attend(b.Load(memory, cellrt.Zero), memory, 0), 0))
	both := build(t, b, 1) // an index below 2 and at least 1
	b = cellrt.NewCell("impossible", layout, 1)
	b.Store(one, 0, 0, b.Mean(b.Load(one, cellrt.Zero), 0))
	impossible := build(t, b, 1) // an index below 1 and at least 1
	p, err := cellrt.NewProgram("p", layout, good, both, impossible)
	if err != nil {
		t.Fatal(err)
	}
	for name, backend := range map[string]cellrt.Backend{
		"cpu": cpu.New(cpu.Config{}), "clocked": &clockedBackend{tb: t, row: time.Microsecond},
	} {
		r, err := cellrt.New(cellrt.Config{MaxRows: 8, Profile: 20 * time.Millisecond}, backend, &discard{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Load(p, 9); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Stats().Cells {
			if c.MaxRows < 1 || c.MaxRows > 8 || c.RowCost < 1 || c.RowCost > math.MaxInt32 {
				t.Errorf("%s: %s has %d rows of %d ns", name, c.Cell, c.MaxRows, c.RowCost)
			}
		}
	}
}
