package cellrt_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// TestBarrierDelaysOnlyItsSequence holds back one direction of a sequence until
// the other has come back, and runs others meanwhile.
func TestBarrierDelaysOnlyItsSequence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8, 4, 2)
	s := w.submit(script{lengths: [3]int{3, 3, 2}, failAt: -1, every: 1})
	if !w.form(0) || !w.form(1) {
		t.Fatal("the two directions do not run at the same time")
	}
	w.complete(0) // the checkpoint is due, but the other direction runs
	if !s.due || s.latest != nil || w.free(nil) != 0 || w.sched.Ready() != 1 {
		t.Fatalf("due %t, checkpoint %v, %d of %d ready nodes free", s.due, s.latest, w.free(nil), w.sched.Ready())
	}
	other := w.submit(script{lengths: [3]int{2, 0, 2}, failAt: -1, every: 0, tenant: "a"})
	for other.ends == 0 {
		if !w.form(0) || !w.complete(0) {
			t.Fatal("another sequence waits at the barrier")
		}
	}
	w.complete(1)
	if s.due || s.latest == nil || s.latest.Nodes != 2 {
		t.Fatalf("due %t, checkpoint %+v, want one of 2 nodes", s.due, s.latest)
	}
	w.drain()
	if s.err != nil || w.sched.Stats().Checkpoints == 0 {
		t.Errorf("ended with %v", s.err)
	}
}

// TestCancelDuringCheckpoint cancels sequences at the barrier.
func TestCancelDuringCheckpoint(t *testing.T) {
	t.Parallel()
	for _, suspended := range []bool{false, true} {
		w := newWorld(t, 8, 2, 2)
		s := w.submit(script{lengths: [3]int{3, 3, 2}, failAt: -1, every: 1})
		if !w.form(0) || !w.form(1) {
			t.Fatal("the two directions do not run at the same time")
		}
		if suspended {
			w.suspend(s, errSuspended)
			w.suspend(s, errSuspended) // to no effect
		}
		w.complete(0)
		w.cancel(s, errTest)
		if w.sched.Ready() != 0 || s.ends != 0 {
			t.Errorf("%d nodes ready after the cancellation, %d ends", w.sched.Ready(), s.ends)
		}
		w.complete(1)
		if s.ends != 1 || !errors.Is(s.err, errTest) || s.latest != nil {
			t.Errorf("ended with %v, checkpoint %v", s.err, s.latest)
		}
		w.drain()
	}
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	t.Run("with nodes in flight", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 2)
		s := w.submit(script{lengths: [3]int{1, 2, 2}, failAt: -1, every: 100})
		w.form(0)
		w.form(1)
		w.suspend(s, errSuspended)
		if w.complete(0); s.ends != 0 || w.form(0) {
			t.Error("a suspended sequence ended, or went on, with a node in flight")
		}
		if w.complete(1); s.ends != 1 || s.latest == nil {
			t.Fatal("no end after the last node came back")
		}
		resumed := w.resume(s)
		w.drain()
		if resumed.err != nil || resumed.seen != 2 {
			t.Errorf("ended with %v after %d tokens", resumed.err, resumed.seen)
		}
	})
	t.Run("at its last node", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 1)
		s := w.submit(script{lengths: [3]int{0, 0, 1}, failAt: -1, every: 100})
		w.form(0)
		w.suspend(s, errSuspended)
		if w.complete(0); s.ends != 1 || s.err != nil || s.reason != cellrt.Stopped {
			t.Errorf("ended with %v", s.err)
		}
	})
	t.Run("without checkpoints", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 1)
		s := w.submit(script{lengths: [3]int{0, 0, 2}, failAt: -1})
		w.form(0)
		w.suspend(s, errSuspended)
		if w.complete(0); s.ends != 1 || !errors.Is(s.err, errSuspended) || s.seen != 0 {
			t.Errorf("ended with %v after %d tokens", s.err, s.seen)
		}
	})
	t.Run("never submitted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, 8, 2, 1)
		if w.sched.Suspend(cellrt.NewSequence(w.model, &script{}, cellrt.SequenceOptions{CheckpointEvery: 1}), errTest) {
			t.Error("suspended a sequence that was never submitted")
		}
	})
}

// keeper counts to a number by a node at a time. Its progress is how far it has
// come, its state all that the model has.
type keeper struct {
	program *cellrt.Program
	left    int
	refuses bool // it cannot be saved
	light   bool // it has no state
}

func (g *keeper) Start(f *cellrt.Frontier) { f.Push(cellrt.Node{Cell: g.program.Cells[0]}) }

