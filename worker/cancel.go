package worker

import (
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
)

const (
	// maxRemembered bounds the ids of finished requests, and separately the
	// tombstones, that a worker keeps.
	maxRemembered = 16384
	// tombstoneLife is how long a cancellation waits for its request.
	tombstoneLife = 5 * time.Minute
)

// requestKey names a request: ids are unique per client.
type requestKey struct{ client, id string }

// table knows the runs of this worker and, for a while, what became of others.
// It is safe for concurrent use.
type table struct {
	mu         sync.Mutex
	runs       map[*run]struct{}
	byKey      map[requestKey][]*run // an id may run twice on the core path
	byStream   map[*broker.TokenStream]*run
	finished   recentKeys
	tombstones recentKeys
	idle       chan struct{} // closed while no run is there
}

func newTable() *table {
	t := &table{
		runs:       map[*run]struct{}{},
		byKey:      map[requestKey][]*run{},
		byStream:   map[*broker.TokenStream]*run{},
		finished:   recentKeys{limit: maxRemembered, life: tombstoneLife, added: map[requestKey]time.Time{}},
		tombstones: recentKeys{limit: maxRemembered, life: tombstoneLife, added: map[requestKey]time.Time{}},
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
	return !t.tombstones.has(r.key(), now)
}

// remove takes a run out, if it is there. A finished one is remembered.
func (t *table) remove(r *run, finished bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if finished {
		t.finished.add(r.key(), now)
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
	if t.finished.has(key, now) {
		return nil, broker.CancelFinished
	}
	t.tombstones.add(key, now)
	return nil, broker.CancelUnknown
}

// await leaves a tombstone for a request that comes again.
func (t *table) await(key requestKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tombstones.add(key, now)
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

// recentKeys remembers the last limit keys for as long as their life.
type recentKeys struct {
	limit int
	life  time.Duration
	added map[requestKey]time.Time
	order []requestKey // ring, oldest at next once it is full
	next  int
}

func (k *recentKeys) add(key requestKey, now time.Time) {
	if _, ok := k.added[key]; ok {
		k.added[key] = now
		return
	}
	if len(k.order) < k.limit {
		k.order = append(k.order, key)
	} else {
		delete(k.added, k.order[k.next])
		k.order[k.next] = key
		k.next = (k.next + 1) % k.limit
	}
	k.added[key] = now
}

func (k *recentKeys) has(key requestKey, now time.Time) bool {
	at, ok := k.added[key]
	return ok && now.Sub(at) < k.life
}
