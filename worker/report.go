package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// How often a worker reports: at rest, while a deployment is under way, and at most.
const (
	reportEvery = 5 * time.Second
	reportBusy  = time.Second - 50*time.Millisecond // less than a tick, which comes late or early
	reportMost  = 500 * time.Millisecond
)

// reportVersions is how many versions of a model a report has at most.
const reportVersions = 8

// away reports whether there is no registry to talk to.
func (f *follower) away() bool {
	w := f.worker
	return !w.shelf.open() || w.polled.Load() == 0 || f.trouble != "" && len(f.deployments) == 0
}

// report tells the registry what the worker has, when that is due.
func (f *follower) report(ctx context.Context, now time.Time) {
	if f.away() {
		return
	}
	state := f.state()
	since := now.Sub(f.told)
	due := since >= reportEvery || f.busy() && since >= reportBusy || state != f.reported && since >= reportMost
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	f.told = now
	report := f.worker.report(f.deployments).Fit()
	err := f.worker.shelf.Report(ctx, report)
	f.remark(&report, err)
	if err == nil {
		f.reported = state
	}
}

// remark logs what is wrong with reports when that begins.
func (f *follower) remark(report *registry.Report, err error) {
	if err != nil && !errors.Is(err, registry.ErrNoRegistry) && !f.unheard {
		f.log.Warn("not reported", slog.Any("error", err))
	}
	f.unheard = err != nil
	if report.Omitted > 0 && !f.omits {
		f.log.Warn("more models than a report has room for: those whose deployment is under way come first",
			slog.Int("reported", len(report.Models)), slog.Int("omitted", report.Omitted))
	}
	f.omits = report.Omitted > 0
}

// farewell reports no models, so that nobody waits for this worker.
func (f *follower) farewell() {
	if f.away() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pollWait)
	defer cancel()
	if err := f.worker.shelf.Report(ctx, registry.Report{Worker: f.worker.cfg.Name}); err != nil {
		f.log.Debug("not reported", slog.Any("error", err))
	}
}

// busy reports whether a deployment is under way.
func (f *follower) busy() bool {
	for _, d := range f.deployments {
		if d.Phase != registry.Steady {
			return true
		}
	}
	return false
}

// state is what of a report does not wait for the next one.
func (f *follower) state() string {
	var b strings.Builder
	for _, s := range f.worker.versions.Status() {
		fmt.Fprintf(&b, "%s %s %s %s\n", s.Model, s.Digest, s.State, s.Reason)
	}
	for _, name := range f.worker.routes.Load().names() {
		fmt.Fprintln(&b, name)
	}
	return b.String()
}

// report describes all versions that the worker has or should have.
func (w *Worker) report(deployments map[string]*registry.Deployment) registry.Report {
	totals := w.versions.Totals()
	out := registry.Report{Worker: w.cfg.Name, MemoryBytes: totals.Bytes, BudgetBytes: totals.Budget}
	models := map[string]*registry.ModelReport{}
	for name, d := range deployments {
		models[name] = &registry.ModelReport{Model: name, Serial: d.Serial}
	}
	for _, s := range w.versions.Status() {
		m := models[s.Model]
		if m == nil {
			m = &registry.ModelReport{Model: s.Model}
			models[s.Model] = m
		}
		if len(m.Versions) < reportVersions {
			m.Versions = append(m.Versions, w.reportOf(s, deployments[s.Model]))
		}
	}
	for _, m := range models {
		out.Models = append(out.Models, *m)
	}
	slices.SortFunc(out.Models, func(a, b registry.ModelReport) int {
		return cmp.Or(cmp.Compare(rank(&a, deployments[a.Model]), rank(&b, deployments[b.Model])), cmp.Compare(a.Model, b.Model))
	})
	return out
}

// rank is the place of a model in a report that may not have room for all.
func rank(m *registry.ModelReport, d *registry.Deployment) int {
	failed := func(v registry.VersionReport) bool { return v.State == registry.StateFailed }
	switch {
	case d != nil && d.Phase == registry.Loading:
		return 0 // others wait for this worker
	case d != nil && d.Phase != registry.Steady:
		return 1
	case slices.ContainsFunc(m.Versions, failed):
		return 2
	case d != nil:
		return 3
	}
	return 4
}

func (w *Worker) reportOf(s versions.Status, d *registry.Deployment) registry.VersionReport {
	facts, _ := w.loader.known(s.Key)
	name, _, _ := strings.Cut(facts.shown.Version, "+"+facts.shown.Weights)
	if d != nil {
		for _, ref := range append([]registry.Ref{d.Active, d.Next, d.Previous}, d.Refused...) {
			if ref.Digest == s.Digest {
				name = ref.Version
			}
		}
	}
	return registry.VersionReport{
		Ref: registry.Ref{Version: cmp.Or(name, "unknown"), Digest: s.Digest}, State: string(s.State), Reason: s.Reason,
		Weights: facts.shown.Weights, LoadMillis: s.Took.Milliseconds(),
		WeightBytes: s.WeightBytes, SharedBytes: s.SharedBytes, StateBytes: s.StateBytes,
		Golden: s.Golden.Cases, GoldenEqual: s.Golden.Equal, SelfMade: facts.selfMade,
		Running: s.References, Counts: w.tally.of(s.Key).report(),
	}
}

// advance writes what follows for deployments from what workers report. Whoever
// serves the model does, and the first one counts.
func (f *follower) advance(ctx context.Context, now time.Time) {
	w := f.worker
	if f.away() {
		return
	}
	f.meet(w.shelf.nc.Stats().Reconnects, now)
	if now.Before(f.quiet) || !f.busy() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	reports, err := w.shelf.Reports(ctx)
	if err != nil {
		f.log.Debug("reports not read", slog.Any("error", err))
		return
	}
	for model, d := range f.deployments {
		if d.Phase == registry.Steady || d.Stored.IsZero() {
			continue
		}
		next, changed := d.Advance(reports, now.Sub(f.stages[model].since), w.cfg.Name)
		if !changed {
			continue
		}
		switch err := w.shelf.Write(ctx, next); {
		case err == nil:
			w.metrics.deployed(model, d, next)
		case !errors.Is(err, registry.ErrConflict):
			f.log.Warn("deployment not written", slog.String("model", model), slog.Any("error", err))
		}
	}
}

// meet has the worker decide nothing for a while when others may not have reported
// yet: after each reconnect, and when it meets a deployment under way at its first
// look. One that begins later finds the reports of all that live.
func (f *follower) meet(reconnects uint64, now time.Time) {
	if reconnects != f.session || !f.met && f.busy() {
		f.quiet = now.Add(registry.ReportLife)
	}
	f.session, f.met = reconnects, true
}

// nothing says why the worker has no model to serve.
func (f *follower) nothing() error {
	for _, s := range f.worker.versions.Status() {
		if s.Reason != "" {
			return fmt.Errorf("%w: %s: %s", ErrModel, s.Model, s.Reason)
		}
	}
	return fmt.Errorf("%w: there is none", ErrModel)
}
