package cellrt_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

func TestStatsOfExecutorsAndSequences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{Threads: 3}, 8)
		s.backend.delay = step
		stop := s.start(t)
		long, short := s.sequence(1, 0, 10, 1), s.sequence(2, 0, 4, 1)
		mustSubmit(t, s, long)
		mustSubmit(t, s, short)
		time.Sleep(100 * step)
		synctest.Wait()
		st := s.Stats()
		want := time.Duration(st.Steps) * step
		if len(st.Executors) != 1 || st.Executors[0] != (cellrt.ExecutorStats{Busy: want, Threads: 3}) {
			t.Errorf("executors %+v after %d steps of %v", st.Executors, st.Steps, step)
		}
		a, b := long.Work(), short.Work()
		if a.Nodes != 11 || b.Nodes != 5 || a.Steps != 11 || b.Steps != 5 || a.Busy != 11*step || b.Busy != 5*step {
			t.Errorf("work %+v and %+v", a, b)
		}
		if a.Nodes+b.Nodes != st.Rows || b.Rows <= b.Steps || b.Rows > 2*b.Steps {
			t.Errorf("work %+v and %+v of %d rows", a, b, st.Rows)
		}
		if err := s.Reshape(cellrt.Shape{Executors: 2, Threads: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.Reshape(cellrt.Shape{Executors: 1, Threads: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st = s.Stats(); len(st.Executors) != 2 || st.Executors[0].Busy != want || st.Executors[1] != (cellrt.ExecutorStats{}) {
			t.Errorf("executors %+v after another shape", st.Executors)
		}
		stop()
	})
}

func TestStatsOfEndingSequences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{}, 4)
		s.backend.delay = step
		stop := s.start(t)
		q := s.sequence(1, 0, 10, 1)
		mustSubmit(t, s, q)
		mustSubmit(t, s, s.sequence(2, 0, 10, 1))
		time.Sleep(step / 2)
		s.Cancel(q, errTest) // within a step
		if m := s.Stats().Models[0]; m.Slots != 4 || m.Free != 2 || m.Ending != 1 {
			t.Errorf("within the step: %+v", m)
		}
		time.Sleep(step)
		if m := s.Stats().Models[0]; m.Free != 3 || m.Ending != 0 {
			t.Errorf("after the step: %+v", m)
		}
		time.Sleep(20 * step)
		stop()
	})
}

func TestTiersHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range cellrt.Tiers {
		name := cellrt.Tier(i).String()
		if name == "" || name == "unknown" || seen[name] {
			t.Errorf("tier %d is called %q", i, name)
		}
		seen[name] = true
	}
	if got := cellrt.Tier(cellrt.Tiers).String(); got != "unknown" {
		t.Errorf("no tier is called %q", got)
	}
}
