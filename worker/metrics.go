package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// The outcomes of a run beside its finish reason or error code.
const (
	outcomeHandedBack = "handed_back"
	outcomeLeaseLost  = "lease_lost"
	outcomeAnswered   = "answered_before"
	outcomeNoReply    = "no_reply"
	outcomeUnsent     = "unsent"
	outcomeReplayed   = "replayed"
)

// The kinds of second answers beside the outcomes that are.
const (
	kindFenced    = "fenced"
	kindTakenOver = "taken_over"
)

// metrics is everything the worker counts. Model names are those it serves or
// "unknown"; outcomes, codes, kinds and reasons are closed sets: labels are
// bounded, and none of them is a client's.
type metrics struct {
	received      prometheus.Counter
	requests      *prometheus.CounterVec // model, outcome
	refusals      *prometheus.CounterVec // code
	cancellations *prometheus.CounterVec // reason
	duplicates    *prometheus.CounterVec // kind
	redeliveries  prometheus.Counter
	models        memo[string, *modelMeter]
	cells         memo[cellName, *cellMeter]
	storeWait     prometheus.Histogram
	letters       *prometheus.CounterVec // code
	lostLetters   prometheus.Counter
	fenced        prometheus.Counter
	excused       prometheus.Counter
	unstored      prometheus.Counter
	checkpoints   prometheus.Counter
	restored      prometheus.Counter
	reconciled    prometheus.Counter
	residue       prometheus.Gauge
	storeless     prometheus.Gauge
	short         *prometheus.GaugeVec // stream
	dropped       prometheus.Counter
	spans         *prometheus.CounterVec // outcome
	modelCounts
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		received: counter("cellmq_received_requests_total", "Requests that came, each attempt of them. Those that have left are in cellmq_requests_total, the others run or are about to."),
		requests: vector("cellmq_requests_total", "Requests that left the worker, by finish reason, error code, handed_back, lease_lost, answered_before, replayed, no_reply or unsent.", "model", "outcome"),
		refusals: vector("cellmq_refusals_total", "Requests answered with an error without running, by error code.", "code"),
		cancellations: vector("cellmq_cancellations_total", "Requests that ended before their output was complete: cancelled by their client, deadline, or client_gone.",
			"reason"),
		duplicates: vector("cellmq_duplicates_total", "Second answers that were not given: replayed from the stored final, fenced by another lease's final, answered_before or taken_over by a younger lease of this worker.",
			"kind"),
		spans: vector("cellmq_spans_total", "Spans of traces that ended: sent to the collector, refused by it, or dropped since too many waited for it.",
			"outcome"),
		redeliveries: counter("cellmq_redeliveries_total", "Requests that came for another attempt."),
		models:       newModelMeters(reg),
		cells:        newCellMeters(reg),
	}
	m.records(reg, counter)
	m.modelCounts = newModelCounts(reg)
	m.zero()
	return m
}

// zero shows the series of closed sets before anything happened: an increase from
// nothing is none to whoever computes rates.
func (m *metrics) zero() {
	for _, reason := range []broker.FinishReason{broker.FinishCancelled, broker.FinishDeadline, broker.FinishClientGone} {
		m.cancellations.WithLabelValues(string(reason))
	}
	for _, kind := range []string{outcomeReplayed, outcomeAnswered, kindFenced, kindTakenOver} {
		m.duplicates.WithLabelValues(kind)
	}
	for _, code := range []broker.Code{broker.CodeNumericalError, broker.CodeInternal, broker.CodeAttemptsExhausted} {
		m.letters.WithLabelValues(string(code))
	}
	for _, outcome := range []string{spansSent, spansRefused, spansDropped} {
		m.spans.WithLabelValues(outcome)
	}
}

// records makes what counts the records beside the queue.
func (m *metrics) records(reg prometheus.Registerer, counter func(name, help string) prometheus.Counter) {
	m.storeWait = prometheus.NewHistogram(histogram("cellmq_store_wait_seconds", "Time from a final to the server's word that it is stored.", waits()))
	m.letters = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellmq_dead_letters_total", Help: "Dead letters written, by error code.",
	}, []string{"code"})
	m.lostLetters = counter("cellmq_lost_letters_total", "Requests that ended without the dead letter they should have left, since the server did not take it.")
	m.fenced = counter("cellmq_fenced_total", "Runs whose answer was not stored, since another lease had answered.")
	m.excused = counter("cellmq_excused_attempts_total", "Attempts that ended early and do not count as failures.")
	m.unstored = counter("cellmq_unstored_finals_total", "Terminal frames that were sent though the server refused to store them.")
	m.checkpoints = counter("cellmq_checkpoints_stored_total", "Checkpoints of running requests sent to the store.")
	m.restored = counter("cellmq_restored_total", "Runs that went on from a checkpoint.")
	m.reconciled = counter("cellmq_reconciled_total", "Requests ended that the server delivered no more.")
	m.dropped = counter("cellmq_dropped_questions_total", "Resume and cancel requests that were not looked up, since too many waited and their client had most of them.")
	m.residue = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cellmq_residue_messages", Help: "Requests in the stream that no consumer will deliver, when this worker looked last.",
	})
	m.storeless = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cellmq_stores_failing", Help: "1 while the server has stored nothing for longer than two ack waits.",
	})
	m.short = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellmq_store_short_seconds", Help: "How much too early a full stream of records drops them, when this worker looked last.",
	}, []string{"stream"})
	reg.MustRegister(m.storeWait, m.letters, m.residue, m.storeless, m.short)
}

// stepped counts a step. It allocates nothing but for the first step of a cell.
func (m *metrics) stepped(t cellrt.StepTrace) {
	c := m.cells.of(cellName{t.Program, t.Cell})
	c.steps[t.Tier].Add(1)
	c.rows.Add(uint64(t.Rows))
	c.size.Observe(float64(t.Rows))
	c.duration.Observe(t.Duration.Seconds())
}

// refusedAtOnce counts a realtime request for which there was no slot.
func (m *metrics) refusedAtOnce(model string, code broker.Code) {
	m.received.Inc()
	m.requests.WithLabelValues(model, string(code)).Inc()
	m.refusals.WithLabelValues(string(code)).Inc()
}

// closed counts a run that left.
func (m *metrics) closed(r *run, outcome string, now time.Time) {
	m.requests.WithLabelValues(r.modelLabel(), outcome).Inc()
	switch broker.FinishReason(outcome) {
	case broker.FinishCancelled, broker.FinishDeadline, broker.FinishClientGone:
		m.cancellations.WithLabelValues(outcome).Inc()
	}
	if kind := duplicate(r, outcome); kind != "" {
		m.duplicates.WithLabelValues(kind).Inc()
	}
	if r.refusal != nil {
		m.refusals.WithLabelValues(outcome).Inc()
		return
	}
	m.models.of(r.modelLabel()).closed(r, outcome, now)
}
