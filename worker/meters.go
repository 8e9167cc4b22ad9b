package worker

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellmq/cellmq/cellrt"
)

// How finely native histograms tell values apart, and how many buckets one may
// have; beyond that it becomes coarser.
const (
	bucketFactor = 1.1
	mostBuckets  = 160
)

// histogram is a histogram with fixed buckets for whoever scrapes text, and native
// ones for whoever can.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: bucketFactor, NativeHistogramMaxBucketNumber: mostBuckets, NativeHistogramMinResetDuration: time.Hour,
	}
}

// waits are the fixed buckets of what a request waits for: 1 ms to 33 s.
func waits() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 16) }

// shortWaits are those of what is over in less: 10 µs to 2.6 s.
func shortWaits() []float64 { return prometheus.ExponentialBuckets(0.000_01, 4, 10) }

// memo remembers what was made for a key. Looking a known one up takes no lock and
// no memory. Keys are never forgotten: there are as many as an operator has models.
// It is safe for concurrent use.
type memo[K comparable, V any] struct {
	make  func(K) V
	mu    *sync.Mutex // of those who add
	known *atomic.Pointer[map[K]V]
}

func newMemo[K comparable, V any](produce func(K) V) memo[K, V] {
	m := memo[K, V]{make: produce, mu: &sync.Mutex{}, known: &atomic.Pointer[map[K]V]{}}
	m.known.Store(&map[K]V{})
	return m
}

// all is what is known. The caller must not change it.
func (m memo[K, V]) all() map[K]V { return *m.known.Load() }

// of returns what belongs to a key.
func (m memo[K, V]) of(key K) V {
	if v, ok := m.all()[key]; ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.all()[key]; ok {
		return v
	}
	v, next := m.make(key), maps.Clone(m.all())
	next[key] = v
	m.known.Store(&next)
	return v
}

// firstNames are the names that came first, so many of them; all others have one name
// together. Its methods are safe for concurrent use.
type firstNames struct {
	most   int
	others string

	mu    sync.Mutex
	known map[string]bool
}

func newFirstNames(most int, others string) *firstNames {
	return &firstNames{most: most, others: others, known: map[string]bool{}}
}

// of returns the name, or that of the others.
func (f *firstNames) of(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known[name] {
		if len(f.known) >= f.most {
			return f.others
		}
		f.known[name] = true
	}
	return name
}

// modelMeter measures the requests of one model.
type modelMeter struct {
	brokerWait, queueWait, firstToken, interToken, total prometheus.Observer
	tokens                                               prometheus.Counter
}

func newModelMeters(reg prometheus.Registerer) memo[string, *modelMeter] {
	vector := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(histogram(name, help, buckets), []string{"model"})
		reg.MustRegister(h)
		return h
	}
	brokerWait := vector("cellmq_broker_wait_seconds", "Time from publishing to arrival at the worker.", waits())
	queueWait := vector("cellmq_queue_wait_seconds", "Time from arrival to submission to the step loop.", shortWaits())
	firstToken := vector("cellmq_first_token_seconds", "Time from arrival to the first token.", waits())
	interToken := vector("cellmq_inter_token_seconds", "Time between two steps that gave a request tokens.", shortWaits())
	total := vector("cellmq_request_duration_seconds", "Time from publishing to the terminal frame.", waits())
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellmq_tokens_total", Help: "Tokens emitted."}, []string{"model"})
	reg.MustRegister(tokens)
	return newMemo(func(model string) *modelMeter {
		return &modelMeter{
			brokerWait.WithLabelValues(model), queueWait.WithLabelValues(model), firstToken.WithLabelValues(model),
			interToken.WithLabelValues(model), total.WithLabelValues(model), tokens.WithLabelValues(model),
		}
	})
}

// closed measures a run that left and was not refused.
func (m *modelMeter) closed(r *run, outcome string, now time.Time) {
	timing := r.timing(now)
	m.brokerWait.Observe(timing.Broker.Seconds())
	if !r.admitted.IsZero() {
		m.queueWait.Observe(timing.Queue.Seconds())
	}
	if !r.firstToken.IsZero() {
		m.firstToken.Observe(timing.FirstToken.Seconds())
	}
	if answered(outcome) {
		m.total.Observe(timing.Total.Seconds())
	}
}

// answered reports whether a run with an outcome sent a terminal frame.
func answered(outcome string) bool {
	switch outcome {
	case outcomeHandedBack, outcomeLeaseLost, outcomeAnswered, outcomeNoReply, outcomeUnsent:
		return false
	}
	return true
}

// stepGave measures a step that gave a run so many tokens; last is when one did so
// before, zero for the first. It may be called on nil, and does nothing then.
func (m *modelMeter) stepGave(tokens int, now, last time.Time) {
	if m == nil {
		return
	}
	m.tokens.Add(float64(tokens))
	if !last.IsZero() {
		m.interToken.Observe(now.Sub(last).Seconds())
	}
}

// cellName names a cell of a model, of all its versions.
type cellName struct{ model, cell string }

// cellMeter measures the steps of one cell.
type cellMeter struct {
	size, duration prometheus.Observer
	steps          [cellrt.Tiers]atomic.Uint64
	rows           atomic.Uint64
}

func newCellMeters(reg prometheus.Registerer) memo[cellName, *cellMeter] {
	labels := []string{"model", "cell"}
	size := prometheus.NewHistogramVec(histogram("cellmq_step_rows", "Rows in a step.", prometheus.ExponentialBuckets(1, 2, 9)), labels)
	duration := prometheus.NewHistogramVec(histogram("cellmq_step_duration_seconds", "Time the backend took for a step.",
		prometheus.ExponentialBuckets(0.000_02, 2, 16)), labels)
	reg.MustRegister(size, duration)
	return newMemo(func(n cellName) *cellMeter {
		return &cellMeter{size: size.WithLabelValues(n.model, n.cell), duration: duration.WithLabelValues(n.model, n.cell)}
	})
}

// duplicate says which second answer a run did not give; empty: it was no
// duplicate.
func duplicate(r *run, outcome string) string {
	switch {
	case outcome == outcomeReplayed && r.stored == nil:
		return kindFenced
	case outcome == outcomeReplayed, outcome == outcomeAnswered:
		return outcome
	case outcome == outcomeLeaseLost && errors.Is(r.mute, errTakenOver):
		return kindTakenOver
	}
	return ""
}
