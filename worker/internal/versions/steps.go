package versions

import (
	"context"
	"errors"
	"time"
)

// A step is one call to the loader. What it returns is called by Run, without
// the lock; what it says before that is said by plan, with the lock.

// begin returns what starts a call in a goroutine of its own. It runs with a
// context that ends when nobody needs the version.
func (s *Set) begin(e *entry, call func(ctx context.Context)) func(context.Context) {
	e.busy = true
	return func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		e.cancel = cancel
		s.mu.Unlock()
		s.steps.Go(func() {
			defer cancel()
			call(ctx)
			s.poke()
		})
	}
}

// fetch brings the files here.
func (s *Set) fetch(e *entry) func(context.Context) {
	s.fetching++
	reason := ""
	if e.missed > 0 {
		reason = e.reason
	}
	s.enter(e, Fetching, reason)
	return s.begin(e, func(ctx context.Context) {
		err := s.cfg.Loader.Fetch(ctx, e.key)
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetching--
		e.busy = false
		switch {
		case err == nil:
			e.here, e.missed, e.again = true, 0, time.Time{}
			s.enter(e, Cold, "")
		case ctx.Err() != nil:
			s.enter(e, Absent, "")
		case errors.Is(err, ErrUnknown) || errors.Is(err, ErrRefused):
			s.fail(e, err, now)
		default:
			e.again = now.Add(pause(e.missed, firstFetchPause, lastFetchPause))
			e.missed++
			s.enter(e, Fetching, err.Error())
		}
	})
}

// openFiles reads the files, which tells how much room they need.
func (s *Set) openFiles(e *entry) func(context.Context) {
	s.lane = true
	s.enter(e, Loading, "")
	return s.begin(e, func(ctx context.Context) {
		o, err := s.cfg.Loader.Open(ctx, e.key)
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lane, e.busy = false, false
		switch {
		case err == nil:
			weights, state := o.Size()
			e.opened, e.size, e.sized, s.open = o, weights+state, true, e
		case ctx.Err() != nil:
			s.enter(e, Absent, "")
		default:
			s.fail(e, err, now)
		}
	})
}

// giveUp returns what closes the files of the version that has its open and is
// not loaded now.
func (s *Set) giveUp() func() {
	e := s.open
	o := e.opened
	e.opened, s.open = nil, nil
	if e.state != Failed {
		s.enter(e, Cold, e.reason)
	}
	return o.Close
}

// load brings the version into memory and answers those that wait for it.
func (s *Set) load(e *entry) func(context.Context) {
	s.lane = true
	s.enter(e, Loading, "")
	o := e.opened
	return s.begin(e, func(ctx context.Context) {
		l, err := s.cfg.Loader.Load(ctx, o, func(state State) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.enter(e, state, "")
			s.poke()
		})
		o.Close()
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lane, s.open = false, nil
		e.busy, e.opened = false, nil
		switch {
		case err == nil:
			e.loaded, e.figures = l, *l
			e.figures.Model, e.figures.Runtime = nil, nil
			e.used, e.since, e.tries, e.again = false, now, 0, time.Time{}
			s.enter(e, Warm, "")
			s.changed = true
			e.answer(nil)
		case ctx.Err() != nil:
			s.enter(e, Absent, "")
		default:
			s.fail(e, err, now)
		}
	})
}

// unload takes a version out of memory that nobody refers to, at the end of its
// time or to make room for another.
func (s *Set) unload(e *entry, evict bool) func(context.Context) {
	e.leaving = true
	return func(context.Context) {
		err := s.cfg.Loader.Unload(e.loaded)
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		e.leaving, s.changed = false, true
		if err != nil {
			e.again, e.reason = now.Add(unloadPause), err.Error()
			return
		}
		e.loaded, e.here, e.marked, e.used = nil, false, false, false
		s.enter(e, Cold, "")
		if evict {
			s.evictions++
			if e.wanted {
				s.evicted = now
			}
			s.enter(e, Cold, "another version needed the room")
		}
	}
}

// fail ends the attempt to load a version.
func (s *Set) fail(e *entry, err error, now time.Time) {
	e.err, e.here = err, false
	e.again = now.Add(pause(e.tries, firstRetry, lastRetry))
	e.tries++
	s.enter(e, Failed, err.Error())
	s.changed = true
	s.failures = append(s.failures, failure{e.key, err})
	e.answer(err)
}

// pause is the time after so many failures before this one.
func pause(tries int, first, last time.Duration) time.Duration {
	return min(first<<min(tries, 16), last)
}