func (g *keeper) Advance(_ cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	if g.left--; g.left == 0 {
		f.Finish(cellrt.Stopped)
		return
	}
	g.Start(f)
}

func (g *keeper) Record() {}

func (g *keeper) Save(dst []byte, spans []cellrt.Span) ([]byte, []cellrt.Span, bool) {
	for i := range g.program.Layout.Fields() {
		if g.light {
			break
		}
		spans = append(spans, cellrt.Span{Field: cellrt.FieldID(i), To: g.program.Layout.Field(cellrt.FieldID(i)).Count})
	}
	return append(dst, byte(g.left)), spans, !g.refuses
}

// saver is a sink that keeps results.
type saver struct {
	checkpoints []*cellrt.Checkpoint
	last        cellrt.Result
}

func (c *saver) Deliver(results []cellrt.Result) {
	for _, r := range results {
		if r.Checkpoint != nil {
			c.checkpoints = append(c.checkpoints, r.Checkpoint)
		}
		c.last = r
	}
}

// TestCheckpointsThatAreNotMade suspends sequences that have no checkpoint, in
// a runtime that has not begun to run.
func TestCheckpointsThatAreNotMade(t *testing.T) {
	t.Parallel()
	const fits = 1 + 4*2*9 // a byte, and h and c of 9 values
	for _, tt := range []struct {
		name    string
		backend cellrt.Backend
		refuses bool
		limit   int
		want    bool
	}{
		{"as large as allowed", cpu.New(cpu.Config{}), false, fits, true},
		{"too large", cpu.New(cpu.Config{}), false, fits - 1, false},
		{"default limit", cpu.New(cpu.Config{}), false, 0, true},
		{"cannot be saved", cpu.New(cpu.Config{}), true, 0, false},
		{"no access to states", idleBackend{}, false, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sink := &saver{}
			r, err := cellrt.New(cellrt.Config{}, tt.backend, sink)
			if err != nil {
				t.Fatal(err)
			}
			p := babbler(t, 11, 5, 9)
			m, err := r.Load(p, 1)
			if err != nil {
				t.Fatal(err)
			}
			g := &keeper{program: p, left: 3, refuses: tt.refuses}
			s := cellrt.NewSequence(m, g, cellrt.SequenceOptions{CheckpointEvery: 2, CheckpointBytes: tt.limit})
			if err := r.Submit(s); err != nil {
				t.Fatal(err)
			}
			if !r.Suspend(s, errSuspended) || !sink.last.Done || !errors.Is(sink.last.Err, errSuspended) {
				t.Fatalf("the end is %+v", sink.last)
			}
			if got := len(sink.checkpoints) == 1; got != tt.want {
				t.Errorf("%d checkpoints, want one: %t", len(sink.checkpoints), tt.want)
			}
			if st := r.Stats(); st.Cancelled != 1 || st.Running != 0 || st.Checkpoints != uint64(len(sink.checkpoints)) {
				t.Errorf("stats are %+v", st)
			}
		})
	}
}

// TestLastResultHasNoOldCheckpoint lets a sequence end before the result with
// its checkpoint was taken.
func TestLastResultHasNoOldCheckpoint(t *testing.T) {
	t.Parallel()
	p := scriptProgram(t)
	m, err := cellrt.NewModel(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 1, Executors: 1})
	s.Add(m)
	if err := s.Submit(cellrt.NewSequence(m, &keeper{program: p, left: 2, light: true}, cellrt.SequenceOptions{CheckpointEvery: 1})); err != nil {
		t.Fatal(err)
	}
	var b cellrt.Batch
	for _, done := range []bool{false, true} {
		s.Next(0, &b)
		s.Complete(&b, 1)
		if r := s.Results(); len(r) != 1 || r[0].Done != done || (r[0].Checkpoint == nil) != done {
			t.Fatalf("results %+v", r)
		}
	}
}

