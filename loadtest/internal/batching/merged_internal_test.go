package batching

import (
	"fmt"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/cellrt/sim"
)

func tinyMerged(t *testing.T, n *network, shape cellrt.Shape, rows int) *merged {
	t.Helper()
	s, err := newMerged(n, cpu.New(cpu.Config{SplitWork: 1}), shape, rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unfold computes the digest of a request whose steps have one row.
func unfold(t *testing.T, n *network, r *request) uint64 {
	t.Helper()
	x, err := cpu.New(cpu.Config{}).Load(n.program, 1)
	if err != nil {
		t.Fatal(err)
	}
	runner, u, out := x.NewRunner(), newUnfolding(n, r), make([]cellrt.Output, 1)
	ran := 0
	for nodes := u.first(nil); len(nodes) > 0; ran++ {
		node := nodes[0]
		runner.Run(node.Cell, []cellrt.Row{{Args: node.Args}}, out)
		nodes = u.after(node, &out[0], nodes[1:])
	}
	if ran != r.nodes() {
		t.Fatalf("%d nodes ran, want %d", ran, r.nodes())
	}
	return u.sum()
}

// Merged and cellular servers give a request the answer that it has alone.
func TestUnfoldedAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{LSTM, Seq2Seq, Tree} {
		n := tinyNetwork(t, name)
		trace := draw(n, 300)
		want := make([]uint64, len(trace))
		distinct := map[uint64]bool{}
		for i := range trace {
			want[i] = unfold(t, n, &trace[i])
			distinct[want[i]] = true
		}
		if len(distinct) < len(trace)*9/10 {
			t.Errorf("%s: %d answers to %d requests: the digest sees too little", name, len(distinct), len(trace))
		}
		for _, shape := range []cellrt.Shape{{Executors: 1, Threads: 1}, {Executors: 2, Threads: 2}} {
			t.Run(fmt.Sprintf("%s/%d", name, shape.Executors), func(t *testing.T) {
				t.Parallel()
				first, second := tinyMerged(t, n, shape, 8), tinyCellular(t, n, shape, 8)
				serve(t, first.run)
				serve(t, second.run)
				for _, s := range []server{first, second, first} { // slots have a past
					tr := serveTrace(t, s, trace)
					for i := range tr.answers {
						if tr.answers[i].digest != want[i] {
							t.Fatalf("%T: the answer to request %d, of %d nodes, is not that of the request alone", s, i, trace[i].nodes())
						}
					}
				}
			})
		}
	}
}

// Merged chains run as many steps and rows as those of the virtual clock.
func TestMergingAsSimulated(t *testing.T) {
	t.Parallel()
	const rows = 7
	for _, name := range []string{LSTM, Seq2Seq} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			r, err := sim.Run(sim.Machine{Executors: 1, Cells: []sim.Cell{cell, cell}}, sim.Merged{}, sim.Backlog(shapes))
			if err != nil {
				t.Fatal(err)
			}
			s := tinyMerged(t, n, cellrt.Shape{Executors: 1, Threads: 1}, rows)
			serve(t, s.run)
			if got, want := serveTrace(t, s, trace).counts, (counts{steps: uint64(r.Steps), rows: uint64(r.Rows)}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestTreesAreTrees(t *testing.T) {
	t.Parallel()
	n := tinyNetwork(t, Tree)
	for _, r := range draw(n, 200) {
		if len(r.children) != len(r.source)-1 {
			t.Fatalf("%d inner nodes on %d leaves", len(r.children), len(r.source))
		}
		parents := make([]int, r.nodes())
		for i, c := range r.children {
			for _, child := range c {
				if int(child) >= len(r.source)+i {
					t.Fatalf("child %d of inner node %d comes after it", child, i)
				}
				parents[child]++
			}
		}
		for node, count := range parents {
			want := 1
			if node == r.nodes()-1 {
				want = 0
			}
			if count != want {
				t.Fatalf("node %d of %d has %d parents, want %d", node, r.nodes(), count, want)
			}
		}
	}
}
