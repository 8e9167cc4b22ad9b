package cellrt_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

func TestLookAheadGivesOutSeveralBatches(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, worldOptions{maxRows: 8, slots: 4, executors: 1, lookAhead: 3})
	for i := range 4 {
		w.submit(script{lengths: [3]int{5 + i, 0, 2}, failAt: -1})
	}
	w.form(0)
	if n := len(w.rounds[0].flights); n != 3 {
		t.Fatalf("%d batches given out at once, want 3", n)
	}
	for _, f := range w.rounds[0].flights {
		if f.batch.Cell != w.cells[0] || len(f.batch.Rows) != 4 {
			t.Errorf("%d rows of %s, want 4 of forward", len(f.batch.Rows), f.batch.Cell.Name)
		}
	}
	w.drain()
}

func TestLookAheadIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("a request alone", func(t *testing.T) {
		t.Parallel()
		w := makeWorld(t, worldOptions{maxRows: 8, slots: 4, executors: 1, lookAhead: 3})
		w.submit(script{lengths: [3]int{9, 0, 2}, failAt: -1})
		if w.form(0); len(w.rounds[0].flights) != 1 {
			t.Errorf("%d batches given out at once for one request", len(w.rounds[0].flights))
		}
		w.drain()
	})
	t.Run("a cell with outputs", func(t *testing.T) {
		t.Parallel()
		tr := newTranslator(t, 3, 5)
		m, err := cellrt.NewModel(tr.program, 2)
		if err != nil {
			t.Fatal(err)
		}
		s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 4, Executors: 1})
		s.Add(m)
		for range 2 {
			if err := s.Submit(cellrt.NewSequence(m, endlessGraph{tr.decoder}, cellrt.SequenceOptions{})); err != nil {
				t.Fatal(err)
			}
		}
		var b, after cellrt.Batch
		if !s.Next(0, &b) || s.Follow(&b, &after) {
			t.Error("want one batch and none that follows")
		}
	})
}

// TestLookAheadKeepsOrderAcrossExecutors has one executor run what another
// one's nodes would have to wait for.
func TestLookAheadKeepsOrderAcrossExecutors(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, worldOptions{maxRows: 8, slots: 4, executors: 2, lookAhead: 4})
	for range 3 {
		w.submit(script{lengths: [3]int{3, 1, 2}, failAt: -1})
	}
	// Executor 0 is given one direction to its end, executor 1 the other. When
	// 1 has completed, the decoder's nodes have to wait for 0.
	if !w.form(0) || !w.form(1) {
		t.Fatal("the two directions do not run at the same time")
	}
	for w.complete(1) {
	}
	for w.form(1) {
		w.complete(1) // fails when it is given a decoder's node
	}
	w.drain()
}

// pair is a graph of two nodes and one that depends on both, all of one cell.
type pair struct {
	cell *cellrt.Cell
	left int
}

func (g *pair) Start(f *cellrt.Frontier) {
	g.left = 2
	f.Push(cellrt.Node{Cell: g.cell})
	f.Push(cellrt.Node{Cell: g.cell})
}

func (g *pair) Advance(_ cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	switch g.left--; g.left {
	case 0:
		f.Push(cellrt.Node{Cell: g.cell})
	case -1:
		f.Finish(cellrt.Stopped)
	}
}

// TestLookAheadWaitsForOtherExecutors gives the two first nodes of pairs to two
// executors: neither may be given the third ahead.
func TestLookAheadWaitsForOtherExecutors(t *testing.T) {
	t.Parallel()
	p := newTranslator(t, 3, 4).program
	m, err := cellrt.NewModel(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 2, Executors: 2})
	s.Add(m)
	for _, tenant := range []string{"a", "b"} { // who have turns, so that batches are of both
		q := cellrt.NewSequence(m, &pair{cell: p.Cells[0]}, cellrt.SequenceOptions{Tenant: tenant})
		if err := s.Submit(q); err != nil {
			t.Fatal(err)
		}
	}
	var first, second, after cellrt.Batch
	if !s.Next(0, &first) || !s.Next(1, &second) || first.Rows[0].Slot == first.Rows[1].Slot {
		t.Fatalf("batches %v and %v, want one node of each pair in each", first.Rows, second.Rows)
	}
	if s.Follow(&first, &after) || s.Follow(&second, &after) {
		t.Fatal("a node was given out ahead of one that another executor runs")
	}
	s.Complete(&second, 2)
	if s.Next(1, &second) {
		t.Fatal("a node was given out before one that it depends on has run")
	}
	s.Complete(&first, 2)
	if !s.Next(0, &first) || len(first.Rows) != 2 {
		t.Fatal("the third nodes did not become ready")
	}
	s.Complete(&first, 2)
	if st := s.Stats(); st.Finished != 2 || st.Rows != 6 {
		t.Errorf("%d finished after %d rows", st.Finished, st.Rows)
	}
}

