package cellrt_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

// sized is a program with one cell that multiplies by a matrix of that size.
func sized(t *testing.T, size int, value float32, act cellrt.Activation) *cellrt.Program {
	t.Helper()
	layout := &cellrt.Layout{}
	state := layout.Add("state", 1, size)
	m := &cellrt.Matrix{Name: "m", Rows: size, Cols: size, Data: make([]float32, size*size)}
	m.Data[0] = value
	b := cellrt.NewCell("cell", layout, 0)
	b.Store(state, cellrt.Zero, 0, b.Linear(m, nil, act, b.Load(state, cellrt.Zero)))
	p, err := cellrt.NewProgram("p", layout, build(t, b, 1))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVersionsAreMeasuredOnce loads programs beside one that was measured: what has the
// same shapes takes its figures over, closed or not, and what has not is measured.
func TestVersionsAreMeasuredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &clockedBackend{tb: t, fixed: 400 * time.Microsecond, row: 100 * time.Microsecond}
		r, err := cellrt.New(cellrt.Config{MaxRows: 64, Profile: time.Second}, b, &discard{})
		if err != nil {
			t.Fatal(err)
		}
		load := func(p *cellrt.Program, slots int) (*cellrt.Model, bool) {
			t.Helper()
			began := len(b.args)
			m, err := r.Load(p, slots)
			if err != nil {
				t.Fatal(err)
			}
			return m, len(b.args) > began
		}
		first := sized(t, 4, 1, cellrt.None)
		m, _ := load(first, 100)
		first.Close()
		want := r.Stats().Cells[0]
		if want.MaxRows != 24 || want.RowCost == 0 {
			t.Fatalf("%+v", want)
		}
		if _, measured := load(sized(t, 4, 2, cellrt.None), 100); measured {
			t.Error("a version with equal shapes is measured")
		}
		if got := r.Stats().Cells[1]; got.MaxRows != want.MaxRows || got.RowCost != want.RowCost {
			t.Errorf("%d rows of %d ns, want %d of %d", got.MaxRows, got.RowCost, want.MaxRows, want.RowCost)
		}
		if err := r.Unload(m); err != nil {
			t.Fatal(err)
		}
		for name, p := range map[string]*cellrt.Program{
			"size": sized(t, 5, 1, cellrt.None), "operation": sized(t, 4, 1, cellrt.Tanh), "weight type": sized(t, 4, 1, cellrt.None).WithWeights(cellrt.BF16),
		} {
			if _, measured := load(p, 100); !measured {
				t.Errorf("another %s is not measured", name)
			}
		}
		if _, measured := load(sized(t, 4, 1, cellrt.None), 99); !measured {
			t.Error("another number of slots is not measured")
		}
		if _, measured := load(sized(t, 4, 3, cellrt.None), 100); measured {
			t.Error("figures that were taken over are not passed on")
		}
	})
}

// TestMeasuringGivesWay measures beside a sequence, and without: beside it half of the
// time goes by at rest, and the figures are the same.
func TestMeasuringGivesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &clockedBackend{tb: t, fixed: 400 * time.Microsecond, row: 100 * time.Microsecond}
		r, err := cellrt.New(cellrt.Config{MaxRows: 64, Profile: 200 * time.Millisecond}, b, &discard{})
		if err != nil {
			t.Fatal(err)
		}
		var took []time.Duration
		for _, size := range []int{4, 5} {
			p := sized(t, size, 1, cellrt.None)
			began := time.Now()
			m, err := r.Load(p, 100)
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
			if err := r.Submit(cellrt.NewSequence(m, endlessGraph{p.Cells[0]}, cellrt.SequenceOptions{})); err != nil {
				t.Fatal(err)
			}
		}
		if took[0] == 0 || took[1] != 2*took[0] {
			t.Errorf("took %v alone and %v beside a sequence", took[0], took[1])
		}
		if c := r.Stats().Cells; c[0].MaxRows != 24 || c[1].MaxRows != 24 || c[0].RowCost != c[1].RowCost {
			t.Errorf("%+v", c)
		}
	})
}
