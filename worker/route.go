package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// settle makes the routes that follow from deployments and from what is in memory,
// and has requests taken for the models that have one.
func (f *follower) settle(ctx context.Context) {
	w := f.worker
	old, next := w.routes.Load(), f.routes(time.Now())
	f.await(next)
	if old.same(next) && !f.unset {
		return
	}
	w.routes.Store(next)
	if f.front == (front{}) {
		return
	}
	if err := f.offer(ctx, old, next); err != nil {
		f.unset = true
		if ctx.Err() != nil {
			return
		}
		f.log.Warn("models not offered yet", slog.Any("error", err))
		return
	}
	f.unset = false
	f.log.Info("models offered", slog.Any("models", next.names()))
}

// await notes which models the worker was told to serve and has to wait for, and
// logs them when they have changed.
func (f *follower) await(next *routes) {
	w := f.worker
	var awaited []string
	for _, name := range w.lacked {
		if rt := next.byModel[name]; rt != nil && !rt.leaving {
			continue
		}
		why := "not deployed yet"
		if d := f.deployments[name]; d != nil {
			why = "not loaded yet"
			for _, s := range w.versions.Status() {
				if s.Model == name && s.Digest == d.Active.Digest && s.Reason != "" {
					why = s.Reason
				}
			}
		}
		awaited = append(awaited, fmt.Sprintf("model %s: %s", name, why))
	}
	text := strings.Join(awaited, "; ")
	if old := w.awaited.Swap(&text); text != "" && (old == nil || *old != text) {
		f.log.Warn("waiting for models", slog.Any("for", awaited))
	}
}

// offer tells the server and clients which models are served. What is new is
// offered when everything for it is there; what leaves is first taken no more
// requests for.
func (f *follower) offer(ctx context.Context, old, next *routes) error {
	w := f.worker
	ctx, cancel := context.WithTimeout(ctx, setWait)
	defer cancel()
	names := next.names()
	if !slices.Equal(old.names(), names) || f.unset {
		if err := w.conn.EnsureStreams(ctx, names); err != nil {
			return err
		}
		if err := w.conn.EnsureConsumers(ctx, names); err != nil {
			return err
		}
	}
	if len(names) < len(old.names()) {
		if err := f.front.intake.SetModels(names); err != nil {
			return err
		}
	}
	if f.unset || !slices.Equal(old.describe(), next.describe()) {
		if err := f.front.service.SetModels(ctx, next.describe()); err != nil {
			return err
		}
	}
	return f.front.intake.SetModels(names)
}

// routes makes the routes as they should be.
func (f *follower) routes(now time.Time) *routes {
	w := f.worker
	status := map[versions.Key]versions.Status{}
	byModel := map[string][]versions.Status{}
	needed := map[versions.Key]bool{}
	for _, s := range w.versions.Status() {
		status[s.Key], needed[s.Key] = s, true
		byModel[s.Model] = append(byModel[s.Model], s)
	}
	w.loader.keep(needed)
	names := maps.Clone(w.own)
	for model := range f.deployments {
		names[model] = w.own[model]
	}
	next := &routes{byModel: map[string]*route{}}
	for model, own := range names {
		rt := &route{own: own, active: own, deployment: f.deployments[model]}
		active := registry.Ref{}
		if rt.deployment != nil {
			active = rt.deployment.Active
			rt.active, _ = keyAt(model, active, own)
		}
		f.served[model] = f.serves(model, status[rt.active])
		if !f.served[model] {
			f.leave(model, now, next)
			continue
		}
		delete(f.leaving, model)
		rt.shown = w.shown(rt.active, active)
		rt.named = w.named(byModel[model], rt.active)
		next.byModel[model] = rt
	}
	return next
}

// serves reports whether a model is served whose active version is in this state:
// one that is in memory, or was, or waits for room until it is asked for.
func (f *follower) serves(model string, s versions.Status) bool {
	switch {
	case s.State.Resident():
		return true
	case s.State == versions.Failed, s.Digest == "":
		return false
	case s.State == versions.Cold && s.Reason != "":
		return true
	}
	return f.served[model]
}

// leave keeps the route of a model for a while that is no longer served.
func (f *follower) leave(model string, now time.Time, next *routes) {
	old := f.worker.routes.Load().byModel[model]
	if old == nil {
		return
	}
	since, ok := f.leaving[model]
	if !ok {
		since = now
		f.leaving[model] = now
	}
	if now.Sub(since) < leaveAfter {
		rt := *old
		rt.leaving = true
		next.byModel[model] = &rt
	}
}

// shown is what clients are told of a version.
func (w *Worker) shown(k versions.Key, ref registry.Ref) broker.ServedModel {
	if facts, ok := w.loader.known(k); ok {
		return facts.shown
	}
	return broker.ServedModel{Name: k.Model, Version: ref.Version, Digest: k.Digest}
}

// named are the versions in memory by their name. Of several of one name the
// active one is meant.
func (w *Worker) named(all []versions.Status, active versions.Key) map[string]versions.Key {
	out := map[string]versions.Key{}
	for _, s := range all {
		facts, ok := w.loader.known(s.Key)
		if ok && (s.State.Resident() || s.Key == active) && (s.Key == active || out[facts.shown.Version] != active) {
			out[facts.shown.Version] = s.Key
		}
	}
	return out
}
