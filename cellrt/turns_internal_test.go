package cellrt

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

// steadyGraph runs one node after the other for ever.
type steadyGraph struct{ cell *Cell }

func (g steadyGraph) Start(f *Frontier) { f.Push(Node{Cell: g.cell}) }

func (g steadyGraph) Advance(n Node, _ Output, f *Frontier) { f.Push(n) }

// crowd returns a scheduler with that many tenants, each with up to two
// sequences in cells of unlike cost.
func crowd(tb testing.TB, tenants int) *Scheduler {
	tb.Helper()
	layout := &Layout{}
	state := layout.Add("state", 1, 10)
	var cells []*Cell
	for i, cost := range []int{1, 3, 40} {
		b := NewCell(fmt.Sprint("cell ", i), layout, 0)
		b.Linear(&Matrix{Name: "m", Rows: 10 * cost, Cols: 10, Data: make([]float32, 100*cost)}, nil, None, b.Load(state, Zero))
		c, err := b.Build()
		if err != nil {
			tb.Fatal(err)
		}
		cells = append(cells, c)
	}
	p, err := NewProgram("crowd", layout, cells...)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := NewModel(p, 2*tenants)
	if err != nil {
		tb.Fatal(err)
	}
	s := NewScheduler(SchedulerConfig{MaxRows: 16, Executors: 1})
	s.Add(m)
	for i := range tenants {
		for j := range 1 + i%2 {
			q := NewSequence(m, steadyGraph{cells[(i+j)%len(cells)]}, SequenceOptions{Tenant: strconv.Itoa(i)})
			if err := s.Submit(q); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return s
}

// TestTurnsLookAtFewTenants counts the looks at tenants that a batch costs.
func TestTurnsLookAtFewTenants(t *testing.T) {
	t.Parallel()
	for _, tenants := range []int{10, 1000, 10_000} {
		s := crowd(t, tenants)
		const batches = 5000
		var b Batch
		var most, rows uint64
		for range batches {
			before := s.fair.turns.looks
			s.Next(0, &b)
			most = max(most, s.fair.turns.looks-before)
			rows += uint64(len(b.Rows))
			s.Complete(&b, len(b.Rows))
			s.Clear()
		}
		looks := s.fair.turns.looks
		t.Logf("%d tenants: %.1f looks a batch of %.1f rows, at most %d", tenants, float64(looks)/batches, float64(rows)/batches, most)
		if looks > 3*(rows+batches) {
			t.Errorf("%d tenants: %d looks for %d rows in %d batches", tenants, looks, rows, batches)
		}
	}
}

// TestTurnsKeepOrder parks and returns tenants at random and checks the heap.
func TestTurnsKeepOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	var s turns
	tenants := make([]tenant, 50)
	for i := range tenants {
		tenants[i].parkedAt = noPlace
	}
	for range 20_000 {
		if who := &tenants[r.IntN(len(tenants))]; who.parkedAt == noPlace {
			s.park(who, r.Int64N(100))
		} else {
			s.unpark(who)
		}
		for i, who := range s.parked {
			if who.parkedAt != i || i > 0 && s.parked[(i-1)/2].until > who.until {
				t.Fatalf("place %d: tenant until %d at %d", i, who.until, who.parkedAt)
			}
		}
	}
}

func BenchmarkTurns(b *testing.B) {
	for _, tenants := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			s := crowd(b, tenants)
			var batch Batch
			b.ReportAllocs()
			for b.Loop() {
				s.Next(0, &batch)
				s.Complete(&batch, len(batch.Rows))
				s.Clear()
			}
		})
	}
}
