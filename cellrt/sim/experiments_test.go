package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// One row costs rowTime in all experiments of this file; costs of steps are
// given in it.
const rowTime = time.Microsecond

// The seeds of lengths and of arrivals.
const (
	lengthSeed  = 1
	arrivalSeed = 7
)

// costModel is a cell whose step of b rows costs r + b row times.
type costModel struct{ r, maxRows int }

func (c costModel) String() string { return fmt.Sprintf("r=%d,B=%d", c.r, c.maxRows) }

// machine returns one executor with the cell; overheads are 5 % of r each.
func (c costModel) machine() sim.Machine {
	fixed := time.Duration(c.r) * rowTime
	return sim.Machine{
		Executors: 1, RoundOverhead: fixed / 20, StepOverhead: fixed / 20,
		Cells: []sim.Cell{{Name: "step", Fixed: fixed, Row: rowTime, MaxRows: c.maxRows}},
	}
}

// costModels are two like processors and two like accelerators.
func costModels() []costModel { return []costModel{{2, 16}, {5, 32}, {60, 64}, {60, 512}} }

// sentences is the law of lengths: mean 25, p90 47, p99 93.
func sentences() sim.Law { return sim.LogNormal(20, 0.65, 330) }

// requests is how many requests an experiment has.
func requests(full int) int {
	if testing.Short() {
		return full / 10
	}
	return full
}

// chains draws n requests of one cell.
func chains(n int, law sim.Law) []sim.Shape {
	random := sim.Random(lengthSeed)
	shapes := make([]sim.Shape, n)
	for i := range shapes {
		shapes[i] = sim.Steps(law(random))
	}
	return shapes
}

// run runs a trace under a policy.
func run(tb testing.TB, m sim.Machine, p sim.Policy, trace []sim.Request) *sim.Report {
	tb.Helper()
	r, err := sim.Run(m, p, trace)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// peak returns the throughput of a policy that always has a backlog.
func peak(tb testing.TB, m sim.Machine, p sim.Policy, shapes []sim.Shape) float64 {
	tb.Helper()
	return run(tb, m, p, sim.Backlog(shapes)).Throughput()
}

// p90 returns the latency's 90th percentile in row times.
func p90(r *sim.Report) float64 { return float64(r.Latency().Quantile(0.9)) / float64(rowTime) }

func TestPeakAgainstBuckets(t *testing.T) {
	t.Parallel()
	for i, c := range costModels() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			m, shapes := c.machine(), chains(requests(30_000), sentences())
			cellular := peak(t, m, sim.Cellular{}, shapes)
			against := func(p sim.Policy) float64 { return cellular / peak(t, m, p, shapes) }

			w10, w40 := against(sim.Padded{Width: 10}), against(sim.Padded{Width: 40})
			t.Logf("width 10: %.3f (earlier %.2f), width 40: %.3f (earlier 1.86 to 1.93)",
				w10, []float64{1.18, 1.18, 1.25, 1.38}[i], w40)
			if w10 < 1.12 {
				t.Errorf("%.3f times the peak of width-10 buckets, want at least 1.12", w10)
			}
			if w40 < 1.7 {
				t.Errorf("%.3f times the peak of width-40 buckets, want at least 1.7", w40)
			}
			longest, tight := against(sim.Padded{Width: 10, Order: sim.LongestQueue}), against(sim.Padded{Width: 10, Tight: true})
			t.Logf("width 10 longest queue first: %.3f, padded to the batch's longest: %.3f", longest, tight)
			if longest < 1.12 || tight < 1.12 {
				t.Errorf("%.3f and %.3f times the peak of better width-10 buckets, want at least 1.12", longest, tight)
			}
			merged := against(sim.Merged{})
			t.Logf("merged graphs: %.3f (earlier %.2f)", merged, []float64{1.20, 1.32, 2.43, 1.54}[i])
			if merged < 1.1 {
				t.Errorf("%.3f times the peak of merged graphs, want at least 1.1", merged)
			}
		})
	}
}

