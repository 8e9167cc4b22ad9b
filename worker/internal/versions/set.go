package versions

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Config says how a [Set] keeps versions.
type Config struct {
	// Budget is the most that versions may take in memory, in bytes; 0 means no
	// bound.
	Budget int64

	// Linger is how long a version stays that is no longer wanted: requests that
	// it began may come back from workers that died.
	Linger time.Duration

	// Loader brings versions into memory and out of it.
	Loader Loader

	// Changed, if not nil, is called when the state of a version or its reason
	// has changed, from the goroutine of [Set.Run] and with no lock held. It must
	// not block.
	Changed func()

	// Failed, if not nil, is called in the same way for each version that could not
	// be loaded, with the reason.
	Failed func(k Key, err error)
}

// Set is the versions of models that a worker has or should have. Its methods
// are safe for concurrent use.
type Set struct {
	cfg  Config
	wake chan struct{} // one place: that there is something to do is enough to know

	steps sync.WaitGroup // calls to the loader that run

	mu       sync.Mutex
	entries  map[Key]*entry
	turns    uint64
	open     *entry    // the one with opened files
	lane     bool      // Open or Load runs
	fetching int       // calls of Fetch that run
	changed  bool      // Changed is to be called
	failures []failure // that Failed is to be told of
	stopped  bool      // Run has ended

	evictions uint64
	evicted   time.Time // when one that is wanted was unloaded for another
	next      time.Time // when there is something to do at the latest
}

// New returns an empty set. Nothing is loaded before [Set.Run] runs.
func New(cfg Config) *Set {
	return &Set{cfg: cfg, wake: make(chan struct{}, 1), entries: map[Key]*entry{}}
}

// Want says which versions of a model shall be in memory: at most two, the
// active one first. What was wanted before and is not named drains. Pinned ones
// are never pushed out, and push others out to get in. To want the same again
// changes nothing.
//
// The first one that fails is tried again after 5 s to 5 min; the other one
// stays failed until it is wanted anew: want without it, then with it.
//
// More than two, or a key that is not the model's, is a programmer's error and
// panics.
func (s *Set) Want(model string, keys []Key, pinned bool) {
	if len(keys) > 2 {
		panic("versions: more than two versions of a model are wanted")
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		if k.Model != model || k.Digest == "" {
			panic("versions: a wanted version is not the model's")
		}
		s.want(s.entry(k), i == 0, pinned)
	}
	for k, e := range s.entries {
		if k.Model == model && e.wanted && !slices.Contains(keys, k) {
			e.want = want{left: now}
			e.forget()
			s.touch()
		}
	}
}

func (s *Set) want(e *entry, first, pinned bool) {
	before := e.want
	e.want = want{wanted: true, first: first, pinned: pinned}
	if e.want == before {
		return
	}
	if !before.wanted || first && !before.first {
		e.forget()
	}
	if pinned && e.loaded == nil {
		s.queueUp(e)
	}
	s.touch()
}

// forget has a version that failed begin anew.
func (e *entry) forget() {
	if e.state == Failed {
		e.progress = progress{state: Absent, size: e.size, sized: e.sized}
	}
}

// entry returns the entry of a key, a new one if there is none.
func (s *Set) entry(k Key) *entry {
	e := s.entries[k]
	if e == nil {
		s.turns++
		e = &entry{key: k, progress: progress{state: Absent}, born: s.turns}
		s.entries[k] = e
	}
	return e
}

// queueUp gives a version that is asked for its turn.
func (s *Set) queueUp(e *entry) {
	if e.turn == 0 {
		s.turns++
		e.turn = s.turns
	}
}

// enter notes where a version is, and why.
func (s *Set) enter(e *entry, state State, reason string) {
	if e.state != state || e.reason != reason {
		e.state, e.reason, s.changed = state, reason, true
	}
}

// touch has Run tell of a change and look for what there is to do.
func (s *Set) touch() {
	s.changed = true
	s.poke()
}

func (s *Set) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run loads and unloads until ctx ends, and returns nil when the calls to the
// loader have returned. Versions in memory then stay, and can still be referred
// to. A set runs once.
func (s *Set) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		act, next := s.plan(time.Now())
		s.tell()
		if act != nil {
			act(ctx)
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s.stop()
	s.steps.Wait()
	s.abandon()
	s.tell()
	return nil
}

// stop ends all calls that wait, for good.
func (s *Set) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, e := range s.entries {
		e.answer(ErrStopped)
	}
}

// abandon closes files that were to be loaded.
func (s *Set) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		s.giveUp()()
	}
}

// failure is a version that could not be loaded, and why.
type failure struct {
	key Key
	err error
}

// tell calls Failed for what could not be loaded, and Changed if something has.
func (s *Set) tell() {
	s.mu.Lock()
	changed, failures := s.changed, s.failures
	s.changed, s.failures = false, nil
	s.mu.Unlock()
	for _, f := range failures {
		if s.cfg.Failed != nil {
			s.cfg.Failed(f.key, f.err)
		}
	}
	if changed && s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}
