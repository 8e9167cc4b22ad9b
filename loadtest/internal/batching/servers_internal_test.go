package batching

import (
	"fmt"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/cellrt/sim"
)

// alone computes the digest of a request that shares its steps with nobody.
func alone(t *testing.T, n *network, r *request) uint64 {
	t.Helper()
	x, err := cpu.New(cpu.Config{}).Load(n.program, 1)
	if err != nil {
		t.Fatal(err)
	}
	runner, w := x.NewRunner(), newWalk(n, r)
	for node, ok := w.next(); ok; node, ok = w.next() {
		out := make([]cellrt.Output, 1)
		runner.Run(node.Cell, []cellrt.Row{{Args: node.Args}}, out)
		w.take(&out[0])
	}
	return w.digest
}

func TestSameAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{LSTM, Seq2Seq} {
		n := tinyNetwork(t, name)
		trace := draw(n, 300) // more than there are slots
		want := make([]uint64, len(trace))
		distinct := map[uint64]bool{}
		for i := range trace {
			want[i] = alone(t, n, &trace[i])
			distinct[want[i]] = true
		}
		if len(distinct) < len(trace)*9/10 {
			t.Errorf("%s: %d answers to %d requests: the digest sees too little", name, len(distinct), len(trace))
		}
		check := func(t *testing.T, s server) {
			t.Helper()
			for range 2 { // the second time slots and buckets have a past
				tr := serveTrace(t, s, trace)
				for i := range tr.answers {
					if tr.answers[i].digest != want[i] {
						t.Fatalf("the answer to request %d, of %d nodes, is not that of the request alone", i, trace[i].nodes())
					}
				}
			}
		}
		for _, shape := range []cellrt.Shape{{Executors: 1, Threads: 1}, {Executors: 2, Threads: 2}} {
			t.Run(fmt.Sprintf("%s/cellular/%d", name, shape.Executors), func(t *testing.T) {
				t.Parallel()
				s := tinyCellular(t, n, shape, 8)
				serve(t, s.run)
				check(t, s)
			})
			for _, b := range Baselines() {
				t.Run(fmt.Sprintf("%s/%s/%d", name, b, shape.Executors), func(t *testing.T) {
					t.Parallel()
					s := tinyPadded(t, n, shape, 8, 10, b)
					serve(t, s.run)
					check(t, s)
				})
			}
		}
	}
}

// What the buckets compute is what those of the virtual clock do, step by step
// and row by row.
func TestPaddingAsSimulated(t *testing.T) {
	t.Parallel()
	const rows, width = 7, 10
	for _, name := range []string{LSTM, Seq2Seq} {
		n := tinyNetwork(t, name)
		trace := draw(n, 200)
		shapes := make([]sim.Shape, len(trace))
		for i, r := range trace {
			shapes[i] = sim.Steps(len(r.source))
			if r.target > 0 {
				shapes[i] = sim.Seq2Seq(len(r.source), r.target)
			}
		}
		cell := sim.Cell{Row: 1, MaxRows: rows}
		machine := sim.Machine{Executors: 1, Cells: []sim.Cell{cell, cell}}
		for _, b := range Baselines() {
			t.Run(fmt.Sprintf("%s/%s", name, b), func(t *testing.T) {
				t.Parallel()
				r, err := sim.Run(machine, sim.Padded{Width: width, Order: b.Order, Tight: b.Tight}, sim.Backlog(shapes))
				if err != nil {
					t.Fatal(err)
				}
				want := counts{steps: uint64(r.Steps), rows: uint64(r.Rows), padded: uint64(r.PaddedRows)}
				s := tinyPadded(t, n, cellrt.Shape{Executors: 1, Threads: 1}, rows, width, b)
				serve(t, s.run)
				if got := serveTrace(t, s, trace).counts; got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			})
		}
	}
}

func TestPadding(t *testing.T) {
	t.Parallel()
	n := tinyNetwork(t, Seq2Seq)
	trace := []request{
		{source: []int32{1, 2, 3}, target: 2},
		{source: []int32{4}, target: 4},
	}
	for _, tc := range []struct {
		tight bool
		want  counts
	}{
		{tight: false, want: counts{steps: 5 + 4, rows: 10, padded: 8}},
		{tight: true, want: counts{steps: 3 + 4, rows: 10, padded: 4}},
	} {
		t.Run(fmt.Sprintf("tight=%t", tc.tight), func(t *testing.T) {
			t.Parallel()
			s := tinyPadded(t, n, cellrt.Shape{Executors: 1, Threads: 1}, 4, 5, Baseline{Tight: tc.tight})
			serve(t, s.run)
			tr := serveTrace(t, s, trace)
			if tr.counts != tc.want {
				t.Errorf("%+v, want %+v", tr.counts, tc.want)
			}
			if tr.answers[0].ended != tr.answers[1].ended {
				t.Error("the requests of a batch ended at different times")
			}
		})
	}
}

func TestCellularPadsNothing(t *testing.T) {
	t.Parallel()
	n := tinyNetwork(t, Seq2Seq)
	trace := draw(n, 40)
	nodes := 0
	for i := range trace {
		nodes += trace[i].nodes()
	}
	s := tinyCellular(t, n, cellrt.Shape{Executors: 1, Threads: 1}, 8)
	serve(t, s.run)
	if c := serveTrace(t, s, trace).counts; c.rows != uint64(nodes) || c.padded != 0 {
		t.Errorf("%+v, want %d rows and no padding", c, nodes)
	}
}
