package cellrt_test

import (
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/cellmq/cellmq/cellrt"
)

var errTest = errors.New("test cause")

// errSuspended is the cause of a suspension.
var errSuspended = errors.New("test suspension")

func TestSchedulerBatchesAcrossSequences(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8, 4, 1)
	for i := range 4 {
		w.submit(script{lengths: [3]int{3 + i, 0, 2}, failAt: -1})
	}
	w.drain()
	st := w.sched.Stats()
	// The longest sequence needs 6 + 2 steps; the others ride along.
	if st.Steps > 6+2+3 || st.Rows != 3+4+5+6+4*2 || st.MaxRows != 4 {
		t.Errorf("%d rows in %d steps, at most %d: sequences were not batched", st.Rows, st.Steps, st.MaxRows)
	}
}

func TestSchedulerHonoursRowLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, 6, 1)
	for range 6 {
		w.submit(script{lengths: [3]int{1, 1, 1}, failAt: -1})
	}
	w.drain()
	for i, want := range []uint64{2, 3, 2} { // six rows at most 4, narrowRows and 4 a step
		if cell := w.sched.Stats().Cells[i]; cell.Rows != 6 || cell.Steps < want {
			t.Errorf("%s ran %d rows in %d steps, want 6 in %d or more", cell.Cell, cell.Rows, cell.Steps, want)
		}
	}
}

func TestSchedulerNewcomerJoinsNextStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8, 2, 1)
	w.submit(script{lengths: [3]int{5, 0, 1}, failAt: -1})
	w.form(0)
	w.submit(script{lengths: [3]int{5, 0, 1}, failAt: -1})
	w.complete(0)
	w.form(0)
	if rows := len(w.rounds[0].flights[0].batch.Rows); rows != 2 {
		t.Errorf("%d rows in the step after a submission, want 2", rows)
	}
	w.complete(0)
	w.drain()
}

func TestSchedulerReusesSlotAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8, 1, 1)
	for range 5 {
		if w.submit(script{lengths: [3]int{1, 0, 1}, failAt: -1}) == nil {
			t.Fatal("no slot")
		}
		if w.submit(script{lengths: [3]int{1, 0, 1}, failAt: -1}) != nil {
			t.Fatal("two sequences with one slot")
		}
		w.drain()
	}
}

func TestSchedulerCancel(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 1)
		s := w.submit(script{lengths: [3]int{2, 2, 2}, failAt: -1})
		w.cancel(s, errTest)
		if s.ends != 1 {
			t.Error("a waiting sequence did not end at once")
		}
		w.cancel(s, errTest)
		w.drain()
	})
	t.Run("in flight on two executors", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 2)
		s := w.submit(script{lengths: [3]int{2, 2, 2}, failAt: -1})
		if !w.form(0) || !w.form(1) {
			t.Fatal("the two directions do not run at the same time")
		}
		w.cancel(s, errTest)
		w.complete(0)
		if free := w.sched.Stats().Models[0].Free; s.ends != 0 || free != 1 {
			t.Errorf("%d ends and %d free slots with a node in flight, want 0 and 1", s.ends, free)
		}
		w.complete(1)
		if s.ends != 1 {
			t.Error("no end after the last node came back")
		}
		w.drain()
	})
	t.Run("never submitted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 1)
		if w.sched.Cancel(cellrt.NewSequence(w.model, &script{}, cellrt.SequenceOptions{}), errTest) {
			t.Error("cancelled a sequence that was never submitted")
		}
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 4, 1)
		for range 4 {
			w.submit(script{lengths: [3]int{2, 0, 2}, failAt: -1})
		}
		for _, s := range w.scripts {
			s.cause = errTest
			w.forget(s)
		}
		w.sched.CancelAll(errTest)
		w.collect()
		w.drain()
	})
}

func TestSchedulerEndings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		script script
		err    error
		reason cellrt.Reason
	}{
		{name: "stopped", script: script{lengths: [3]int{1, 1, 3}, failAt: -1}, reason: cellrt.Stopped},
		{name: "finished in Start", script: script{failAt: -1}, reason: cellrt.Length},
		{name: "finished by the encoder", script: script{lengths: [3]int{1, 0, 0}, failAt: -1}, reason: cellrt.Length},
		{name: "failed", script: script{lengths: [3]int{1, 0, 3}, failAt: 1}, err: cellrt.ErrNumerical},
		{name: "stalled", script: script{lengths: [3]int{1, 1, 0}, failAt: -1, stall: true}, err: cellrt.ErrStalled},
		{name: "stalled in Start", script: script{failAt: -1, stall: true}, err: cellrt.ErrStalled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4, 1, 1)
			s := w.submit(tc.script)
			w.drain()
			if !errors.Is(s.err, tc.err) || s.reason != tc.reason {
				t.Errorf("ended with reason %d and error %v, want %d and %v", s.reason, s.err, tc.reason, tc.err)
			}
		})
	}
}

func TestSchedulerModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, 2, 1)
	s := w.submit(script{lengths: [3]int{1, 0, 1}, failAt: -1})
	if err := w.sched.Remove(w.model); !errors.Is(err, cellrt.ErrBusy) {
		t.Errorf("removing a busy model: %v, want ErrBusy", err)
	}
	w.cancel(s, errTest)
	w.drain()
	if err := w.sched.Remove(w.model); err != nil {
		t.Errorf("removing an idle model: %v", err)
	}
	if err := w.sched.Remove(w.model); !errors.Is(err, cellrt.ErrUnloaded) {
		t.Errorf("removing it again: %v, want ErrUnloaded", err)
	}
	if err := w.sched.Submit(cellrt.NewSequence(w.model, &script{}, cellrt.SequenceOptions{})); !errors.Is(err, cellrt.ErrUnloaded) {
		t.Errorf("submitting to it: %v, want ErrUnloaded", err)
	}
	for _, slots := range []int{0, -1, 1_000_001} {
		if _, err := cellrt.NewModel(w.model.Program(), slots); err == nil {
			t.Errorf("a model with %d slots", slots)
		}
	}
}

func TestSchedulerPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, 2, 1)
	s := w.submit(script{lengths: [3]int{1, 0, 1}, failAt: -1})
	foreign := newWorld(t, 4, 1, 1)
	for name, f := range map[string]func(){
		"submitted twice": func() { _ = w.sched.Submit(s.seq) },
		"foreign cell": func() {
			_ = w.sched.Submit(cellrt.NewSequence(w.model, &script{world: foreign, lengths: [3]int{1, 0, 0}}, cellrt.SequenceOptions{}))
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestSchedulerDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	m, s := endless(t, 16)
	var b cellrt.Batch
	turn := func() {
		s.Next(0, &b)
		s.Complete(&b, len(b.Rows))
		s.Clear()
	}
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("%g allocations a step, want none", n)
	}
	if free := s.Stats().Models[0].Free; free != 0 || m.Slots() != 16 {
		t.Errorf("%d of %d slots free, want a full house", free, m.Slots())
	}
}

// onceGraph runs one node.
type onceGraph struct{ cell *cellrt.Cell }

func (g onceGraph) Start(f *cellrt.Frontier) { f.Push(cellrt.Node{Cell: g.cell}) }
func (g onceGraph) Advance(_ cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	f.Emit(cellrt.Token{})
	f.Finish(cellrt.Stopped)
}

func TestSchedulerForgetsEndedSequences(t *testing.T) {
	t.Parallel()
	p := scriptProgram(t)
	m, err := cellrt.NewModel(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 4, Executors: 1})
	s.Add(m)
	var b cellrt.Batch
	pointers := make([]weak.Pointer[cellrt.Sequence], 2)
	for i := range pointers {
		q := cellrt.NewSequence(m, onceGraph{p.Cells[0]}, cellrt.SequenceOptions{})
		pointers[i] = weak.Make(q)
		if err := s.Submit(q); err != nil {
			t.Fatal(err)
		}
	}
	s.Next(0, &b)
	s.Complete(&b, len(b.Rows))
	s.Clear()
	runtime.GC()
	for i, q := range pointers {
		if q.Value() != nil {
			t.Errorf("sequence %d is still referred to after its end", i)
		}
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(&b)
}

// endlessGraph emits a token each step and never ends.
type endlessGraph struct{ cell *cellrt.Cell }

func (g endlessGraph) Start(f *cellrt.Frontier) { f.Push(cellrt.Node{Cell: g.cell}) }
func (g endlessGraph) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb})
	f.Push(n)
}

// endless returns a scheduler full of sequences that never end.
func endless(tb testing.TB, slots int) (*cellrt.Model, *cellrt.Scheduler) {
	tb.Helper()
	p := scriptProgram(tb)
	m, err := cellrt.NewModel(p, slots)
	if err != nil {
		tb.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: slots, Executors: 1})
	s.Add(m)
	for range slots {
		if err := s.Submit(cellrt.NewSequence(m, endlessGraph{p.Cells[2]}, cellrt.SequenceOptions{})); err != nil {
			tb.Fatal(err)
		}
	}
	return m, s
}

func BenchmarkScheduler(b *testing.B) {
	for _, slots := range []struct {
		name  string
		count int
	}{{"rows=1", 1}, {"rows=64", 64}} {
		b.Run(slots.name, func(b *testing.B) {
			_, s := endless(b, slots.count)
			var batch cellrt.Batch
			b.ReportAllocs()
			for b.Loop() {
				s.Next(0, &batch)
				s.Complete(&batch, len(batch.Rows))
				s.Clear()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*slots.count), "ns/row")
		})
	}
}
