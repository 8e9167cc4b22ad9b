package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// modelCounts count what happens to models. Names of models are those served here
// or deployed: their number is an operator's.
type modelCounts struct {
	load        prometheus.Histogram
	loads       *prometheus.CounterVec // model, result
	deployments *prometheus.CounterVec // model, result
	pinned      prometheus.Counter
}

func newModelCounts(reg prometheus.Registerer) modelCounts {
	m := modelCounts{
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
	m.loads.WithLabelValues(model, "ok").Inc()
	m.load.Observe(took.Seconds())
}

// versionFailed counts and logs a version that cannot be loaded, at whatever step.
func (w *Worker) versionFailed(k versions.Key, err error) {
	w.metrics.loads.WithLabelValues(k.Model, "failed").Inc()
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "model not loaded", slog.String("model", k.Model),
		slog.String("version", w.versionName(k)), slog.String("digest", k.Digest), slog.Any("error", err))
}

// deployed counts what a record that this worker wrote decides.
func (m *modelCounts) deployed(model string, before, after *registry.Deployment) {
	switch {
	case len(after.Refused) > 0 && (len(before.Refused) == 0 || after.Refused[0] != before.Refused[0]):
		m.deployments.WithLabelValues(model, "refused").Inc()
	case after.Active != before.Active:
		m.deployments.WithLabelValues(model, "active").Inc()
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
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	seen, failed := map[[2]string]bool{}, map[[2]string]bool{} // two of one name have one series
	served := map[[2]string]endings{}
	for _, s := range l.worker.versions.Status() {
		version := l.worker.versionName(s.Key)
		served[[2]string{s.Model, version}] = served[[2]string{s.Model, version}].plus(l.worker.tally.of(s.Key))
		gauge(l.info, 1, s.Model, version, s.Digest, l.worker.shown(s.Key, registry.Ref{}).Weights, string(s.State))
		name := [2]string{s.Model, version}
		if s.State == versions.Failed && !failed[name] {
			failed[name] = true
			gauge(l.failed, 1, s.Model, version)
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		if s.State.Resident() {
			gauge(l.bytes, float64(s.WeightBytes), s.Model, version, "weights")
			gauge(l.bytes, float64(s.SharedBytes), s.Model, version, "shared")
			gauge(l.bytes, float64(s.StateBytes), s.Model, version, "state")
		}
	}
	for name, e := range served {
		for kind, n := range map[string]uint64{tallyOK: e.ok, tallyFailed: e.failed, tallyOther: e.other} {
			ch <- prometheus.MustNewConstMetric(l.requests, prometheus.CounterValue, float64(n), name[0], name[1], kind)
		}
	}
	totals := l.worker.versions.Totals()
	ch <- prometheus.MustNewConstMetric(l.evictions, prometheus.CounterValue, float64(totals.Evictions))
	gauge(l.memory, float64(totals.Bytes))
	gauge(l.budget, float64(totals.Budget))
	if polled := l.worker.polled.Load(); polled > 0 {
		gauge(l.age, max(time.Since(time.Unix(0, polled)).Seconds(), 0))
	}
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
