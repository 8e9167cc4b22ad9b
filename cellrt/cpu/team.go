package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// team is the threads of a runner: the caller of [cellrt.Runner.Run] and its
// helpers.
//
//	Run    open ---- do ---- do ---- do ---- close
//	caller           ####    ####    ####
//	helper  wakes...   ##    ####    ####    parks
//
// Work is cut into parts, and whoever is free claims the next one. The caller
// works too and waits only for parts that a helper has begun, so a helper that
// wakes late, or loses its core, costs at most the part it holds. Helpers spin
// between two pieces of work of one step, which are microseconds apart, and are
// parked between steps.
//
// A part's results do not depend on who computes it.
type team struct {
	helpers []chan struct{} // a value wakes, closing stops
	stopped sync.WaitGroup
	open    atomic.Bool
	work    work // of the last call of do
	_       [64]byte
	// state is the call's number, its number of parts, and the next part, in
	// one word, so that a claim is of the call it was meant for.
	state atomic.Uint64
	_     [64]byte
	done  atomic.Int64 // parts finished
}

// work is something that can be done in parts, at the same time.
type work interface {
	part(i, parts int)
}

const (
	partBits = 16
	partMask = 1<<partBits - 1
	// spins is how often a thread looks before it lets others have its core.
	spins = 64
)

// resize sets the number of threads, the caller included. It must not be
// called while the team is open.
func (t *team) resize(threads int) {
	helpers := max(0, threads-1)
	if helpers == len(t.helpers) {
		return
	}
	for _, wake := range t.helpers {
		close(wake)
	}
	t.stopped.Wait()
	t.helpers = t.helpers[:0]
	for range helpers {
		wake := make(chan struct{}, 1)
		t.helpers = append(t.helpers, wake)
		t.stopped.Go(func() { t.help(wake) })
	}
}

// begin wakes the helpers for the length of a step.
func (t *team) begin() {
	t.open.Store(true)
	for _, wake := range t.helpers {
		select {
		case wake <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
}

// end lets the helpers park.
func (t *team) end() { t.open.Store(false) }

// do does work in parts, at most 65,535, and returns when all are done.
func (t *team) do(w work, parts int) {
	t.work = w
	t.done.Store(0)
	call := t.state.Load()>>(2*partBits) + 1
	t.state.Store(call<<(2*partBits) | uint64(parts)<<partBits)
	for t.claim() {
	}
	for i := 1; t.done.Load() < int64(parts); i++ {
		if i%spins == 0 {
			runtime.Gosched()
		}
	}
}

// claim does the next part, if there is one.
func (t *team) claim() bool {
	for {
		s := t.state.Load()
		next, parts := s&partMask, s>>partBits&partMask
		if next == parts {
			return false
		}
		if t.state.CompareAndSwap(s, s+1) {
			// The call cannot end before this part, so its work is still there.
			t.work.part(int(next), int(parts))
			t.done.Add(1)
			return true
		}
	}
}

// help is the life of a helper.
func (t *team) help(wake chan struct{}) {
	for range wake {
		for i := 1; t.open.Load(); i++ {
			if t.claim() {
				i = 0
			} else if i%spins == 0 {
				runtime.Gosched()
			}
		}
	}
}