func TestPeakAtFixedLength(t *testing.T) {
	t.Parallel()
	for _, c := range costModels() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			// Padded batches without a padded row are the best there is.
			m, shapes := c.machine(), chains(requests(30_000)/c.maxRows*c.maxRows, sim.Fixed(24))
			ratio := peak(t, m, sim.Cellular{}, shapes) / peak(t, m, sim.Padded{Width: 24}, shapes)
			t.Logf("%.3f (earlier 0.97 to 0.99)", ratio)
			if ratio < 0.95 || ratio > 1 {
				t.Errorf("%.3f times the peak of padding at one length, want 0.95 to 1.00", ratio)
			}
		})
	}
}

// With expensive steps narrow buckets do not fill and wide ones are padding;
// the best width lies between. Beyond it wider is worse.
func TestBucketWidths(t *testing.T) {
	t.Parallel()
	widths := []int{1, 2, 5, 10, 20, 40, 80, 160}
	for _, c := range costModels() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			m, shapes := c.machine(), chains(requests(30_000), sentences())
			cellular := peak(t, m, sim.Cellular{}, shapes)
			ratios := make([]float64, len(widths))
			best := 0
			for i, w := range widths {
				ratios[i] = cellular / peak(t, m, sim.Padded{Width: w}, shapes)
				if ratios[i] < ratios[best] {
					best = i
				}
			}
			t.Logf("widths %v: %.2f", widths, ratios)
			if c.r >= 60 && !testing.Short() && (widths[best] < 5 || widths[best] > 10) {
				t.Errorf("width %d is the best, want 5 to 10", widths[best])
			}
			for i := max(best, 3) + 1; i < len(widths); i++ {
				if ratios[i] <= ratios[i-1] {
					t.Errorf("width %d is not worse than %d", widths[i], widths[i-1])
				}
			}
		})
	}
}

func TestLatencyAgainstBuckets(t *testing.T) {
	t.Parallel()
	for i, c := range costModels() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			m, shapes := c.machine(), chains(requests(30_000), sentences())
			buckets := peak(t, m, sim.Padded{Width: 10}, shapes)
			for _, tc := range []struct {
				load    float64
				most    float64   // of the bucket's p90, for the first cost models
				earlier []float64 // for the first cost models
			}{
				{load: 0.1, most: 1, earlier: []float64{0.76, 0.60}},
				{load: 0.3, most: 0.7},
				{load: 0.5, most: []float64{0.35, 0.20, 0.20, 0.20}[i], earlier: []float64{0.26, 0.13}},
				{load: 0.7, most: []float64{0.35, 0.20, 0.20, 0.20}[i]},
			} {
				trace := sim.Poisson(sim.Random(arrivalSeed), tc.load*buckets, shapes)
				cellular, padded := p90(run(t, m, sim.Cellular{}, trace)), p90(run(t, m, sim.Padded{Width: 10}, trace))
				longest := p90(run(t, m, sim.Padded{Width: 10, Order: sim.LongestQueue}, trace))
				merged := p90(run(t, m, sim.Merged{}, trace))
				known := ""
				if i < len(tc.earlier) {
					known = fmt.Sprintf(" (earlier %.2f)", tc.earlier[i])
				}
				t.Logf("load %.1f: p90 %.0f, buckets %.0f, longest queue first %.0f, merged %.0f: %.3f%s, %.3f, %.3f",
					tc.load, cellular, padded, longest, merged, cellular/padded, known, cellular/longest, cellular/merged)
				if cellular > tc.most*padded {
					t.Errorf("load %.1f: %.3f times the p90 of width-10 buckets, want at most %.2f", tc.load, cellular/padded, tc.most)
				}
				if cellular > longest || cellular > merged {
					t.Errorf("load %.1f: p90 %.0f, longest queue first %.0f, merged %.0f", tc.load, cellular, longest, merged)
				}
			}
		})
	}
}

