package cellrt_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// market is a scheduler with one executor and sequences that always have one
// node ready: of a cell for each sequence.
type market struct {
	tb    testing.TB
	sched *cellrt.Scheduler
	model *cellrt.Model
	cells []*cellrt.Cell
	batch cellrt.Batch
}

// newMarket returns a market with a cell for each of the costs, in some unit.
func newMarket(tb testing.TB, maxRows int, costs ...int) *market {
	tb.Helper()
	m := &market{tb: tb}
	layout := &cellrt.Layout{}
	state := layout.Add("state", 1, 100)
	for i, cost := range costs {
		b := cellrt.NewCell(fmt.Sprint("cell ", i), layout, 0)
		x := b.Load(state, cellrt.Zero)
		b.Linear(&cellrt.Matrix{Name: "m", Rows: 100 * cost, Cols: 100, Data: make([]float32, 10_000*cost)}, nil, cellrt.None, x)
		m.cells = append(m.cells, build(tb, b, 1))
	}
	p, err := cellrt.NewProgram("market", layout, m.cells...)
	if err != nil {
		tb.Fatal(err)
	}
	if m.model, err = cellrt.NewModel(p, 1000); err != nil {
		tb.Fatal(err)
	}
	m.sched = cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: maxRows, Executors: 1})
	m.sched.Add(m.model)
	return m
}

// join submits sequences of a tenant for a cell.
func (m *market) join(tenant string, cell, count int) {
	m.tb.Helper()
	for range count {
		s := cellrt.NewSequence(m.model, endlessGraph{m.cells[cell]}, cellrt.SequenceOptions{Owner: tenant, Tenant: tenant})
		if err := m.sched.Submit(s); err != nil {
			m.tb.Fatal(err)
		}
	}
}

// step runs a batch and returns its cell and how many tokens each tenant got
// of it.
func (m *market) step() (cell int, rows map[string]int) {
	m.tb.Helper()
	if !m.sched.Next(0, &m.batch) {
		m.tb.Fatal("nothing is ready")
	}
	cell = m.batch.Cell.Index()
	m.sched.Complete(&m.batch, len(m.batch.Rows))
	rows = map[string]int{}
	for _, r := range m.sched.Results() {
		rows[r.Sequence.Owner().(string)] += len(r.Tokens)
	}
	m.sched.Clear()
	return cell, rows
}

func TestFloodDelaysOthersByOneBatch(t *testing.T) {
	t.Parallel()
	t.Run("same cell", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 8, 1)
		m.join("flood", 0, 500)
		m.step()
		m.join("one", 0, 1)
		for i := range 200 {
			if _, rows := m.step(); rows["one"] != 1 || rows["flood"] != 7 {
				t.Fatalf("batch %d: rows %v, want one of the single request", i, rows)
			}
		}
	})
	t.Run("other cell", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 8, 1, 1)
		m.join("flood", 0, 500)
		m.step()
		m.join("one", 1, 1)
		for i := range 200 {
			if cell, rows := m.step(); (cell == 1) != (i%2 == 0) || rows["one"] != 1-i%2 {
				t.Fatalf("batch %d is of cell %d with rows %v", i, cell, rows)
			}
		}
	})
	t.Run("more tenants than rows", func(t *testing.T) {
		t.Parallel()
		const tenants, maxRows = 30, 8
		m := newMarket(t, maxRows, 1)
		for i := range tenants {
			m.join(strconv.Itoa(i), 0, 3)
		}
		last := map[string]int{}
		for turn := 1; turn <= 400; turn++ {
			_, rows := m.step()
			for tenant, n := range rows {
				if n != 1 {
					t.Fatalf("%d rows of tenant %s, and others wait", n, tenant)
				}
				last[tenant] = turn
			}
			for i := range tenants {
				if wait := turn - last[strconv.Itoa(i)]; wait > (tenants+maxRows-1)/maxRows {
					t.Fatalf("tenant %d waits for %d batches", i, wait)
				}
			}
		}
	})
}

// shares runs batches and returns how many rows of each cell each tenant got.
func (m *market) shares(batches int) []map[string]int {
	m.tb.Helper()
	total := make([]map[string]int, len(m.cells))
	for i := range total {
		total[i] = map[string]int{}
	}
	for range batches {
		cell, rows := m.step()
		for tenant, n := range rows {
			total[cell][tenant] += n
		}
	}
	return total
}

func TestTenantsShareCompute(t *testing.T) {
	t.Parallel()
	t.Run("one cell", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1)
		m.join("many", 0, 400)
		m.join("some", 0, 40)
		m.join("few", 0, 2)
		rows := m.shares(300)[0]
		if rows["few"] != 600 || rows["some"] < 2000 || rows["some"] > 2200 || rows["many"]+rows["some"]+rows["few"] != 4800 {
			t.Errorf("rows %v, want 600 of few, whatever it has, and the rest in halves", rows)
		}
	})
	t.Run("an expensive cell weighs more", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1, 8)
		m.join("a", 1, 1) // 8 a turn
		m.join("a", 0, 100)
		m.join("b", 0, 100)
		// A row of the expensive cell is eight of the cheap one.
		rows := m.shares(600)
		a, b := rows[0]["a"]+8*rows[1]["a"], rows[0]["b"]
		if rows[1]["a"] < 100 || 10*a < 9*b || 10*b < 9*a {
			t.Errorf("rows %v, want compute in halves and the expensive cell's single request served", rows)
		}
	})
	t.Run("nobody pays for what nobody wanted", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1)
		m.join("flood", 0, 100)
		m.join("light", 0, 1)
		m.shares(1000) // 15 of 16 rows are flood's
		m.join("late", 0, 100)
		m.shares(10)
		if rows := m.shares(100)[0]; rows["flood"] < 700 {
			t.Errorf("rows %v soon after another tenant came, want halves", rows)
		}
	})
	t.Run("nobody hoards", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1)
		m.join("flood", 0, 100)
		m.join("light", 0, 1)
		m.shares(1000)
		m.join("light", 0, 100)
		m.shares(10)
		if rows := m.shares(100)[0]; rows["flood"] < 700 {
			t.Errorf("rows %v soon after a light tenant began to use its share, want halves", rows)
		}
	})
	t.Run("a debt is forgotten", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1, 8)
		m.join("a", 1, 100)
		m.join("a", 0, 100)
		m.join("b", 0, 100)
		m.shares(2000) // nine times as much of the compute is a's
		m.join("b", 1, 100)
		m.shares(40)
		if rows := m.shares(200)[1]; rows["a"] < 700 {
			t.Errorf("rows of the expensive cell %v, want halves", rows)
		}
	})
	t.Run("the broke are not left out", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, 16, 1, 100)
		m.join("broke", 1, 16)
		m.join("broke", 0, 100)
		m.join("rich", 0, 100)
		for range 50 {
			if cell, rows := m.step(); cell == 0 && (rows["broke"] < 1 || rows["rich"] < 15) {
				t.Fatalf("rows %v, want one of the tenant without credit", rows)
			}
		}
	})
}

func TestFairShareDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	m := newMarket(t, 16, 1, 8)
	for i := range 10 {
		m.join(strconv.Itoa(i), i%2, 1+i*i)
	}
	turn := func() {
		m.sched.Next(0, &m.batch)
		m.sched.Complete(&m.batch, len(m.batch.Rows))
		m.sched.Clear()
	}
	turn()
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("%g allocations a step, want none", n)
	}
}
