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
	counts map[versions.Key]registry.Counts
}

func newTally() *tally { return &tally{counts: map[versions.Key]registry.Counts{}} }

// The ways in which a request of a version ends.
const (
	tallyOK     = "ok"
	tallyFailed = "failed"
	tallyOther  = "other"
)

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
	kind := tallied(outcome)
	if kind == tallyOther {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[k]
	c.Ended++
	if kind == tallyFailed {
		c.Failed++
	}
	t.counts[k] = c
}

// of returns the counts of a version.
func (t *tally) of(k versions.Key) registry.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[k]
}
