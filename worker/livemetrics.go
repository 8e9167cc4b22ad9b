package worker

import (
	"cmp"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellmq/cellmq/cellrt"
)

// live are the figures that are read where they live when somebody asks: what is
// under way is never counted up and down, so no error makes it drift.
type live struct {
	worker *Worker

	running, slots, free, padded, steps, rows, ready, stateSlots,
	busy, executors, threads, build *prometheus.Desc
}

// newLive returns the collector of w's live figures.
func newLive(w *Worker) *live {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &live{
		worker: w,

		running:    desc("cellmq_running_requests", "Requests that run now."),
		slots:      desc("cellmq_slots", "Requests that can run at the same time.", "path"),
		free:       desc("cellmq_free_slots", "Slots of the path that no running request takes.", "path"),
		padded:     desc("cellmq_padded_rows_total", "Rows computed that were no request's."),
		steps:      desc("cellmq_steps_total", "Steps run, by why it was this cell's turn: overdue, full, idle, any, or ahead of its turn.", "model", "cell", "reason"),
		rows:       desc("cellmq_rows_total", "Rows run.", "model", "cell"),
		ready:      desc("cellmq_ready_nodes", "Nodes that wait for a step now.", "model", "cell"),
		stateSlots: desc("cellmq_state_slots", "Slots of the arenas of a model's versions: free, live, or ending, which are free after the step that runs.", "model", "state"),
		busy:       desc("cellmq_executor_busy_seconds_total", "Time that an executor's steps took.", "executor"),
		executors:  desc("cellmq_executors", "Loops that run steps at the same time."),
		threads:    desc("cellmq_executor_threads", "Threads that share a step, of each executor."),
		build:      desc("cellmq_build_info", "1; what the worker was built from and computes with.", "version", "go_version", "isa"),
	}
}

// Describe implements [prometheus.Collector].
func (l *live) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		l.running, l.slots, l.free, l.padded, l.steps, l.rows, l.ready, l.stateSlots, l.busy, l.executors, l.threads, l.build,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *live) Collect(ch chan<- prometheus.Metric) {
	w := l.worker
	gauge := gaugeTo(ch)
	durable, realtime := countPaths(w.table.all())
	gauge(l.running, float64(durable+realtime))
	gauge(l.slots, float64(w.cfg.Slots), "durable")
	gauge(l.slots, float64(w.cfg.realtimeSlots()), "realtime")
	// Not the credits: an idle queue's poll holds one, and no request runs.
	gauge(l.free, float64(max(w.cfg.Slots-durable, 0)), "durable")
	gauge(l.free, float64(max(w.cfg.realtimeSlots()-realtime, 0)), "realtime")
	gauge(l.build, 1, cmp.Or(w.deps.Version, "unknown"), runtime.Version(), cmp.Or(isa(w.deps.Backend), "unknown"))
	stats := w.runtime.Stats()
	l.collectCells(ch, stats.Cells)
	l.collectSlots(ch, stats.Models)
	l.collectExecutors(ch, &stats)
}

func (l *live) collectCells(ch chan<- prometheus.Metric, cells []cellrt.CellStats) {
	counter, ready := counterTo(ch), map[cellName]int{}
	for _, c := range cells {
		name := cellName{c.Program, c.Cell}
		ready[name] += c.Ready
		l.worker.metrics.cells.of(name) // there from the beginning, with zeros
	}
	for name, m := range l.worker.metrics.cells.all() {
		for i := range m.steps {
			counter(l.steps, float64(m.steps[i].Load()), name.model, name.cell, cellrt.Tier(i).String())
		}
		counter(l.rows, float64(m.rows.Load()), name.model, name.cell)
		gaugeTo(ch)(l.ready, float64(ready[name]), name.model, name.cell)
	}
}

func (l *live) collectSlots(ch chan<- prometheus.Metric, models []cellrt.ModelStats) {
	sums := map[string]cellrt.ModelStats{}
	for _, m := range models {
		sum := sums[m.Program]
		sums[m.Program] = cellrt.ModelStats{Slots: sum.Slots + m.Slots, Free: sum.Free + m.Free, Ending: sum.Ending + m.Ending}
	}
	for name, m := range sums {
		gauge := gaugeTo(ch)
		gauge(l.stateSlots, float64(m.Free), name, "free")
		gauge(l.stateSlots, float64(m.Slots-m.Free-m.Ending), name, "live")
		gauge(l.stateSlots, float64(m.Ending), name, "ending")
	}
}

func (l *live) collectExecutors(ch chan<- prometheus.Metric, stats *cellrt.Stats) {
	counterTo(ch)(l.padded, float64(stats.PaddedRows))
	for i, e := range stats.Executors {
		counterTo(ch)(l.busy, e.Busy.Seconds(), strconv.Itoa(i))
	}
	gaugeTo(ch)(l.executors, float64(stats.Shape.Executors))
	gaugeTo(ch)(l.threads, float64(stats.Shape.Threads))
}

func gaugeTo(ch chan<- prometheus.Metric) func(*prometheus.Desc, float64, ...string) {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
}

func counterTo(ch chan<- prometheus.Metric) func(*prometheus.Desc, float64, ...string) {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
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
