package sim_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// small is a machine without overheads on which a step of b rows costs 2 + b
// row times.
func small(maxRows int) sim.Machine {
	return sim.Machine{Executors: 1, Cells: []sim.Cell{{Name: "step", Fixed: 2 * rowTime, Row: rowTime, MaxRows: maxRows}}}
}

// timing returns a timing in row times.
func timing(arrival, joined, firstToken, end int) sim.Timing {
	return sim.Timing{
		Arrival: time.Duration(arrival) * rowTime, Joined: time.Duration(joined) * rowTime,
		FirstToken: max(-1, time.Duration(firstToken)*rowTime), End: time.Duration(end) * rowTime,
	}
}

// Each case is small enough to follow with a pencil.
func TestRunByHand(t *testing.T) {
	t.Parallel()
	overheads := small(2)
	overheads.RoundOverhead, overheads.StepOverhead = 10*rowTime, 20*rowTime
	two := small(2)
	two.Executors = 2
	// A long request, and a short one that arrives during its first step.
	pair := []sim.Request{{Shape: sim.Steps(3)}, {Arrival: rowTime, Shape: sim.Steps(1)}}
	emitting := []sim.Request{{Shape: sim.Chain{{Steps: 1}, {Steps: 2, Emits: true}}}, {Arrival: rowTime, Shape: sim.Chain{{Steps: 1}, {Steps: 1, Emits: true}}}}
	random := sim.Random(1)
	tree := []sim.Request{{Shape: sim.NewTree(2, random)}}
	for _, tc := range []struct {
		name    string
		machine sim.Machine
		policy  sim.Policy
		trace   []sim.Request
		want    sim.Report
	}{
		{
			name: "cellular", machine: small(2), policy: sim.Cellular{}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 10), timing(1, 3, -1, 7)},
				Makespan: 10 * rowTime, Busy: 10 * rowTime, Rounds: 3, Steps: 3, Rows: 4,
			},
		}, {
			name: "one slot", machine: small(2), policy: sim.Cellular{Slots: 1}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 9), timing(1, 9, -1, 12)},
				Makespan: 12 * rowTime, Busy: 12 * rowTime, Rounds: 4, Steps: 4, Rows: 4,
			},
		}, {
			name: "overheads", machine: overheads, policy: sim.Cellular{}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 100), timing(1, 33, -1, 67)},
				Makespan: 100 * rowTime, Busy: 100 * rowTime, Rounds: 3, Steps: 3, Rows: 4,
			},
		}, {
			name: "two executors", machine: two, policy: sim.Cellular{}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 9), timing(1, 1, -1, 4)},
				Makespan: 9 * rowTime, Busy: 12 * rowTime, Rounds: 4, Steps: 4, Rows: 4,
			},
		}, {
			name: "tokens", machine: small(2), policy: sim.Cellular{}, trace: emitting,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, 7, 11), timing(1, 3, 11, 11)},
				Makespan: 11 * rowTime, Busy: 11 * rowTime, Rounds: 3, Steps: 3, Rows: 5,
			},
		}, {
			name: "algorithm 1", machine: small(2), policy: sim.Algorithm1{}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 10), timing(1, 3, -1, 7)},
				Makespan: 10 * rowTime, Busy: 10 * rowTime, Rounds: 3, Steps: 3, Rows: 4,
			},
		}, {
			name: "algorithm 1 with look-ahead", machine: small(2), policy: sim.Algorithm1{LookAhead: 2}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 10), timing(1, 6, -1, 10)},
				Makespan: 10 * rowTime, Busy: 10 * rowTime, Rounds: 2, Steps: 3, Rows: 4,
			},
		}, {
			name: "padded to the bucket", machine: small(2), policy: sim.Padded{Width: 4}, trace: pair,
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 12), timing(1, 12, -1, 24)},
				Makespan: 24 * rowTime, Busy: 24 * rowTime, Rounds: 2, Steps: 8, Rows: 4, PaddedRows: 4,
			},
		}, {
			name: "padded to the longest", machine: small(2), policy: sim.Padded{Width: 4, Tight: true},
			trace: []sim.Request{{Shape: sim.Steps(3)}, {Shape: sim.Steps(1)}},
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 12), timing(0, 0, -1, 12)},
				Makespan: 12 * rowTime, Busy: 12 * rowTime, Rounds: 1, Steps: 3, Rows: 4, PaddedRows: 2,
			},
		}, {
			name: "merged", machine: small(2), policy: sim.Merged{},
			trace: []sim.Request{{Shape: sim.Steps(3)}, {Shape: sim.Steps(1)}},
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 10), timing(0, 0, -1, 10)},
				Makespan: 10 * rowTime, Busy: 10 * rowTime, Rounds: 1, Steps: 3, Rows: 4,
			},
		}, {
			name: "a tree", policy: sim.Cellular{}, trace: tree,
			machine: sim.Machine{Executors: 1, Cells: []sim.Cell{
				sim.Leaf:  {Name: "leaf", Fixed: 2 * rowTime, Row: rowTime, MaxRows: 2},
				sim.Inner: {Name: "inner", Fixed: 5 * rowTime, Row: rowTime, MaxRows: 2},
			}},
			want: sim.Report{
				Requests: []sim.Timing{timing(0, 0, -1, 10)},
				Makespan: 10 * rowTime, Busy: 10 * rowTime, Rounds: 2, Steps: 2, Rows: 3,
			},
		}, {
			name: "nothing", machine: small(2), policy: sim.Cellular{}, trace: nil,
			want: sim.Report{Requests: []sim.Timing{}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := run(t, tc.machine, tc.policy, tc.trace); !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("got %+v, want %+v", *got, tc.want)
			}
		})
	}
}

