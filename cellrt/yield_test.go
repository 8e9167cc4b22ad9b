package cellrt_test

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// alarm is a sink that wakes somebody with the first token.
type alarm struct {
	tokens atomic.Int64
	first  chan struct{}
}

func (a *alarm) Deliver(results []cellrt.Result) {
	for _, r := range results {
		if n := int64(len(r.Tokens)); n > 0 && a.tokens.Add(n) == n {
			close(a.first)
		}
	}
}

// TestReceiverRunsOnOneCore wants whoever waits for a token to run soon though
// the executor has the only core and enough to do.
func TestReceiverRunsOnOneCore(t *testing.T) { // not parallel: it takes cores away
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sink := &alarm{first: make(chan struct{})}
	s := &stage{}
	var err error
	if s.Runtime, err = cellrt.New(cellrt.Config{}, idleBackend{}, sink); err != nil {
		t.Fatal(err)
	}
	p := scriptProgram(t)
	m, err := s.Load(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Submit(cellrt.NewSequence(m, &countGraph{cell: p.Cells[0], left: math.MaxInt32}, cellrt.SequenceOptions{})); err != nil {
		t.Fatal(err)
	}
	stop := s.start(t)
	defer stop()
	<-sink.first
	// One step, if the scheduler of Go is left alone; it takes the core away
	// after some 10,000.
	if n := sink.tokens.Load(); n > 200 {
		t.Errorf("the receiver of the first token ran after %d tokens", n)
	}
}
