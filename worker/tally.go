package worker

import (
	"math"
	"sync"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// tallied bounds the versions, and the names of versions, whose counts are kept. Of
// more the one forgets that was counted longest ago, and begins at 0 if it comes back.
const tallied = 4096

// tally counts how the requests of versions ended since the worker started: of each
// version, which a deployment is judged by, and of each name, which metrics show.
// Several versions may have one name, one after the other or side by side, and what
// was counted for a name stays when one of them goes. Its methods are safe for
// concurrent use.
type tally struct {
	mu       sync.Mutex
	counted  uint64 // requests
	versions counts[versions.Key]
	names    counts[versionLabels]
}

// versionLabels name a version in metrics.
type versionLabels struct{ model, version string }

func newTally() *tally {
	return &tally{versions: counts[versions.Key]{}, names: counts[versionLabels]{}}
}

// counts are the endings of keys, and by when they were counted last.
type counts[K comparable] map[K]counted

type counted struct {
	endings
	last uint64 // a number that grows
}

// add counts an ending of a key at a moment later than those before.
func (c counts[K]) add(k K, outcome string, now uint64) {
	if _, known := c[k]; !known && len(c) >= tallied {
		c.forget()
	}
	e := c[k]
	e.count(outcome)
	e.last = now
	c[k] = e
}

// forget drops the key that was counted longest ago.
func (c counts[K]) forget() {
	var oldest K
	last := uint64(math.MaxUint64)
	for k, e := range c {
		if e.last < last {
			oldest, last = k, e.last
		}
	}
	delete(c, oldest)
}

// The ways in which a request of a version ends.
const (
	tallyOK     = "ok"
	tallyFailed = "failed"
	tallyOther  = "other"
)

// endings count the ways.
type endings struct{ ok, failed, other uint64 }

// kindOf says what an outcome says about the version that ran: it worked, it
// failed, or neither.
func kindOf(outcome string) string {
	switch broker.Code(outcome) {
	case broker.CodeNumericalError, broker.CodeInternal, broker.CodeAttemptsExhausted:
		return tallyFailed
	}
	switch broker.FinishReason(outcome) {
	case broker.FinishStop, broker.FinishLength:
		return tallyOK
	}
	return tallyOther
}

// count counts an ending.
func (e *endings) count(outcome string) {
	switch kindOf(outcome) {
	case tallyOK:
		e.ok++
	case tallyFailed:
		e.failed++
	default:
		e.other++
	}
}

// count counts a request of a version that has a name.
func (t *tally) count(k versions.Key, name, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted++
	t.versions.add(k, outcome, t.counted)
	t.names.add(versionLabels{k.Model, name}, outcome, t.counted)
}

// of returns the counts of a version.
func (t *tally) of(k versions.Key) endings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.versions[k].endings
}

// named returns the counts of all versions that had a name.
func (t *tally) named(name versionLabels) endings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[name].endings
}

// report is what a deployment is judged by: requests that ended by themselves.
func (e endings) report() registry.Counts {
	return registry.Counts{Ended: e.ok + e.failed, Failed: e.failed}
}
