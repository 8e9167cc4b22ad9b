package cellrt_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

// stage is a runtime on a fake backend with a model.
type stage struct {
	*cellrt.Runtime
	sink    *recorder
	backend *fakeBackend
	model   *cellrt.Model
}

func newStage(tb testing.TB, cfg cellrt.Config, slots int) *stage {
	tb.Helper()
	sink := newRecorder(tb)
	backend := newFakeBackend(tb, sink)
	r, err := cellrt.New(cfg, backend, sink)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := r.Load(scriptProgram(tb), slots)
	if err != nil {
		tb.Fatal(err)
	}
	return &stage{Runtime: r, sink: sink, backend: backend, model: m}
}

// sequence returns a sequence with the given number and chain lengths.
func (s *stage) sequence(number int32, lengths ...int32) *cellrt.Sequence {
	g := &walk{cells: s.model.Program().Cells, number: number, lengths: [3]int32(lengths)}
	return cellrt.NewSequence(s.model, g, cellrt.SequenceOptions{Owner: number})
}

// start runs the runtime until the returned function is called, which waits
// for its end.
func (s *stage) start(tb testing.TB) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	}
}

func TestRuntimeServesMany(t *testing.T) {
	t.Parallel()
	for _, executors := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("executors=%d", executors), func(t *testing.T) {
			t.Parallel()
			const clients, each, slots = 4, 60, 7
			s := newStage(t, cellrt.Config{MaxRows: 3, Executors: executors}, slots)
			credit := make(chan struct{}, slots) // one for each slot in use
			var ended sync.WaitGroup
			ended.Add(clients * each)
			s.sink.onEnd = func(int32, cellrt.Result) {
				<-credit // never blocks: the sequence has put one there
				ended.Done()
			}
			stop := s.start(t)
			var submitters sync.WaitGroup
			for client := range int32(clients) {
				submitters.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(client)))
					for i := range int32(each) {
						credit <- struct{}{}
						q := s.sequence(client*each+i, 1+r.Int32N(6), 1+r.Int32N(6), 1+r.Int32N(9))
						if err := s.Submit(q); err != nil {
							t.Errorf("submit with a slot free: %v", err)
						}
						if i%7 == 0 {
							s.Cancel(q, errTest)
						}
					}
				})
			}
			submitters.Wait()
			ended.Wait()
			stop()
			st := s.Stats()
			if st.Running != 0 || st.Submitted != clients*each || st.Submitted != st.Finished+st.Cancelled || st.Models[0].Free != slots {
				t.Errorf("inconsistent counters: %+v", st)
			}
			if st.PaddedRows != st.Steps {
				t.Errorf("%d padded rows in %d steps of one padded row each", st.PaddedRows, st.Steps)
			}
			if int(st.Rows) != len(s.backend.ran) {
				t.Errorf("%d rows counted, %d run", st.Rows, len(s.backend.ran))
			}
		})
	}
}

func TestRuntimeCancelStorm(t *testing.T) {
	t.Parallel()
	for _, executors := range []int{1, 2} {
		t.Run(fmt.Sprintf("executors=%d", executors), func(t *testing.T) {
			t.Parallel()
			const slots, rounds = 32, 20
			s := newStage(t, cellrt.Config{MaxRows: 8, Executors: executors}, slots)
			var ended sync.WaitGroup
			s.sink.onEnd = func(int32, cellrt.Result) { ended.Done() }
			stop := s.start(t)
			for round := range int32(rounds) {
				var storm sync.WaitGroup
				for i := range int32(slots) {
					ended.Add(1)
					q := s.sequence(round*slots+i, 5, 5, math.MaxInt32) // only a cancellation ends it
					if err := s.Submit(q); err != nil {
						t.Fatal(err)
					}
					for range 2 {
						storm.Go(func() { s.Cancel(q, errTest) })
					}
				}
				storm.Wait()
				ended.Wait()
			}
			stop()
			if st := s.Stats(); st.Cancelled != slots*rounds || st.Models[0].Free != slots || st.Ready != 0 {
				t.Errorf("after the storm: %+v", st)
			}
			for number := range int32(slots * rounds) {
				s.sink.expect(number, errTest)
			}
		})
	}
}

// step is how long a step takes in the tests that run in a bubble.
const step = time.Millisecond

func TestRuntimeNewcomerJoinsNextStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var steps []cellrt.StepTrace
		cfg := cellrt.Config{Trace: cellrt.Trace{Step: func(s cellrt.StepTrace) { steps = append(steps, s) }}}
		s := newStage(t, cfg, 4)
		s.backend.delay = step
		stop := s.start(t)
		mustSubmit(t, s, s.sequence(1, 1, 1, 10))
		time.Sleep(2*step + step/2) // in the first decoder step
		before := time.Now()
		mustSubmit(t, s, s.sequence(2, 1, 1, 10))
		if d := time.Since(before); d != 0 {
			t.Errorf("Submit waited %v for a running step", d)
		}
		time.Sleep(2*step + step/4)
		synctest.Wait()
		// Both encoder directions of the newcomer ran, in turn, at once.
		if len(steps) != 4 || steps[3].Cell != "backward" || steps[3].Duration != step || steps[3].Program != "script" {
			t.Errorf("steps %+v", steps)
		}
		stop()
	})
}

func TestRuntimeCancelEndsWithinStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{}, 4)
		s.backend.delay = step
		var end time.Time
		s.sink.onEnd = func(int32, cellrt.Result) { end = time.Now() }
		stop := s.start(t)
		q := s.sequence(1, 1, 1, 1000)
		mustSubmit(t, s, q)
		time.Sleep(10*step + step/2)
		cancelled := time.Now()
		if !s.Cancel(q, errTest) || s.Cancel(q, cellrt.ErrStopped) {
			t.Error("the first Cancel and only the first has an effect")
		}
		if d := time.Since(cancelled); d != 0 {
			t.Errorf("Cancel waited %v for a running step", d)
		}
		s.sink.mu.Lock()
		tokens := s.sink.tokens[1]
		s.sink.mu.Unlock()
		time.Sleep(step)
		synctest.Wait()
		s.sink.expect(1, errTest)
		if d := end.Sub(cancelled); d > step {
			t.Errorf("ended %v after Cancel, want within a step of %v", d, step)
		}
		if got := s.sink.tokens[1]; got != tokens {
			t.Errorf("%d tokens came after Cancel", got-tokens)
		}
		steps := s.Stats().Steps
		time.Sleep(100 * step)
		if got := s.Stats().Steps; got != steps {
			t.Errorf("%d steps with nothing to do", got-steps)
		}
		stop()
	})
}

func TestRuntimeExecutorsRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{Executors: 2}, 4)
		s.backend.delay = step
		began := time.Now() // does not move before the first step
		var took time.Duration
		s.sink.onEnd = func(int32, cellrt.Result) { took = time.Since(began) }
		stop := s.start(t)
		synctest.Wait() // both executors sleep: one Submit has to wake both
		mustSubmit(t, s, s.sequence(1, 20, 20, 5))
		time.Sleep(100 * step)
		synctest.Wait()
		if took != 25*step {
			t.Errorf("took %v, want %v", took, 25*step)
		}
		stop()
	})
}

func TestRuntimeStopsWithinStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{Executors: 2}, 4)
		s.backend.delay = step
		stop := s.start(t)
		for i := range int32(4) {
			mustSubmit(t, s, s.sequence(i, 10, 10, 10))
		}
		time.Sleep(step / 2)
		before := time.Now()
		stop()
		if d := time.Since(before); d > step {
			t.Errorf("stopping took %v, want at most a step", d)
		}
		for i := range int32(4) {
			s.sink.expect(i, cellrt.ErrStopped)
		}
	})
}

func mustSubmit(t *testing.T, s *stage, q *cellrt.Sequence) {
	t.Helper()
	if err := s.Submit(q); err != nil {
		t.Fatal(err)
	}
}

func TestRuntimeErrors(t *testing.T) {
	t.Parallel()
	s := newStage(t, cellrt.Config{}, 1)
	if _, err := s.Load(s.model.Program(), 0); err == nil {
		t.Error("loaded a model with no slots")
	}
	if _, err := s.Load(s.model.Program(), 13); !errors.Is(err, errTest) {
		t.Errorf("load refused by the backend: %v", err)
	}
	first, second := s.sequence(1, 1, 1, 3), s.sequence(2, 1, 1, 3)
	mustSubmit(t, s, first) // before Run
	if err := s.Submit(second); !errors.Is(err, cellrt.ErrNoSlot) {
		t.Errorf("submit without a slot: %v", err)
	}
	if err := s.Unload(s.model); !errors.Is(err, cellrt.ErrBusy) {
		t.Errorf("unload while busy: %v", err)
	}
	ended := make(chan struct{}, 2)
	s.sink.onEnd = func(int32, cellrt.Result) { ended <- struct{}{} }
	stop := s.start(t)
	<-ended
	mustSubmit(t, s, second) // the same one again
	<-ended
	other, err := s.Load(scriptProgram(t), 2) // while running
	if err != nil {
		t.Fatal(err)
	}
	if got := len(s.Stats().Models); got != 2 {
		t.Errorf("%d models loaded, want 2", got)
	}
	if err := s.Unload(other); err != nil {
		t.Errorf("unload: %v", err)
	}
	if err := s.Submit(cellrt.NewSequence(other, &walk{}, cellrt.SequenceOptions{Owner: int32(3)})); !errors.Is(err, cellrt.ErrUnloaded) {
		t.Errorf("submit to an unloaded model: %v", err)
	}
	stop()
	s.sink.expect(1, nil)
	s.sink.expect(2, nil)
	if err := s.Run(t.Context()); !errors.Is(err, cellrt.ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	if err := s.Submit(s.sequence(4, 1, 1, 1)); !errors.Is(err, cellrt.ErrStopped) {
		t.Errorf("submit after the end: %v", err)
	}
	if _, err := s.Load(scriptProgram(t), 1); !errors.Is(err, cellrt.ErrStopped) {
		t.Errorf("load after the end: %v", err)
	}
	if s.Cancel(second, errTest) {
		t.Error("cancelled a sequence that had ended")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if err := (cellrt.Config{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, cfg := range []cellrt.Config{{MaxRows: -1}, {MaxRows: 4097}, {Executors: -1}, {Executors: 257}} {
		if _, err := cellrt.New(cfg, newFakeBackend(t, nil), newRecorder(t)); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}