// policies are all policies that run chains.
func policies() map[string]sim.Policy {
	return map[string]sim.Policy{
		"cellular": sim.Cellular{}, "few slots": sim.Cellular{Slots: 7},
		"decoder first": decoderFirst(), "shared": decoderFirstShared(), "oldest first": sim.Algorithm1{LookAhead: 3, MinRows: 2},
		"padded": sim.Padded{Width: 10}, "longest queue": sim.Padded{Width: 7, Order: sim.LongestQueue}, "tight": sim.Padded{Width: 40, Tight: true},
		"merged": sim.Merged{}, "merged few": sim.Merged{Requests: 3},
	}
}

// Whatever the policy, every node runs once, nobody ends before the time its
// own nodes take, and executors are not busier than time passes.
func TestRunAccounts(t *testing.T) {
	t.Parallel()
	shapes := translations(400)
	nodes := 0
	for _, s := range shapes {
		nodes += s.Nodes()
	}
	for name, p := range policies() {
		for _, executors := range []int{1, 3} {
			m := seq2seq(executors)
			r := run(t, m, p, sim.Poisson(sim.Random(arrivalSeed), 8000, shapes))
			if r.Rows != nodes {
				t.Errorf("%s: %d nodes ran, want %d", name, r.Rows, nodes)
			}
			_, padded := p.(sim.Padded)
			if padded != (r.PaddedRows > 0) || padded != (r.Padding() > 1) {
				t.Errorf("%s: %d padded rows", name, r.PaddedRows)
			}
			if r.Busy > time.Duration(executors)*r.Makespan || r.Rounds > r.Steps || r.Steps > r.Rows+r.PaddedRows {
				t.Errorf("%s: busy %s of %s, %d rounds, %d steps", name, r.Busy, r.Makespan, r.Rounds, r.Steps)
			}
			for i, q := range r.Requests {
				chain := shapes[i].(sim.Chain)
				least := time.Duration(chain[0].Steps)*m.Cost(sim.Encoder, 1) + time.Duration(chain[1].Steps)*m.Cost(sim.Decoder, 1)
				if q.Joined < q.Arrival || q.End < q.Joined+least || q.FirstToken <= q.Joined || q.FirstToken > q.End || q.End > r.Makespan {
					t.Fatalf("%s: request %d of %v: %+v", name, i, chain, q)
				}
			}
		}
	}
}

