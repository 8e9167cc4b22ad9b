package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// deployedNames bounds the names of models that counters have which count what was
// only deployed. Where a server has no users everybody can deploy any name.
const (
	deployedNames = 1024
	otherModels   = "other"
)

// modelCounts count what happens to models. Models are those served here or
// deployed; beyond [deployedNames] the newer ones are counted as [otherModels].
type modelCounts struct {
	names *firstNames

	load        prometheus.Histogram
	loads       *prometheus.CounterVec // model, result
	deployments *prometheus.CounterVec // model, result
	pinned      prometheus.Counter
}

func newModelCounts(reg prometheus.Registerer) modelCounts {
	m := modelCounts{
		names: newFirstNames(deployedNames, otherModels),
		load: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cellmq_model_load_seconds", Help: "Time from a version's files to its being ready, golden outputs included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cellmq_model_loads_total", Help: "Versions loaded, by result: ok, or failed at any step from their files on, for want of room too.",
		}, []string{"model", "result"}),
		deployments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cellmq_deployments_total", Help: "Versions that this worker made the active one, or refused.",
		}, []string{"model", "result"}),
		pinned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cellmq_pinned_requests_total", Help: "Requests whose version was written down, since it is not the one that the deployment's rule says, or the rule was not known for sure.",
		}),
	}
	reg.MustRegister(m.load, m.loads, m.deployments, m.pinned)
	return m
}

// loaded counts a version that was loaded.
func (m *modelCounts) loaded(model string, took time.Duration) {
	m.loads.WithLabelValues(m.names.of(model), "ok").Inc()
	m.load.Observe(took.Seconds())
}

// versionFailed counts and logs a version that cannot be loaded, at whatever step.
func (w *Worker) versionFailed(k versions.Key, err error) {
	w.metrics.loads.WithLabelValues(w.metrics.names.of(k.Model), "failed").Inc()
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "model not loaded", slog.String("model", k.Model),
		slog.String("version", w.versionName(k)), slog.String("digest", k.Digest), slog.Any("error", err))
}

// deployed counts what a record that this worker wrote decides.
func (m *modelCounts) deployed(model string, before, after *registry.Deployment) {
	switch {
	case len(after.Refused) > 0 && (len(before.Refused) == 0 || after.Refused[0] != before.Refused[0]):
		m.deployments.WithLabelValues(m.names.of(model), "refused").Inc()
	case after.Active != before.Active:
		m.deployments.WithLabelValues(m.names.of(model), "active").Inc()
	}
}

// liveModels are the figures of versions, read when somebody asks: those of a
// version that has gone are gone too.
type liveModels struct {
	worker *Worker

	info, bytes, failed, requests, evictions, memory, budget, age *prometheus.Desc
}

func newLiveModels(w *Worker) *liveModels {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &liveModels{
		worker:    w,
		info:      desc("cellmq_model_info", "1 for each version of a model that the worker has or should have.", "model", "version", "digest", "weights", "state"),
		bytes:     desc("cellmq_model_bytes", "Memory of a version: its weights, what of these it shares with others, and the state of its sequences.", "model", "version", "kind"),
		failed:    desc("cellmq_model_failed", "1 for each version that is wanted here and cannot be loaded.", "model", "version"),
		requests:  desc("cellmq_version_requests_total", "Requests that left the worker, by the version that served them: ok, failed through no fault of their own, or other.", "model", "version", "outcome"),
		evictions: desc("cellmq_model_evictions_total", "Versions unloaded to make room for others."),
		memory:    desc("cellmq_model_memory_bytes", "Memory of all versions, shared weights counted once."),
		budget:    desc("cellmq_model_budget_bytes", "What versions may take; 0: no bound."),
		age:       desc("cellmq_registry_age_seconds", "Time since the deployments were read; absent without a registry."),
	}
}

// Describe implements [prometheus.Collector].
func (l *liveModels) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.info, l.bytes, l.failed, l.requests, l.evictions, l.memory, l.budget, l.age} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *liveModels) Collect(ch chan<- prometheus.Metric) {
	gauge := gaugeTo(ch)
	sums := map[versionLabels]versionSum{} // several of one name have one series
	for _, s := range l.worker.versions.Status() {
		name := versionLabels{s.Model, l.worker.versionName(s.Key)}
		gauge(l.info, 1, name.model, name.version, s.Digest, l.worker.shown(s.Key, registry.Ref{}).Weights, string(s.State))
		sums[name] = sums[name].plus(s)
	}
	for name, sum := range sums {
		l.collectVersion(ch, name, sum)
	}
	totals := l.worker.versions.Totals()
	counterTo(ch)(l.evictions, float64(totals.Evictions))
	gauge(l.memory, float64(totals.Bytes))
	gauge(l.budget, float64(totals.Budget))
	if polled := l.worker.polled.Load(); polled > 0 {
		gauge(l.age, max(time.Since(time.Unix(0, polled)).Seconds(), 0))
	}
}

// versionSum is what versions of one name have.
type versionSum struct {
	failed, resident       bool
	weights, shared, state int64
}

func (v versionSum) plus(s versions.Status) versionSum {
	v.failed = v.failed || s.State == versions.Failed
	if s.State.Resident() {
		v.resident = true
		v.weights += s.WeightBytes
		v.shared += s.SharedBytes
		v.state += s.StateBytes
	}
	return v
}

// collectVersion shows what versions of one name have.
func (l *liveModels) collectVersion(ch chan<- prometheus.Metric, name versionLabels, sum versionSum) {
	gauge, counter := gaugeTo(ch), counterTo(ch)
	if sum.failed {
		gauge(l.failed, 1, name.model, name.version)
	}
	if sum.resident {
		gauge(l.bytes, float64(sum.weights), name.model, name.version, "weights")
		gauge(l.bytes, float64(sum.shared), name.model, name.version, "shared")
		gauge(l.bytes, float64(sum.state), name.model, name.version, "state")
	}
	e := l.worker.tally.named(name)
	counter(l.requests, float64(e.ok), name.model, name.version, tallyOK)
	counter(l.requests, float64(e.failed), name.model, name.version, tallyFailed)
	counter(l.requests, float64(e.other), name.model, name.version, tallyOther)
}

// versionName names a version in metrics: as clients do, or while its files have not
// been read, as the deployment does. Without either it has its digest.
func (w *Worker) versionName(k versions.Key) string {
	if facts, ok := w.loader.known(k); ok {
		return facts.shown.Version
	}
	if name := w.loader.called(k); name != "" {
		return name
	}
	return k.Digest[:min(len(k.Digest), 12)]
}
