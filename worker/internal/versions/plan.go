package versions

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// How long a version rests that failed or could not be fetched: the first pause,
// which doubles, and the longest.
const (
	firstFetchPause, lastFetchPause = time.Second, 30 * time.Second
	firstRetry, lastRetry           = 5 * time.Second, 5 * time.Minute
	unloadPause                     = time.Second
)

// fetches is how many versions are fetched at the same time.
const fetches = 2

// longest is how long Run sleeps at most.
const longest = time.Hour

// plan returns the next thing to do, or nil and when to look again. Everything
// is decided from the state as it is; nothing is remembered from plan to plan
// but turns.
func (s *Set) plan(now time.Time) (func(context.Context), time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = now.Add(longest)
	s.tidy(now)
	queue := s.queue()
	act := s.nextFetch(queue, now)
	if act == nil {
		act = s.nextLoad(queue, now)
	}
	if act == nil {
		act = s.nextFree(now)
	}
	for _, e := range s.entries {
		if len(e.waiters) > 0 && e.admits() {
			s.changed = s.changed || !e.used
			e.answer(nil)
		}
	}
	return act, s.next
}

// until has the next plan made at t at the latest.
func (s *Set) until(t time.Time) {
	if t.Before(s.next) {
		s.next = t
	}
}

// tidy drops what nobody needs and nobody may have.
func (s *Set) tidy(now time.Time) {
	for k, e := range s.entries {
		if e.state == Failed && (e.first || !e.wanted) {
			if e.due(now) {
				e.progress = progress{state: Absent, tries: e.tries, size: e.size, sized: e.sized}
				s.changed = true
			} else {
				s.until(e.again)
			}
		}
		if e.wanted || e.loaded != nil && e.admits() {
			continue
		}
		if len(e.waiters) > 0 {
			if s.othersWanted(e) == 2 {
				e.answer(ErrThird)
			}
			continue
		}
		switch {
		case e.busy:
			e.cancel()
		case e.loaded != nil, e.opened != nil, e.state == Failed:
		default:
			delete(s.entries, k)
			s.changed = true
		}
	}
}

// due reports whether a version that failed may be tried again. One that is
// wanted beside the active one may not.
func (e *entry) due(now time.Time) bool { return (e.first || !e.wanted) && !now.Before(e.again) }

func (s *Set) othersWanted(e *entry) int {
	n := 0
	for k, o := range s.entries {
		if k.Model == e.key.Model && o != e && o.wanted && o.state != Failed {
			n++
		}
	}
	return n
}

// queue returns the versions that are to be loaded: those that are asked for in
// their turn, then those that are only wanted, the most recently used first.
func (s *Set) queue() []*entry {
	var out []*entry
	for _, e := range s.entries {
		if !e.asked() {
			e.turn = 0
		}
		if e.loaded == nil && e.state != Failed && (e.wanted || e.asked()) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int {
		switch {
		case a.asked() != b.asked():
			if a.asked() {
				return -1
			}
			return 1
		case a.asked():
			return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.born, b.born))
		}
		return cmp.Or(b.lastUse.Compare(a.lastUse), cmp.Compare(a.born, b.born))
	})
	return out
}

// nextFetch returns the fetch to begin.
func (s *Set) nextFetch(queue []*entry, now time.Time) func(context.Context) {
	for _, e := range queue {
		switch {
		case e.here || e.busy:
		case now.Before(e.again):
			s.until(e.again)
		case s.fetching < fetches && s.mayLoad(e, now):
			return s.fetch(e)
		}
	}
	return nil
}

// mayLoad reports whether it is time for a version to come in. What was pushed
// out does not push back in unasked while others are pushed out: it would be
// loaded only to be unloaded.
func (s *Set) mayLoad(e *entry, now time.Time) bool {
	if quiet := s.evicted.Add(s.cfg.Linger); !e.asked() && !s.evicted.IsZero() && now.Before(quiet) {
		s.until(quiet)
		return false
	}
	return true
}

// nextLoad returns the unloading or the load to begin, and marks the versions
// that have to make room.
func (s *Set) nextLoad(queue []*entry, now time.Time) func(context.Context) {
	if s.lane {
		return nil // what is marked stays so
	}
	for _, e := range s.entries {
		e.marked = false
	}
	e, act := s.choose(queue, now)
	if s.open == nil || s.open == e {
		return act
	}
	shut := s.giveUp()
	return func(ctx context.Context) {
		shut()
		if act != nil {
			act(ctx)
		}
	}
}

// choose returns the version that is loaded next, nil if there is none, and what
// to do for it. One that waits for references holds the line, so that those
// behind it do not take the room it waits for.
func (s *Set) choose(queue []*entry, now time.Time) (*entry, func(context.Context)) {
	for _, e := range queue {
		if !e.here || e.busy || !s.mayLoad(e, now) {
			continue
		}
		if wait, act := s.third(e, now); wait {
			if act != nil {
				return e, act
			}
			continue
		}
		if s.cfg.Budget > 0 && e.sized {
			switch verdict, act := s.room(e, now); verdict {
			case waits:
				return e, act
			case blocked:
				continue
			}
		}
		if e.opened == nil {
			return e, s.openFiles(e)
		}
		return e, s.load(e)
	}
	return nil, nil
}

// nextFree returns the unloading of a version that has drained.
func (s *Set) nextFree(now time.Time) func(context.Context) {
	for _, e := range s.entries {
		if e.wanted || e.loaded == nil || e.refs > 0 || e.leaving || len(e.waiters) > 0 {
			continue
		}
		end := e.left
		for _, t := range []time.Time{e.lastUse, e.since} {
			if t.After(end) {
				end = t
			}
		}
		end = end.Add(s.cfg.Linger)
		if e.again.After(end) {
			end = e.again
		}
		if !now.Before(end) {
			return s.unload(e, false)
		}
		s.until(end)
	}
	return nil
}
