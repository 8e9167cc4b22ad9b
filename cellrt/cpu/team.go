package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// team is the threads of a runner: the caller of [cellrt.Runner.Run] and its
// helpers.
//
//	Run    begin --- do ---- do ---- do ---- end        begin --- do ...
//	caller           ####    ####    ####                         ####
//	helper  wakes...   ##    ####    ####       spins ...  parks or ####
//
// Work is cut into parts, and whoever is free claims the next one. The caller
// works too and waits only for parts that a helper has begun, so a helper that
// wakes late, or loses its core, costs at most the part it holds. Helpers spin
// between two pieces of work of one batch, which are microseconds apart, and
// for a while after it, since the next one often follows at once. Then they
// park. A thread that spins lets others have its core now and then, so neither
// the collector nor the network waits for it.
//
// A part's results do not depend on who computes it.
type team struct {
	spin    time.Duration // that helpers stay awake after a batch
	helpers []*helper
	stopped sync.WaitGroup
	open    atomic.Bool
	work    work // of the last call of do
	_       [64]byte
	// state is the call's number, its number of parts, and the next part, in
	// one word, so that a claim is of the call it was meant for.
	state atomic.Uint64
	_     [64]byte
	done  atomic.Int64 // parts finished
	// waiting is set by the caller before it waits for a value of finished, and
	// cleared by whoever sends one or by the caller if it need not wait.
	waiting  atomic.Bool
	finished chan struct{}
}

// helper is a thread of a team besides the caller.
type helper struct {
	number int           // of the thread; the caller is number 0
	wake   chan struct{} // a value wakes, closing stops
	// parked is set by the helper before it waits, and cleared by whoever wakes
	// it or by itself if the team has opened meanwhile.
	parked atomic.Bool
	_      [64]byte
}

// work is something that can be done in parts, at the same time.
type work interface {
	part(thread, i, parts int)
}

const (
	partBits = 16
	partMask = 1<<partBits - 1
	// spins is how often a thread looks before it lets others have its core.
	spins = 64
)

// threads returns the number of threads, the caller included.
func (t *team) threads() int { return len(t.helpers) + 1 }

// resize sets the number of threads, the caller included. It must not be
// called while the team is open.
func (t *team) resize(threads int) {
	helpers := max(0, threads-1)
	if helpers == len(t.helpers) {
		return
	}
	if t.finished == nil {
		t.finished = make(chan struct{}, 1)
	}
	for _, h := range t.helpers {
		close(h.wake)
	}
	t.stopped.Wait()
	t.helpers = t.helpers[:0]
	for i := range helpers {
		h := &helper{number: i + 1, wake: make(chan struct{}, 1)}
		h.parked.Store(true)
		t.helpers = append(t.helpers, h)
		t.stopped.Go(func() { t.help(h) })
	}
}

// awake says whether a helper would take part without being woken.
func (t *team) awake() bool {
	for _, h := range t.helpers {
		if !h.parked.Load() {
			return true
		}
	}
	return false
}

// begin lets the helpers take part, and wakes those that are parked.
func (t *team) begin() {
	t.open.Store(true)
	for _, h := range t.helpers {
		if h.parked.CompareAndSwap(true, false) {
			h.wake <- struct{}{} // there is room: it takes one for each time it parks
		}
	}
}

// end lets the helpers rest.
func (t *team) end() { t.open.Store(false) }

// do does work in parts, at most 65,535, and returns when all are done.
func (t *team) do(w work, parts int) {
	t.work = w
	t.done.Store(0)
	call := t.state.Load()>>(2*partBits) + 1
	t.state.Store(call<<(2*partBits) | uint64(parts)<<partBits)
	for t.claim(0) {
	}
	t.wait(int64(parts))
}

// wait returns when so many parts are done. It spins while that is a matter of
// microseconds. A helper that still holds a part after that has lost its core,
// perhaps to this thread, so then it gives up its own.
func (t *team) wait(parts int64) {
	var p patience
	for t.done.Load() < parts {
		if p.look(t.spin) {
			continue
		}
		t.waiting.Store(true)
		if t.done.Load() < parts || !t.waiting.CompareAndSwap(true, false) {
			// The value may be late, of a call before this one.
			<-t.finished
		}
	}
}

// claim does the next part, if there is one.
func (t *team) claim(thread int) bool {
	for {
		s := t.state.Load()
		next, parts := s&partMask, s>>partBits&partMask
		if next == parts {
			return false
		}
		if t.state.CompareAndSwap(s, s+1) {
			// The call cannot end before this part, so its work is still there.
			t.work.part(thread, int(next), int(parts))
			if t.done.Add(1) == int64(parts) && t.waiting.CompareAndSwap(true, false) {
				t.finished <- struct{}{} // there is room: the caller takes each one
			}
			return true
		}
	}
}

// help is the life of a helper.
func (t *team) help(h *helper) {
	for range h.wake {
		for {
			t.attend(h)
			if t.idle() {
				continue // the next batch is here
			}
			h.parked.Store(true)
			// A batch that began before the line above has not woken this
			// helper; one that began after it has, or is about to.
			if !t.open.Load() || !h.parked.CompareAndSwap(true, false) {
				break
			}
		}
	}
}

// attend takes part in a batch until it ends.
func (t *team) attend(h *helper) {
	for i := 1; t.open.Load(); i++ {
		if t.claim(h.number) {
			i = 0
		} else if i%spins == 0 {
			runtime.Gosched()
		}
	}
}

// idle waits a while for the next batch and says whether it came.
func (t *team) idle() bool {
	var p patience
	for !t.open.Load() {
		if !p.look(t.spin) {
			return false
		}
	}
	return true
}

// patience is how long a thread has been spinning.
type patience struct {
	looks int64
	began time.Time
}

// look counts a look and says whether there is time for another one. It lets
// others have the core now and then. A look takes a nanosecond at least, so
// spinning ends even where time stands still.
func (p *patience) look(limit time.Duration) bool {
	p.looks++
	if p.looks%spins != 0 {
		return true
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	if p.looks >= limit.Nanoseconds() || time.Since(p.began) > limit {
		return false
	}
	runtime.Gosched()
	return true
}
