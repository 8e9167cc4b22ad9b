package worker

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// metrics is everything the worker counts. Model names are those it serves or
// "unknown"; outcomes and codes are closed sets: labels are bounded.
type metrics struct {
	requests     *prometheus.CounterVec // model, outcome
	refusals     *prometheus.CounterVec // code
	redeliveries prometheus.Counter
	rows         prometheus.Histogram
	step         prometheus.Histogram
	brokerWait   prometheus.Histogram
	queueWait    prometheus.Histogram
	firstToken   prometheus.Histogram
	total        prometheus.Histogram
	storeWait    prometheus.Histogram
	letters      *prometheus.CounterVec // code
	lostLetters  prometheus.Counter
	fenced       prometheus.Counter
	excused      prometheus.Counter
	unstored     prometheus.Counter
	checkpoints  prometheus.Counter
	restored     prometheus.Counter
	reconciled   prometheus.Counter
	residue      prometheus.Gauge
	storeless    prometheus.Gauge
	short        *prometheus.GaugeVec // stream
	dropped      prometheus.Counter
	modelCounts
}

func newMetrics(reg prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 16)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cellmq_requests_total",
			Help: "Requests that left the worker, by finish reason, error code, handed_back, lease_lost, answered_before, replayed, no_reply or unsent.",
		}, []string{"model", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cellmq_refusals_total", Help: "Requests answered with an error without running, by error code.",
		}, []string{"code"}),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cellmq_redeliveries_total", Help: "Requests that came for another attempt.",
		}),
		rows: histogram("cellmq_step_rows", "Rows in a step.", prometheus.ExponentialBuckets(1, 2, 9)),
		step: histogram("cellmq_step_duration_seconds", "Time the backend took for a step.",
			prometheus.ExponentialBuckets(0.000_02, 2, 16)),
		brokerWait: histogram("cellmq_broker_wait_seconds", "Time from publishing to arrival at the worker.", seconds),
		queueWait: histogram("cellmq_queue_wait_seconds", "Time from arrival to submission to the step loop.",
			prometheus.ExponentialBuckets(0.000_01, 4, 10)),
		firstToken: histogram("cellmq_first_token_seconds", "Time from arrival to the first token.", seconds),
		total:      histogram("cellmq_request_duration_seconds", "Time from publishing to the terminal frame.", seconds),
	}
	m.records(histogram("cellmq_store_wait_seconds", "Time from a final to the server's word that it is stored.", seconds))
	m.modelCounts = newModelCounts(reg)
	reg.MustRegister(m.requests, m.refusals, m.redeliveries, m.rows, m.step,
		m.brokerWait, m.queueWait, m.firstToken, m.total,
		m.storeWait, m.letters, m.lostLetters, m.fenced, m.excused, m.unstored, m.checkpoints, m.restored, m.reconciled, m.residue,
		m.storeless, m.short, m.dropped)
	return m
}

// records makes what counts the records beside the queue.
func (m *metrics) records(storeWait prometheus.Histogram) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m.storeWait = storeWait
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
}

// stepped counts a step.
func (m *metrics) stepped(t cellrt.StepTrace) {
	m.rows.Observe(float64(t.Rows))
	m.step.Observe(t.Duration.Seconds())
}

// closed counts a run that left.
func (m *metrics) closed(r *run, outcome string, now time.Time) {
	m.requests.WithLabelValues(r.modelLabel(), outcome).Inc()
	if r.refusal != nil {
		m.refusals.WithLabelValues(outcome).Inc()
		return
	}
	timing := r.timing(now)
	m.brokerWait.Observe(timing.Broker.Seconds())
	m.queueWait.Observe(timing.Queue.Seconds())
	if !r.firstToken.IsZero() {
		m.firstToken.Observe(timing.FirstToken.Seconds())
	}
	m.total.Observe(timing.Total.Seconds())
}

