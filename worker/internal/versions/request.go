package versions

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Acquire refers to a version that is in memory, until [Set.Release]. It reports
// false when the version is not, or has to make room for another: [Set.Await]
// waits then. It takes a map lookup and allocates nothing.
func (s *Set) Acquire(k Key) (*Loaded, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil || !e.admits() {
		return nil, false
	}
	if !e.used {
		s.touch() // it is live
	}
	return e.take(), true
}

// Release gives a reference back. To give back more than one has is a
// programmer's error and panics.
func (s *Set) Release(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil || e.refs == 0 {
		panic("versions: release without a reference")
	}
	s.release(e)
}

func (s *Set) release(e *entry) {
	e.refs--
	e.lastUse = time.Now()
	if e.refs == 0 && (e.marked || !e.wanted) {
		s.poke()
	}
}

// Await is [Set.Acquire], but loads a version that is not in memory, also one
// that is not wanted, and waits for it. It fails with what the [Loader] said,
// with [ErrBudget], [ErrThird], [ErrUnknown] or [ErrStopped], or with the cause of
// ctx. A version that failed a moment ago fails again without being tried.
func (s *Set) Await(ctx context.Context, k Key) (*Loaded, error) {
	if k.Model == "" || k.Digest == "" {
		return nil, ErrUnknown
	}
	w, err := s.join(k)
	if err != nil {
		return nil, fmt.Errorf("version %s of %s: %w", short(k.Digest), k.Model, err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if state, reason, left := s.leave(k, w); left {
			if reason == "" {
				reason = string(state)
			}
			return nil, fmt.Errorf("version %s of %s (%s): %w", short(k.Digest), k.Model, reason, context.Cause(ctx))
		}
	}
	if w.err != nil {
		return nil, fmt.Errorf("version %s of %s: %w", short(k.Digest), k.Model, w.err)
	}
	return w.loaded, nil
}

// join returns a waiter for the version, whose wait may be over.
func (s *Set) join(k Key) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{done: make(chan struct{})}
	e := s.entries[k]
	switch {
	case e != nil && e.admits():
		e.waiters = append(e.waiters, w)
		if !e.used {
			s.touch()
		}
		e.answer(nil)
		return w, nil
	case s.stopped:
		return nil, ErrStopped
	case e != nil && e.state == Failed && !e.due(time.Now()):
		return nil, e.err
	}
	e = s.entry(k)
	e.waiters = append(e.waiters, w)
	s.queueUp(e)
	s.touch()
	return w, nil
}

// leave ends a wait. It reports false when the wait was over before.
func (s *Set) leave(k Key, w *waiter) (State, string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		return "", "", false
	}
	i := slices.Index(e.waiters, w)
	if i < 0 {
		return "", "", false
	}
	e.waiters = slices.Delete(e.waiters, i, i+1)
	s.touch()
	return e.current(), e.reason, true
}

// short is the start of a digest, for messages.
func short(digest string) string { return digest[:min(len(digest), 12)] }
