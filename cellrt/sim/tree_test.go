package sim_test

import (
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// trees draws n random trees whose numbers of leaves follow the law of
// sentences.
func trees(n int) []sim.Shape {
	random, law := sim.Random(lengthSeed), sentences()
	shapes := make([]sim.Shape, n)
	for i := range shapes {
		shapes[i] = sim.NewTree(law(random), random)
	}
	return shapes
}

// Trees have no length to put into a bucket; the alternative is merging them.
// A tree alone is wide already. Where rows make up most of a step's cost there
// is nothing to gain from batching trees, and sharing steps among them costs
// some latency; where steps are expensive, it is the other way round.
func TestTreesAgainstMergedGraphs(t *testing.T) {
	t.Parallel()
	shapes := trees(requests(10_000))
	for _, tc := range []struct {
		model   costModel
		latency float64 // most p90 at half load, of the merged graphs'
	}{{costModel{2, 16}, 1.3}, {costModel{5, 32}, 1.2}, {costModel{60, 64}, 0.9}} {
		t.Run(tc.model.String(), func(t *testing.T) {
			t.Parallel()
			m := tc.model.machine()
			m.Cells = []sim.Cell{sim.Leaf: m.Cells[0], sim.Inner: m.Cells[0]}
			merged := peak(t, m, sim.Merged{}, shapes)
			ratio := peak(t, m, sim.Cellular{}, shapes) / merged
			if ratio < 1 {
				t.Errorf("%.3f times the peak of merged trees, want at least 1", ratio)
			}
			for _, load := range []float64{0.1, 0.5} {
				trace := sim.Poisson(sim.Random(arrivalSeed), load*merged, shapes)
				cellular, waiting := p90(run(t, m, sim.Cellular{}, trace)), p90(run(t, m, sim.Merged{}, trace))
				t.Logf("%.3f times the peak; load %.1f: p90 %.0f, merged %.0f: %.3f", ratio, load, cellular, waiting, cellular/waiting)
				if cellular > tc.latency*waiting {
					t.Errorf("load %.1f: %.3f times the p90 of merged trees, want at most %.2f", load, cellular/waiting, tc.latency)
				}
			}
		})
	}
}

// A tree of three leaves under the published policy: its leaves run together,
// then its inner nodes one after the other, in one round with look-ahead.
func TestTreeUnderAlgorithm1(t *testing.T) {
	t.Parallel()
	m := sim.Machine{Executors: 1, RoundOverhead: 100 * rowTime, Cells: []sim.Cell{
		sim.Leaf:  {Name: "leaf", Fixed: 2 * rowTime, Row: rowTime, MaxRows: 4},
		sim.Inner: {Name: "inner", Fixed: 5 * rowTime, Row: rowTime, MaxRows: 4},
	}}
	trace := sim.Backlog([]sim.Shape{sim.NewTree(3, sim.Random(1))})
	for lookAhead, want := range map[int]time.Duration{1: 317, 2: 217, 9: 217} {
		r := run(t, m, sim.Algorithm1{LookAhead: lookAhead}, trace)
		if r.Makespan != want*rowTime || r.Rows != 5 || r.Steps != 3 {
			t.Errorf("look-ahead %d: %s, %d rows in %d steps, want %s, 5 and 3", lookAhead, r.Makespan, r.Rows, r.Steps, want*rowTime)
		}
	}
}

// Every node of a tree runs once, after its children, whatever the policy.
func TestTreesAccount(t *testing.T) {
	t.Parallel()
	shapes := append(trees(200), sim.NewTree(1, sim.Random(1)))
	nodes := 0
	for _, s := range shapes {
		nodes += s.Nodes()
	}
	for name, p := range map[string]sim.Policy{
		"cellular": sim.Cellular{}, "merged": sim.Merged{}, "algorithm 1": sim.Algorithm1{LookAhead: 5, Priority: []int{0, 1}},
		"oldest first": sim.Algorithm1{LookAhead: 2, MinRows: 3},
	} {
		for _, executors := range []int{1, 3} {
			m := seq2seq(executors)
			r := run(t, m, p, sim.Poisson(sim.Random(arrivalSeed), 4000, shapes))
			if r.Rows != nodes || r.PaddedRows != 0 {
				t.Errorf("%s: %d nodes and %d padded rows ran, want %d nodes", name, r.Rows, r.PaddedRows, nodes)
			}
			for i, q := range r.Requests {
				least := m.Cost(sim.Leaf, 1) // and, in a binary tree, a level for each doubling of the leaves
				for leaves := 1; leaves < shapes[i].(*sim.Tree).Leaves(); leaves *= 2 {
					least += m.Cost(sim.Inner, 1)
				}
				if q.Joined < q.Arrival || q.End < q.Joined+least || q.End > r.Makespan {
					t.Fatalf("%s: request %d of %d nodes: %+v, at least %s of work", name, i, shapes[i].Nodes(), q, least)
				}
			}
		}
	}
}