// TestSubmitRestoresState moves a state from one slot to another and refuses
// checkpoints that do not fit.
func TestSubmitRestoresState(t *testing.T) {
	t.Parallel()
	sink := &saver{}
	r, err := cellrt.New(cellrt.Config{}, cpu.New(cpu.Config{}), sink)
	if err != nil {
		t.Fatal(err)
	}
	p := babbler(t, 11, 5, 9)
	m, err := r.Load(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 9)
	for i := range values {
		values[i] = float32(i) + 0.5
	}
	submit := func(c *cellrt.Checkpoint) (*cellrt.Sequence, error) {
		s := cellrt.NewSequence(m, &keeper{program: p}, cellrt.SequenceOptions{CheckpointEvery: 1, From: c})
		return s, r.Submit(s)
	}
	for name, c := range map[string]*cellrt.Checkpoint{
		"no such field":    {Spans: []cellrt.Span{{Field: 2, To: 1}}, State: values},
		"negative field":   {Spans: []cellrt.Span{{Field: -1, To: 1}}, State: values},
		"no such entry":    {Spans: []cellrt.Span{{Field: 1, To: 2}}, State: slices.Concat(values, values)},
		"entry before":     {Spans: []cellrt.Span{{Field: 1, From: -1, To: 0}}, State: values},
		"backwards":        {Spans: []cellrt.Span{{Field: 1, From: 1, To: 0}}},
		"too few values":   {Spans: []cellrt.Span{{Field: 1, To: 1}}, State: values[:8]},
		"too many values":  {State: values},
		"span and a value": {Spans: []cellrt.Span{{Field: 0, To: 1}}, State: slices.Concat(values, values[:1])},
	} {
		if _, err := submit(c); !errors.Is(err, cellrt.ErrCheckpoint) {
			t.Errorf("%s: %v, want %v", name, err, cellrt.ErrCheckpoint)
		}
	}
	if st := r.Stats(); st.Submitted != 0 || st.Models[0].Free != 2 {
		t.Fatalf("refusals left %+v", st)
	}
	if _, err := submit(nil); err != nil { // takes the first slot
		t.Fatal(err)
	}
	s, err := submit(&cellrt.Checkpoint{Spans: []cellrt.Span{{Field: 1, To: 1}}, State: values, Nodes: 7})
	if err != nil {
		t.Fatal(err)
	}
	r.Suspend(s, errSuspended)
	if len(sink.checkpoints) != 1 {
		t.Fatalf("%d checkpoints", len(sink.checkpoints))
	}
	if c := sink.checkpoints[0]; c.Nodes != 7 || !slices.Equal(c.State, slices.Concat(make([]float32, 9), values)) {
		t.Errorf("checkpoint %+v", c)
	}
}

// BenchmarkCheckpoints is what a step of one node costs the scheduler, with the
// state of a small model: 5 KiB.
func BenchmarkCheckpoints(b *testing.B) {
	for _, every := range []int{0, 256, 1} {
		b.Run(fmt.Sprint("every ", every), func(b *testing.B) {
			r, err := cellrt.New(cellrt.Config{}, cpu.New(cpu.Config{}), &saver{})
			if err != nil {
				b.Fatal(err)
			}
			p := babbler(b, 11, 5, 640)
			m, err := r.Load(p, 1)
			if err != nil {
				b.Fatal(err)
			}
			s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: 1, Executors: 1})
			s.Add(m)
			if err := s.Submit(cellrt.NewSequence(m, &keeper{program: p}, cellrt.SequenceOptions{CheckpointEvery: every})); err != nil {
				b.Fatal(err)
			}
			var batch cellrt.Batch
			for b.Loop() {
				s.Next(0, &batch)
				s.Complete(&batch, 1)
				s.Clear()
			}
		})
	}
}

// TestBarrierKeepsShares has two tenants with more work than there is compute,
// one of them with a barrier after each node, and compares what they get.
func TestBarrierKeepsShares(t *testing.T) {
	t.Parallel()
	for _, lookAhead := range []int{1, 4} {
		w := makeWorld(t, worldOptions{maxRows: 4, slots: 24, executors: 2, lookAhead: lookAhead})
		for i := range 24 {
			tenant := []string{"often", "never"}[i%2]
			w.submit(script{lengths: [3]int{100, 100, 1}, failAt: -1, tenant: tenant, every: (i + 1) % 2})
		}
		rows := map[string]int{}
		for total := 0; total < 2000; {
			for executor := range 2 {
				if w.form(executor) {
					for _, f := range w.rounds[executor].flights {
						for _, s := range f.scripts {
							rows[s.tenant]++
							total++
						}
					}
				}
			}
			for executor := range 2 {
				for w.complete(executor) {
				}
			}
		}
		if share := float64(rows["often"]) / float64(rows["often"]+rows["never"]); share < 0.45 || share > 0.55 {
			t.Errorf("look-ahead %d: a share of %.2f with checkpoints, want a half", lookAhead, share)
		} else {
			t.Logf("look-ahead %d: a share of %.3f with checkpoints, %d of them", lookAhead, share, w.tally.saves)
		}
	}
}
