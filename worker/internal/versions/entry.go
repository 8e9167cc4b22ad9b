package versions

import (
	"context"
	"time"
)

// entry is what a set knows of a version. The set's lock guards all of it.
type entry struct {
	key Key
	want
	progress
	residence

	waiters []*waiter
	turn    uint64 // place among those that are asked for; 0: nobody asks
	born    uint64 // order in which versions became known
}

// want is what [Set.Want] said last.
type want struct {
	wanted, pinned bool
	first          bool      // the active version: failures are tried again
	left           time.Time // when it stopped being wanted
}

// progress is how far a version is on its way into memory.
type progress struct {
	state  State // Warm while in memory, see current
	reason string
	err    error     // why it failed
	tries  int       // failures in a row
	missed int       // fetches in a row that are to be repeated
	again  time.Time // not before; zero: at once
	here   bool      // its files were fetched since it was last in memory
	opened Opened    // not nil between Open and Load
	size   int64     // the most that a load adds, in bytes
	sized  bool

	busy   bool // a call to the loader runs
	cancel context.CancelFunc
}

// residence is what there is to know of a version in memory.
type residence struct {
	loaded  *Loaded // nil: not in memory
	figures Loaded  // of the latest, without its models
	refs    int
	used    bool      // by anybody since it was loaded
	marked  bool      // takes no new references, for another that waits
	leaving bool      // Unload runs
	since   time.Time // when it was loaded
	lastUse time.Time // the last Release
}

// waiter is a call of [Set.Await]. Whoever takes it out of its entry sets loaded
// or err, and closes done.
type waiter struct {
	loaded *Loaded
	err    error
	done   chan struct{}
}

// current is the state that others are told.
func (e *entry) current() State {
	switch {
	case e.loaded == nil:
		return e.state
	case !e.wanted:
		return Draining
	case e.used:
		return Live
	}
	return Warm
}

// admits reports whether the version can be referred to.
func (e *entry) admits() bool { return e.loaded != nil && !e.marked && !e.leaving }

// asked reports whether others are pushed out for the version.
func (e *entry) asked() bool { return len(e.waiters) > 0 || e.pinned }

// idle reports whether the version can be unloaded now.
func (e *entry) idle(now time.Time) bool {
	return e.loaded != nil && e.refs == 0 && !e.leaving && !now.Before(e.again)
}

// take counts a reference.
func (e *entry) take() *Loaded {
	e.refs++
	e.used = true
	return e.loaded
}

// answer ends all calls that wait: with a reference each, or with err.
func (e *entry) answer(err error) {
	for _, w := range e.waiters {
		if err == nil {
			w.loaded = e.take()
		}
		w.err = err
		close(w.done)
	}
	e.waiters = nil
	e.turn = 0
}