func TestRunIsDeterministic(t *testing.T) {
	t.Parallel()
	reports := func() map[string]*sim.Report {
		reports := map[string]*sim.Report{}
		trace := sim.Poisson(sim.Random(arrivalSeed), 9000, translations(1000))
		for name, p := range policies() {
			reports[name] = run(t, seq2seq(3), p, trace)
		}
		reports["trees"] = run(t, seq2seq(2), sim.Cellular{}, sim.Poisson(sim.Random(arrivalSeed), 9000, trees(300)))
		return reports
	}
	if a, b := reports(), reports(); !reflect.DeepEqual(a, b) {
		t.Error("two runs of the same arguments differ")
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	machine := func(change func(*sim.Machine)) sim.Machine {
		m := small(2)
		change(&m)
		return m
	}
	one := []sim.Request{{Shape: sim.Steps(1)}}
	tree := []sim.Request{{Shape: sim.NewTree(3, sim.Random(1))}}
	pair := machine(func(m *sim.Machine) { m.Cells = append(m.Cells, m.Cells[0]) })
	for _, tc := range []struct {
		name    string
		machine sim.Machine
		policy  sim.Policy
		trace   []sim.Request
		want    string
	}{
		{"executors", machine(func(m *sim.Machine) { m.Executors = 257 }), sim.Cellular{}, one, "Executors 257"},
		{"no cells", machine(func(m *sim.Machine) { m.Cells = nil }), sim.Cellular{}, nil, "want at least 1"},
		{"rows", machine(func(m *sim.Machine) { m.Cells[0].MaxRows = 0 }), sim.Cellular{}, one, "MaxRows 0"},
		{"free steps", machine(func(m *sim.Machine) { m.Cells[0].Fixed, m.Cells[0].Row = 0, 0 }), sim.Cellular{}, one, "want a positive step"},
		{"look-ahead", machine(func(m *sim.Machine) { m.Cells[0].LookAhead = -1 }), sim.Cellular{}, one, "LookAhead -1"},
		{"overhead", machine(func(m *sim.Machine) { m.StepOverhead = -1 }), sim.Cellular{}, one, "overheads"},
		{"order of arrival", small(2), sim.Cellular{}, []sim.Request{{Arrival: 1, Shape: sim.Steps(1)}, {Shape: sim.Steps(1)}}, "request 1 arrives"},
		{"no shape", small(2), sim.Cellular{}, []sim.Request{{}}, "no shape"},
		{"no stages", small(2), sim.Cellular{}, []sim.Request{{Shape: sim.Chain{}}}, "no stages"},
		{"no steps", small(2), sim.Cellular{}, []sim.Request{{Shape: sim.Steps(0)}}, "0 steps"},
		{"unknown cell", small(2), sim.Cellular{}, []sim.Request{{Shape: sim.Seq2Seq(1, 1)}}, "cell 1"},
		{"tree on one cell", small(2), sim.Cellular{}, tree, "tree needs 2 cells"},
		{"padded tree", pair, sim.Padded{Width: 1}, tree, "not a chain"},
		{"padded mixture", pair, sim.Padded{Width: 1}, []sim.Request{{Shape: sim.Steps(1)}, {Shape: sim.Seq2Seq(1, 1)}}, "other stages"},
		{"width", small(2), sim.Padded{}, one, "Width 0"},
		{"order", small(2), sim.Padded{Width: 1, Order: 9}, one, "Order 9"},
		{"priorities", small(2), sim.Algorithm1{Priority: []int{1, 2}}, one, "2 priorities for 1 cells"},
		{"merged", small(2), sim.Merged{Requests: -1}, one, "Requests -1"},
		{"slots", small(2), sim.Cellular{Slots: -1}, one, "slots"},
	} {
		if _, err := sim.Run(tc.machine, tc.policy, tc.trace); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	random, law := sim.Random(lengthSeed), sentences()
	const n = 100_000
	lengths := make(sim.Distribution, n)
	for i := range lengths {
		lengths[i] = time.Duration(law(random))
	}
	slices.Sort(lengths)
	// Rounded to whole lengths: an earlier simulation gives mean 24.9, p90 47, p99 93.
	if mean, p90, p99 := lengths.Mean(), lengths.Quantile(0.9), lengths.Quantile(0.99); mean < 24 || mean > 25 || p90 < 45 || p90 > 47 || p99 < 89 || p99 > 95 {
		t.Errorf("mean %d, p90 %d, p99 %d", mean, p90, p99)
	}
	if lengths[0] < 1 || lengths[n-1] > 330 {
		t.Errorf("lengths from %d to %d, want 1 to 330", lengths[0], lengths[n-1])
	}

	trace := sim.Poisson(random, 1000, make([]sim.Shape, n))
	gaps := make(sim.Distribution, n-1)
	for i := range gaps {
		gaps[i] = trace[i+1].Arrival - trace[i].Arrival
	}
	slices.Sort(gaps)
	// Exponential gaps of mean 1 ms: the median is ln 2 ms.
	if mean, median := gaps.Mean().Seconds(), gaps.Quantile(0.5).Seconds(); mean < 0.99e-3 || mean > 1.01e-3 || median < 0.685e-3 || median > 0.702e-3 {
		t.Errorf("mean gap %g s, median %g s", mean, median)
	}

	if every := sim.Every(3, make([]sim.Shape, 3)); every[0].Arrival != 0 || every[2].Arrival != 6 {
		t.Errorf("every 3 ns: %v", every)
	}
}

func TestTreeShapes(t *testing.T) {
	t.Parallel()
	for leaves := 1; leaves < 50; leaves++ {
		tree := sim.NewTree(leaves, sim.Random(uint64(leaves)))
		if tree.Leaves() != leaves || tree.Nodes() != 2*leaves-1 {
			t.Errorf("%d leaves and %d nodes, want %d leaves of a binary tree", tree.Leaves(), tree.Nodes(), leaves)
		}
	}
}

func TestDistribution(t *testing.T) {
	t.Parallel()
	d := sim.Distribution{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]time.Duration{0: 1, 0.05: 1, 0.1: 1, 0.11: 2, 0.5: 5, 0.9: 9, 0.95: 10, 1: 10} {
		if got := d.Quantile(q); got != want {
			t.Errorf("quantile %g is %d, want %d", q, got, want)
		}
	}
	if d.Mean() != 5 {
		t.Errorf("mean %d, want 5", d.Mean())
	}
	var none sim.Distribution
	if none.Quantile(0.5) != 0 || none.Mean() != 0 {
		t.Error("an empty distribution is not 0")
	}
	var nothing sim.Report
	if nothing.Throughput() != 0 || nothing.Padding() != 1 || nothing.RowsPerStep() != 0 {
		t.Error("an empty report has a throughput, padding or rows")
	}
}

// BenchmarkRun runs traces of a million steps or more.
func BenchmarkRun(b *testing.B) {
	for _, bm := range []struct {
		name  string
		model costModel
		n     int
	}{{"rows=4", costModel{5, 4}, 160_000}, {"rows=32", costModel{5, 32}, 1_300_000}} {
		b.Run(bm.name, func(b *testing.B) {
			if testing.Short() {
				bm.n /= 10
			}
			trace := sim.Backlog(chains(bm.n, sentences()))
			var steps, rows int
			for b.Loop() {
				r := run(b, bm.model.machine(), sim.Cellular{Slots: 256}, trace)
				steps, rows = steps+r.Steps, rows+r.Rows
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
		})
	}
}
