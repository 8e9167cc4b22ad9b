package cpu

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tally counts how often each of its parts is done, and lets a part do
// something.
type tally struct {
	counts []atomic.Int32
	during func(thread, part int)
}

func (w *tally) part(thread, i, parts int) {
	if parts != len(w.counts) {
		panic("the parts of another piece of work")
	}
	w.counts[i].Add(1)
	if w.during != nil {
		w.during(thread, i)
	}
}

// teams returns teams with several habits, by name.
func teams() map[string]*team {
	return map[string]*team{"parking at once": {}, "spinning": {spin: 50 * time.Microsecond}}
}

func TestTeamDoesEachPartOnce(t *testing.T) {
	t.Parallel()
	for name, team := range teams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, threads := range []int{1, 2, 5} {
				team.resize(threads)
				for round := range 300 {
					team.begin()
					for piece := range 4 {
						w := &tally{counts: make([]atomic.Int32, 1+(round*7+piece)%40)}
						team.do(w, len(w.counts))
						for i := range w.counts {
							if n := w.counts[i].Load(); n != 1 {
								t.Fatalf("%d threads: part %d of %d done %d times when do returned", threads, i, len(w.counts), n)
							}
						}
					}
					team.end()
				}
				team.resize(1)
			}
		})
	}
}

// TestTeamHelps has one part wait for another one, which a single thread would
// never come to.
func TestTeamHelps(t *testing.T) {
	t.Parallel()
	for name, team := range teams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			team.resize(2)
			defer team.resize(1)
			for range 20 {
				second := make(chan struct{})
				w := &tally{counts: make([]atomic.Int32, 2), during: func(_, part int) {
					if part == 0 {
						<-second
						return
					}
					close(second)
				}}
				team.begin()
				team.do(w, 2)
				team.end()
			}
		})
	}
}

// TestTeamWaits has the helper hold its part until the caller has given up
// spinning.
func TestTeamWaits(t *testing.T) {
	t.Parallel()
	for name, team := range teams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			team.resize(2)
			defer team.resize(1)
			for range 20 {
				begun := make(chan struct{})
				w := &tally{counts: make([]atomic.Int32, 2), during: func(thread, _ int) {
					if thread == 0 {
						<-begun
						return
					}
					close(begun)
					for !team.waiting.Load() {
						runtime.Gosched()
					}
				}}
				team.begin()
				team.do(w, 2)
				team.end()
				if w.counts[0].Load() != 1 || w.counts[1].Load() != 1 {
					t.Fatal("do returned before its parts were done")
				}
			}
		})
	}
}

func TestTeamNumbersThreads(t *testing.T) {
	t.Parallel()
	const threads = 3
	team := team{spin: time.Millisecond}
	team.resize(threads)
	defer team.resize(1)
	var busy [threads]atomic.Bool
	w := &tally{counts: make([]atomic.Int32, 30), during: func(thread, _ int) {
		if !busy[thread].CompareAndSwap(false, true) {
			t.Errorf("two parts at a time on thread %d", thread)
		}
		runtime.Gosched()
		busy[thread].Store(false)
	}}
	team.begin()
	for range 50 {
		team.do(w, len(w.counts))
	}
	team.end()
}

func TestTeamResizes(t *testing.T) {
	t.Parallel()
	for name, team := range teams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, threads := range []int{1, 4, 2, 2, 7, 1, 3, 1} {
				team.resize(threads)
				if got := team.threads(); got != threads {
					t.Errorf("%d threads, want %d", got, threads)
				}
				w := &tally{counts: make([]atomic.Int32, 9)}
				team.begin()
				team.do(w, 9)
				team.end()
			}
			team.stopped.Wait() // no helper is left
		})
	}
}

// TestTeamResizeWaits has helpers look for work while their number changes: the
// old ones must have given up when the new ones start.
func TestTeamResizeWaits(t *testing.T) {
	t.Parallel()
	team := team{spin: 20 * time.Millisecond}
	team.resize(3)
	old := slices.Clone(team.helpers)
	team.begin()
	team.end()
	team.resize(2)
	for _, h := range old {
		if !h.parked.Load() { // the last thing a helper does
			t.Errorf("helper %d was still awake when resize returned", h.number)
		}
	}
	team.resize(1)
}

// TestPatienceEnds lets a thread spin where no time passes.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 100 * time.Microsecond
		var p patience
		looks := int64(1)
		for p.look(limit) && looks < 2*limit.Nanoseconds() {
			looks++
		}
		if least := limit.Nanoseconds(); looks < least || looks > least+spins {
			t.Errorf("patience ended after %d looks, want %d or a few more", looks, least)
		}
	})
}

func TestTeamFallsAsleep(t *testing.T) {
	t.Parallel()
	for name, team := range teams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			team.resize(3)
			defer team.resize(1)
			team.begin()
			if !team.awake() {
				t.Error("nobody is awake in a team that has begun")
			}
			team.end()
			for team.awake() { // a helper that spun for ever would keep the test here
				runtime.Gosched()
			}
		})
	}
}

func TestSplitDecides(t *testing.T) {
	t.Parallel()
	const least = 1000
	for _, tc := range []struct {
		name   string
		work   int64
		rows   int
		factor int
		awake  bool
		recent bool
		want   bool
	}{
		{name: "small, parked", work: 100, rows: 9, factor: 1},
		{name: "small, awake", work: 100, rows: 9, factor: 1, awake: true},
		{name: "medium, parked", work: 100, rows: 10, factor: 1},
		{name: "medium, awake", work: 100, rows: 10, factor: 1, awake: true, want: true},
		{name: "medium, after another", work: 100, rows: 10, factor: 1, recent: true, want: true},
		{name: "large, parked", work: 100, rows: 150, factor: 1, want: true},
		{name: "one row counts as a few", work: 15 * least / fewRows, rows: 1, factor: 1, want: true},
		{name: "medium, but slow", work: 100, rows: 10, factor: 15, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := &helper{}
			h.parked.Store(!tc.awake)
			team := &team{spin: time.Hour, helpers: []*helper{h}}
			s := split{least: least, factor: tc.factor}
			if tc.recent {
				s.last = time.Now()
			}
			if s.decide(tc.work, tc.rows, team); s.shared != tc.want {
				t.Errorf("shared %t, want %t", s.shared, tc.want)
			}
		})
	}
}

// BenchmarkTeam measures what sharing costs: eight empty parts, when helpers
// are awake, and when they have to be woken, for which a part waits.
func BenchmarkTeam(b *testing.B) {
	b.Run("awake", func(b *testing.B) {
		team := team{spin: time.Second}
		team.resize(2)
		defer team.resize(1)
		w := &tally{counts: make([]atomic.Int32, 8)}
		for b.Loop() {
			team.begin()
			team.do(w, 8)
			team.end()
		}
	})
	b.Run("parked", func(b *testing.B) {
		team := team{spin: 0}
		team.resize(2)
		defer team.resize(1)
		var begun atomic.Bool
		w := &tally{counts: make([]atomic.Int32, 2), during: func(thread, _ int) {
			for thread == 0 && !begun.Load() {
				continue
			}
			begun.Store(true)
		}}
		for b.Loop() {
			for team.awake() {
				runtime.Gosched()
			}
			begun.Store(false)
			team.begin()
			team.do(w, 2)
			team.end()
		}
	})
	b.Run("wake", func(b *testing.B) {
		team := team{spin: 0}
		team.resize(2)
		defer team.resize(1)
		for b.Loop() {
			for team.awake() {
				runtime.Gosched()
			}
			team.begin()
			team.end()
		}
	})
}
