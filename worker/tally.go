package worker

import (
	"sync"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// tally counts how the requests of versions ended since the worker started. Its
// methods are safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[versions.Key]endings
}

func newTally() *tally { return &tally{counts: map[versions.Key]endings{}} }

// The ways in which a request of a version ends.
const (
	tallyOK     = "ok"
	tallyFailed = "failed"
	tallyOther  = "other"
)

// endings count the ways.
type endings struct{ ok, failed, other uint64 }

// tallied says what an outcome says about the version that ran: it worked, it
// failed, or neither.
func tallied(outcome string) string {
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

// count counts a request of a version.
func (t *tally) count(k versions.Key, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[k]
	switch tallied(outcome) {
	case tallyOK:
		c.ok++
	case tallyFailed:
		c.failed++
	default:
		c.other++
	}
	t.counts[k] = c
}

// of returns the counts of a version.
func (t *tally) of(k versions.Key) endings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[k]
}

// report is what a deployment is judged by: requests that ended by themselves.
func (e endings) report() registry.Counts {
	return registry.Counts{Ended: e.ok + e.failed, Failed: e.failed}
}

func (e endings) plus(o endings) endings {
	return endings{ok: e.ok + o.ok, failed: e.failed + o.failed, other: e.other + o.other}
}