// At half load a newcomer is in the next round: it waits for the batches that
// run, whatever their size, and for nothing else.
func TestJoinBound(t *testing.T) {
	t.Parallel()
	for _, c := range costModels() {
		for _, k := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s,K=%d", c, k), func(t *testing.T) {
				t.Parallel()
				m, shapes := c.machine(), chains(requests(30_000), sentences())
				m.Cells[0].LookAhead = k
				trace := sim.Poisson(sim.Random(arrivalSeed), 0.5*peak(t, m, sim.Padded{Width: 10}, shapes), shapes)
				join := run(t, m, sim.Cellular{}, trace).Join()
				bound := time.Duration(k)*(m.Cost(0, c.maxRows)+m.StepOverhead) + m.RoundOverhead
				t.Logf("p50 %s, p99 %s, largest %s, bound %s", join.Quantile(0.5), join.Quantile(0.99), join.Quantile(1), bound)
				if join.Quantile(1) > bound {
					t.Errorf("joined after %s, want at most %s", join.Quantile(1), bound)
				}
				if one := m.Cost(0, 1); k > 1 && join.Quantile(1) <= 2*one {
					t.Errorf("joined after at most %s: there was no look-ahead", join.Quantile(1))
				}
			})
		}
	}
}

// A scheduler whose rounds are slow, half of a step's fixed cost, pays for
// being asked often, and look-ahead pays in time to join.
func TestLookAheadWithSlowRounds(t *testing.T) {
	t.Parallel()
	slow := costModel{5, 32}.machine()
	slow.RoundOverhead = slow.Cells[0].Fixed / 2
	fast := costModel{5, 32}.machine()
	shapes := chains(requests(10_000), sentences())
	trace := sim.Poisson(sim.Random(arrivalSeed), 0.5*peak(t, fast, sim.Padded{Width: 10}, shapes), shapes)

	one, quick := peak(t, slow, sim.Cellular{}, shapes), peak(t, fast, sim.Algorithm1{LookAhead: 5}, shapes)
	t.Logf("peak without look-ahead %.3f of look-ahead 5 with fast rounds (earlier 0.94)", one/quick)
	if one < 0.93*quick {
		t.Errorf("peak without look-ahead is %.3f of look-ahead 5 with fast rounds, want at least 0.93", one/quick)
	}

	lookAheads := []int{1, 2, 5, 10, 20, 50}
	for name, policy := range map[string]func(*sim.Machine, int) sim.Policy{
		"algorithm 1": func(_ *sim.Machine, k int) sim.Policy { return sim.Algorithm1{LookAhead: k} },
		"this scheduler": func(m *sim.Machine, k int) sim.Policy {
			m.Cells = []sim.Cell{m.Cells[0]}
			m.Cells[0].LookAhead = k
			return sim.Cellular{}
		},
	} {
		var medians, tails []float64
		best := 0
		for i, k := range lookAheads {
			m := slow
			p := policy(&m, k)
			r := run(t, m, p, trace)
			medians = append(medians, float64(r.Latency().Quantile(0.5))/float64(rowTime))
			tails = append(tails, p90(r))
			if tails[i] < tails[best] {
				best = i
			}
		}
		t.Logf("%s with look-ahead %v: p50 %.0f, p90 %.0f (earlier p90 734 639 591 595 641 825, p50 259 at 5 and 472 at 50)",
			name, lookAheads, medians, tails)
		if k := lookAheads[best]; k < 2 || k > 10 {
			t.Errorf("%s: p90 is lowest at look-ahead %d, want 2 to 10", name, k)
		}
		least := 1.6
		if name != "algorithm 1" {
			least = 1.2 // it gives no batch of one row ahead, so that look-ahead ends earlier
		}
		if medians[5] < least*medians[2] {
			t.Errorf("%s: p50 at look-ahead 50 is %.2f of that at 5, want at least %.1f", name, medians[5]/medians[2], least)
		}
	}
}
