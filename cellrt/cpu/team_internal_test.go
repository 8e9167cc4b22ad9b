package cpu

import (
	"sync/atomic"
	"testing"
)

// tally counts how often each of its parts is done, and lets a part do
// something.
type tally struct {
	counts []atomic.Int32
	during func(part int)
}

func (w *tally) part(_, i, parts int) {
	if parts != len(w.counts) {
		panic("the parts of another piece of work")
	}
	w.counts[i].Add(1)
	if w.during != nil {
		w.during(i)
	}
}

func TestTeamDoesEachPartOnce(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{1, 2, 5} {
		var team team
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
}

// TestTeamHelps has one part wait for another one, which a single thread would
// never come to.
func TestTeamHelps(t *testing.T) {
	t.Parallel()
	var team team
	team.resize(2)
	defer team.resize(1)
	for range 20 {
		second := make(chan struct{})
		w := &tally{counts: make([]atomic.Int32, 2), during: func(part int) {
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
}

func TestTeamResizes(t *testing.T) {
	t.Parallel()
	var team team
	for _, threads := range []int{1, 4, 2, 2, 7, 1, 3, 1} {
		team.resize(threads)
		if got := len(team.helpers) + 1; got != threads {
			t.Errorf("%d threads, want %d", got, threads)
		}
		w := &tally{counts: make([]atomic.Int32, 9)}
		team.begin()
		team.do(w, 9)
		team.end()
	}
	team.stopped.Wait() // no helper is left
}
