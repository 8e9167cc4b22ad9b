package sim_test

import (
	"testing"

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
