package worker

import (
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// table knows the runs of this worker and, for a while, what became of others.
// It is safe for concurrent use.
type table struct {
	mu         sync.Mutex
	runs       map[*run]struct{}
	byKey      map[requestKey][]*run // an id may run twice on the core path
	byStream   map[*broker.TokenStream]*run
	finished   *shares[requestKey, struct{}]
	tombstones *shares[requestKey, struct{}]
	idle       chan struct{} // closed while no run is there
}

func newTable() *table {
	t := &table{
		runs:       map[*run]struct{}{},
		byKey:      map[requestKey][]*run{},
		byStream:   map[*broker.TokenStream]*run{},
		finished:   newShares[requestKey, struct{}](maxRemembered, tombstoneLife),
		tombstones: newShares[requestKey, struct{}](maxRemembered, tombstoneLife),
		idle:       make(chan struct{}),
	}
	close(t.idle)
	return t
}

// add enters a run. It returns false when the request was cancelled before it
// came.
func (t *table) add(r *run, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.runs) == 0 {
		t.idle = make(chan struct{})
	}
	t.runs[r] = struct{}{}
	t.byKey[r.key()] = append(t.byKey[r.key()], r)
	t.byStream[r.stream] = r
	_, cancelled := t.tombstones.get(r.key(), now)
	return !cancelled
}

// remove takes a run out, if it is there. A finished one is remembered.
func (t *table) remove(r *run, finished bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if finished {
		t.finished.add(r.key().clone(), struct{}{}, now)
	}
	if _, ok := t.runs[r]; !ok {
		return
	}
	delete(t.runs, r)
	delete(t.byStream, r.stream)
	left := t.byKey[r.key()]
	for i := range left {
		if left[i] == r {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	if len(left) == 0 {
		delete(t.byKey, r.key())
	} else {
		t.byKey[r.key()] = left
	}
	if len(t.runs) == 0 {
		close(t.idle)
	}
}

// find returns the runs of a request. Without any it says what else is known;
// for an unknown request it leaves a tombstone, so that it is cancelled when it
// comes.
func (t *table) find(key requestKey, now time.Time) ([]*run, broker.CancelState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rs := t.byKey[key]; len(rs) > 0 {
		return append([]*run(nil), rs...), broker.CancelRunning
	}
	if _, ok := t.finished.get(key, now); ok {
		return nil, broker.CancelFinished
	}
	t.tombstones.add(key.clone(), struct{}{}, now)
	return nil, broker.CancelUnknown
}

// await leaves a tombstone for a request that comes again.
func (t *table) await(key requestKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tombstones.add(key.clone(), struct{}{}, now)
}

// ofStream returns the run that a token stream belongs to, or nil.
func (t *table) ofStream(s *broker.TokenStream) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byStream[s]
}

// all returns the runs.
func (t *table) all() []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs := make([]*run, 0, len(t.runs))
	for r := range t.runs {
		rs = append(rs, r)
	}
	return rs
}

// count returns the number of runs.
func (t *table) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.runs)
}

// empty returns a channel that is closed once no run is left.
func (t *table) empty() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idle
}