func TestLookAheadEndings(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]script{
		"stalled":   {lengths: [3]int{2, 0, 0}, stall: true, failAt: -1},
		"finished":  {lengths: [3]int{3, 0, 0}, failAt: -1},
		"cancelled": {lengths: [3]int{9, 0, 2}, failAt: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := makeWorld(t, worldOptions{maxRows: 8, slots: 3, executors: 1, lookAhead: 3})
			for range 3 {
				w.submit(of)
			}
			w.form(0)
			if len(w.rounds[0].flights) < 2 {
				t.Fatal("nothing was given out ahead")
			}
			if name == "cancelled" {
				w.cancel(w.scripts[1], errTest)
			}
			if w.ends > 0 {
				t.Error("a sequence ended with nodes in flight")
			}
			w.drain()
		})
	}
}

func TestLookAheadDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	tr := newTranslator(t, 3, 4)
	m, err := cellrt.NewModel(tr.program, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 8, Executors: 1})
	s.Add(m)
	for range 8 {
		if err := s.Submit(cellrt.NewSequence(m, silentGraph{tr.forward}, cellrt.SequenceOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	var round [4]cellrt.Batch
	turn := func() {
		s.Next(0, &round[0])
		n := 1
		for n < len(round) && s.Follow(&round[n-1], &round[n]) {
			n++
		}
		if n != len(round) {
			t.Errorf("%d batches at once", n)
		}
		for i := range round {
			s.Complete(&round[i], len(round[i].Rows))
		}
		s.Clear()
	}
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("%g allocations a round, want none", n)
	}
}

// silentGraph runs one node after the other for ever.
type silentGraph struct{ cell *cellrt.Cell }

func (g silentGraph) Start(f *cellrt.Frontier) { f.Push(cellrt.Node{Cell: g.cell}) }
func (g silentGraph) Advance(n cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	f.Push(n)
}

// TestLookAheadJoinBound submits newcomers while others are encoded and
// measures how long they wait for their first step.
func TestLookAheadJoinBound(t *testing.T) {
	t.Parallel()
	for _, lookAhead := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(lookAhead), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, cellrt.Config{MaxRows: 8}, 8)
				for _, c := range s.model.Program().Cells[:1] {
					c.LookAhead = lookAhead
				}
				// LookAhead is read when a model is loaded.
				var err error
				if s.model, err = s.Load(s.model.Program(), 8); err != nil {
					t.Fatal(err)
				}
				s.backend.delay = step
				stop := s.start(t)
				for i := range int32(2) {
					mustSubmit(t, s, s.sequence(i, 100_000, 1, 1))
				}
				time.Sleep(10*step + step/2)
				longest := time.Duration(0)
				for i := range int32(20) {
					submitted := time.Now()
					mustSubmit(t, s, s.sequence(100+i, 2, 1, 1))
					for !s.backend.started(100 + i) {
						time.Sleep(step / 4)
					}
					longest = max(longest, time.Since(submitted))
					time.Sleep(time.Duration(i)*step/3 + 7*step)
				}
				if bound := time.Duration(lookAhead)*step + step/4; longest > bound {
					t.Errorf("a newcomer waited %v, want at most %v", longest, bound)
				}
				if lookAhead > 1 && longest <= step {
					t.Errorf("no newcomer waited longer than %v: nothing was given out ahead", longest)
				}
				stop()
			})
		})
	}
}

// TestLookAheadTakesNobodysTurn has another cell wait: on one executor the turn
// after a batch is that cell's, on two executors the one after the next is.
func TestLookAheadTakesNobodysTurn(t *testing.T) {
	t.Parallel()
	for executors, want := range map[int]int{1: 1, 2: 2} {
		w := makeWorld(t, worldOptions{maxRows: 8, slots: 3, executors: executors, lookAhead: 4})
		for range 3 {
			w.submit(script{lengths: [3]int{9, 9, 2}, failAt: -1})
		}
		w.form(0)
		if got := len(w.rounds[0].flights); got != want {
			t.Errorf("%d executors: %d batches at once while another cell waits, want %d", executors, got, want)
		}
		w.drain()
	}
}

// TestLookAheadLeavesOtherTenantsTheirTurn has another tenant wait, for the
// same cell or for another one.
func TestLookAheadLeavesOtherTenantsTheirTurn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		lengths [3]int // of the other tenant's requests
		want    int
	}{
		{"same cell", [3]int{9, 0, 2}, 4},
		{"other cell", [3]int{0, 9, 2}, 1},
		{"both, and two batches take all of the same", [3]int{9, 9, 2}, 2},
	} {
		w := makeWorld(t, worldOptions{maxRows: 4, slots: 12, executors: 6, lookAhead: 4})
		for range 9 {
			w.submit(script{lengths: [3]int{9, 0, 2}, failAt: -1, tenant: "a"})
		}
		for range 3 {
			w.submit(script{lengths: tc.lengths, failAt: -1, tenant: "b"})
		}
		w.form(0)
		if got := len(w.rounds[0].flights); got != tc.want {
			t.Errorf("%s: %d batches at once while another tenant waits, want %d", tc.name, got, tc.want)
		}
		w.drain()
	}
}