// live are the figures that are read where they live when somebody asks.
type live struct {
	running     func() (durable, realtime int)
	slots       func() (durable, realtime int)
	stats       func() cellrt.Stats
	runningDesc *prometheus.Desc
	slotsDesc   *prometheus.Desc
	freeDesc    *prometheus.Desc
	tokensDesc  *prometheus.Desc
	stepsDesc   *prometheus.Desc
	rowsDesc    *prometheus.Desc
	paddedDesc  *prometheus.Desc

	mu         sync.Mutex
	last, gone map[cellName]cellCount // as they were, and of versions that have gone
}

// newLive returns the collector of w's live figures.
func newLive(w *Worker) *live {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &live{
		running: func() (int, int) { return countPaths(w.table.all()) },
		slots:   func() (int, int) { return w.cfg.Slots, w.cfg.realtimeSlots() },
		stats:   w.runtime.Stats,

		runningDesc: desc("cellmq_running_requests", "Requests that run now."),
		slotsDesc:   desc("cellmq_slots", "Requests that can run at the same time.", "path"),
		freeDesc:    desc("cellmq_free_slots", "Slots of the path that no running request takes.", "path"),
		tokensDesc:  desc("cellmq_tokens_total", "Tokens emitted."),
		stepsDesc:   desc("cellmq_steps_total", "Steps run.", "model", "cell"),
		rowsDesc:    desc("cellmq_rows_total", "Rows run.", "model", "cell"),
		gone:        map[cellName]cellCount{},
		paddedDesc:  desc("cellmq_padded_rows_total", "Rows computed that were no request's."),
	}
}

// Describe implements [prometheus.Collector].
func (l *live) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		l.runningDesc, l.slotsDesc, l.freeDesc, l.tokensDesc, l.stepsDesc, l.rowsDesc, l.paddedDesc,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *live) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	durable, realtime := l.running()
	durableSlots, realtimeSlots := l.slots()
	gauge(l.runningDesc, durable+realtime)
	gauge(l.slotsDesc, durableSlots, "durable")
	gauge(l.slotsDesc, realtimeSlots, "realtime")
	// Not the credits: an idle queue's poll holds one, and no request runs.
	gauge(l.freeDesc, max(durableSlots-durable, 0), "durable")
	gauge(l.freeDesc, max(realtimeSlots-realtime, 0), "realtime")
	stats := l.stats()
	counter(l.tokensDesc, stats.Tokens)
	counter(l.paddedDesc, stats.PaddedRows)
	for name, c := range l.ever(stats.Cells) {
		counter(l.stepsDesc, c.steps, name.model, name.cell)
		counter(l.rowsDesc, c.rows, name.model, name.cell)
	}
}

// cellName names a cell of a model, of all its versions.
type cellName struct{ model, cell string }

// cellCount counts what a cell ran.
type cellCount struct{ steps, rows uint64 }

// ever returns the counts of cells since the worker started: those of versions that
// were unloaded stay in them, as of the last time somebody asked.
func (l *live) ever(cells []cellrt.CellStats) map[cellName]cellCount {
	now := map[cellName]cellCount{}
	for _, c := range cells {
		name := cellName{c.Program, c.Cell}
		sum := now[name]
		now[name] = cellCount{sum.steps + c.Steps, sum.rows + c.Rows}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, last := range l.last {
		if n := now[name]; n.steps < last.steps || n.rows < last.rows { // a version has gone
			gone := l.gone[name]
			l.gone[name] = cellCount{gone.steps + last.steps - min(n.steps, last.steps), gone.rows + last.rows - min(n.rows, last.rows)}
		}
	}
	l.last = now
	out := map[cellName]cellCount{}
	for name, n := range now {
		gone := l.gone[name]
		out[name] = cellCount{n.steps + gone.steps, n.rows + gone.rows}
	}
	return out
}

// countPaths counts the runs of each path.
func countPaths(runs []*run) (durable, realtime int) {
	for _, r := range runs {
		if r.req.Durable {
			durable++
		} else {
			realtime++
		}
	}
	return durable, realtime
}
