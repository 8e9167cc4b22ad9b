package worker

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/registry"
)

// show lets the worker be watched until ctx ends. Without it the worker serves all
// the same.
func (w *Worker) show(ctx context.Context) {
	var asking sync.WaitGroup
	var busy atomic.Bool
	// In a goroutine of its own: a server that does not answer delays no snapshot.
	ask := func() {
		if busy.CompareAndSwap(false, true) {
			asking.Go(func() {
				defer busy.Store(false)
				w.depths.refresh(w.conn, w.modelNames())
			})
		}
	}
	err := w.conn.Live(ctx, broker.LiveConfig{
		Worker:   w.cfg.Name,
		Snapshot: func(now time.Time) *broker.Snapshot { ask(); return w.snapshot(now) },
		Watched: func(watched bool) {
			w.recorder.watched.Store(watched)
			if !watched {
				w.recorder.forget()
			}
		},
	})
	asking.Wait()
	if err != nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "nobody can watch", slog.Any("error", err))
	}
}

// snapshot describes the worker at this moment.
func (w *Worker) snapshot(now time.Time) *broker.Snapshot {
	stats := w.runtime.Stats()
	runs := w.table.all()
	out := &broker.Snapshot{
		Version: clipText(w.deps.Version), ISA: isa(w.deps.Backend), Uptime: now.Sub(w.began).Milliseconds(),
		Slots: w.cfg.Slots, RealtimeSlots: w.cfg.realtimeSlots(),
		Tokens: stats.Tokens, Steps: stats.Steps, Rows: stats.Rows,
		Redeliveries: total(w.metrics.redeliveries), Letters: total(w.metrics.letters),
	}
	out.State, out.Reason = w.liveState()
	out.Running, out.RealtimeRunning = countPaths(runs)
	totals := w.versions.Totals()
	out.MemoryBytes, out.BudgetBytes = totals.Bytes, totals.Budget
	models := w.liveModels()
	w.outbox.countLive(runs, models)
	list := slices.SortedFunc(maps.Values(models), func(a, b *broker.LiveModel) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(a.Name, b.Name))
	})
	places, queued := cellPlaces{}, w.depths.live(now)
	for i := range list[:min(len(list), broker.LiveModels)] {
		out.Models = append(out.Models, *list[i])
		out.Models[i].Queued = queued[list[i].Name]
		places.add(&out.Models[i], i, &stats)
	}
	out.MoreModels = len(list) - len(out.Models)
	for _, x := range stats.Executors[:min(len(stats.Executors), broker.LiveExecutors)] {
		out.Executors = append(out.Executors, broker.LiveExecutor{Threads: x.Threads, BusyUS: uint64(x.Busy.Microseconds())})
	}
	w.recorder.show(now, out, places)
	return out
}

// liveState says how the worker is, and why.
func (w *Worker) liveState() (state, reason string) {
	switch err := w.readiness(); {
	case w.draining.Load():
		return broker.LiveDraining, ""
	case err != nil:
		return broker.LiveUnready, clipText(err.Error())
	}
	return broker.LiveServing, ""
}

// liveModels are the models that the worker has or should have, with their versions.
func (w *Worker) liveModels() map[string]*broker.LiveModel {
	out := map[string]*broker.LiveModel{}
	for _, s := range w.versions.Status() {
		m := out[s.Model]
		if m == nil {
			m = &broker.LiveModel{Name: s.Model, Cells: []broker.LiveCell{}}
			out[s.Model] = m
		}
		if len(m.Versions) == broker.LiveVersions {
			continue
		}
		shown := w.shown(s.Key, registry.Ref{})
		v := broker.LiveModelVersion{
			Version: clipText(w.versionName(s.Key)), Digest: s.Digest[:min(len(s.Digest), 12)], Weights: shown.Weights,
			State: string(s.State), Running: s.References,
		}
		if s.State.Resident() {
			v.Bytes = s.WeightBytes + s.SharedBytes + s.StateBytes
		}
		m.Versions = append(m.Versions, v)
	}
	return out
}

// countLive adds to models what runs are theirs, and what these have emitted.
func (o *outbox) countLive(runs []*run, models map[string]*broker.LiveModel) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range runs {
		if m := models[r.req.Model]; m != nil {
			m.Running++
			m.Tokens += uint64(len(r.tokens))
		}
	}
}

// cellPlaces says where the cells are in a snapshot.
type cellPlaces map[cellName][2]int

// add puts the cells of a model, of all its versions, into its place in a snapshot.
func (p cellPlaces) add(m *broker.LiveModel, place int, stats *cellrt.Stats) {
	for i := range stats.Cells {
		c := &stats.Cells[i]
		if c.Program != m.Name {
			continue
		}
		at, ok := p[cellName{c.Program, c.Cell}]
		if !ok {
			if len(m.Cells) == broker.LiveCells {
				continue
			}
			at = [2]int{place, len(m.Cells)}
			p[cellName{c.Program, c.Cell}] = at
			m.Cells = append(m.Cells, broker.LiveCell{Name: clipText(c.Cell), Reasons: map[string]uint64{}})
		}
		cell := &m.Cells[at[1]]
		cell.MaxRows = max(cell.MaxRows, c.MaxRows)
		cell.Steps += c.Steps
		cell.Rows += c.Rows
		cell.Ready += c.Ready
		for tier, n := range c.Tiers {
			if n > 0 {
				cell.Reasons[cellrt.Tier(tier).String()] += n
			}
		}
	}
}

// show puts what was recorded into a snapshot.
func (c *recorder) show(now time.Time, out *broker.Snapshot, places cellPlaces) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range out.Models {
		m := &out.Models[i]
		if r := c.models[m.Name]; r != nil {
			m.Outcomes = maps.Clone(r.outcomes)
			m.Tokens += r.tokens
			m.Latency = r.latency(now)
		}
	}
	for name, at := range places {
		if counts := c.cells[name]; counts != nil {
			n := len(counts)
			for n > 0 && counts[n-1] == 0 {
				n--
			}
			out.Models[at[0]].Cells[at[1]].RowsLog2 = slices.Clone(counts[:n])
		}
	}
	for i := range min(len(c.last), len(out.Executors)) {
		out.Executors[i].Model, out.Executors[i].Cell = c.last[i].model, clipText(c.last[i].cell)
	}
	first := uint64(0)
	if c.seen > broker.LiveSteps {
		first = c.seen - broker.LiveSteps
	}
	for n := first; n < c.seen; n++ {
		s := &c.steps[n%broker.LiveSteps]
		at, ok := places[s.name]
		if !ok {
			continue
		}
		out.Recent = append(out.Recent, broker.LiveStep{
			Number: s.number, Model: at[0], Cell: at[1], Executor: s.executor, Micros: s.took.Microseconds(), Rows: s.rows,
			Slots: slices.Clone(s.slots[:min(s.rows, len(s.slots))]),
		})
	}
}

// total is the sum of a collector's counters.
func total(c prometheus.Collector) uint64 {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		c.Collect(metrics)
	}()
	var sum float64
	for m := range metrics {
		var out dto.Metric
		if m.Write(&out) == nil {
			sum += out.GetCounter().GetValue()
		}
	}
	return uint64(sum)
}
