package worker

import (
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// liveWindow is how far back the latencies of a snapshot reach.
const liveWindow = 10 * time.Second

// recorder keeps what a live snapshot shows and nobody else counts: how requests
// of the last seconds fared, and, while somebody watches, the last steps. Its
// methods are safe for concurrent use.
type recorder struct {
	watched atomic.Bool // somebody watches; without that a step costs one load

	mu     sync.Mutex
	models map[string]*modelRecord
	cells  map[cellName]*[broker.LiveRows]uint64 // steps by rows, in powers of two
	last   []cellName                            // by executor
	steps  [broker.LiveSteps]stepRecord          // a ring
	seen   uint64                                // steps that were put into it
}

// recordedModels bounds the models that have records.
const recordedModels = 256

func newRecorder() *recorder {
	return &recorder{models: map[string]*modelRecord{}, cells: map[cellName]*[broker.LiveRows]uint64{}}
}

// stepRecord is a step in the ring.
type stepRecord struct {
	name     cellName
	number   uint64
	executor int
	took     time.Duration
	rows     int
	slots    [broker.LiveSlots]int32
}

// stepped records a step. It allocates for the first one of a cell or executor.
func (c *recorder) stepped(t *cellrt.StepTrace) {
	if !c.watched.Load() {
		return
	}
	name := cellName{t.Program, t.Cell}
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.cells[name]
	if counts == nil {
		counts = new([broker.LiveRows]uint64)
		c.cells[name] = counts
	}
	counts[rowsBucket(t.Rows)]++
	for t.Executor >= len(c.last) {
		c.last = append(c.last, cellName{})
	}
	c.last[t.Executor] = name
	s := &c.steps[c.seen%broker.LiveSteps]
	c.seen++
	s.name, s.number, s.executor, s.took, s.rows = name, c.seen, t.Executor, t.Duration, t.Rows
	for i := range min(len(t.Batch), len(s.slots)) {
		s.slots[i] = t.Batch[i].Slot
	}
}

// rowsBucket is where so many rows count: 1, 2, 3 to 4, 5 to 8, and so on.
func rowsBucket(rows int) int {
	return min(bits.Len(uint(max(rows, 1)-1)), broker.LiveRows-1)
}

// forget empties what was recorded for who watched.
func (c *recorder) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cells)
	c.steps, c.seen = [broker.LiveSteps]stepRecord{}, 0
}

// The latencies of a request.
const (
	latencyBroker = iota
	latencyQueue
	latencyFirstToken
	latencyInterToken
	latencyTotal
	latencies
)

// modelRecord is how requests of a model fared.
type modelRecord struct {
	outcomes map[string]uint64
	tokens   uint64
	window   [int(liveWindow/time.Second) + 1]windowSecond // a ring, by second
}

// windowSecond is the latencies of the requests that ended within one second.
type windowSecond struct {
	second int64 // unix
	counts [latencies][broker.LiveBuckets]uint32
}

// closed records a request that left.
func (c *recorder) closed(r *run, outcome string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.models[r.modelLabel()]
	if m == nil {
		if len(c.models) >= recordedModels {
			return
		}
		m = &modelRecord{outcomes: map[string]uint64{}}
		c.models[r.modelLabel()] = m
	}
	m.outcomes[outcome]++
	if r.refusal != nil {
		return
	}
	tokens := len(r.view)
	m.tokens += uint64(tokens)
	w := m.second(now)
	t := r.timing(now)
	w.counts[latencyBroker][broker.LiveBucket(t.Broker)]++
	w.counts[latencyQueue][broker.LiveBucket(t.Queue)]++
	w.counts[latencyTotal][broker.LiveBucket(t.Total)]++
	if r.firstToken.IsZero() {
		return
	}
	w.counts[latencyFirstToken][broker.LiveBucket(t.FirstToken)]++
	if tokens > 1 {
		between := r.lastToken.Sub(r.firstToken) / time.Duration(tokens-1)
		w.counts[latencyInterToken][broker.LiveBucket(between)]++
	}
}

// second returns the part of the window that now is in, emptied if it had an
// earlier one.
func (m *modelRecord) second(now time.Time) *windowSecond {
	s := now.Unix()
	w := &m.window[uint64(s)%uint64(len(m.window))]
	if w.second != s {
		*w = windowSecond{second: s}
	}
	return w
}

// latency returns the latencies of the window before now.
func (m *modelRecord) latency(now time.Time) broker.LiveLatency {
	var sums [latencies][]uint32
	for kind := range sums {
		sums[kind] = make([]uint32, broker.LiveBuckets)
	}
	oldest := now.Unix() - int64(liveWindow/time.Second)
	for i := range m.window {
		if w := &m.window[i]; w.second >= oldest && w.second <= now.Unix() {
			for kind := range sums {
				for b, n := range w.counts[kind] {
					sums[kind][b] += n
				}
			}
		}
	}
	return broker.LiveLatency{
		Broker: broker.NewLiveHistogram(sums[latencyBroker]), Queue: broker.NewLiveHistogram(sums[latencyQueue]),
		FirstToken: broker.NewLiveHistogram(sums[latencyFirstToken]), InterToken: broker.NewLiveHistogram(sums[latencyInterToken]),
		Total: broker.NewLiveHistogram(sums[latencyTotal]),
	}
}

// clipText fits a text into a snapshot: at most 128 bytes, all of them printable.
func clipText(s string) string {
	const most = 128
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	for len(s) > most {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
