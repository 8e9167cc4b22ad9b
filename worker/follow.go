package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

const (
	// pollEvery is how often deployments are read. It is well below
	// [registry.Lead], so that a rule is known before it holds.
	pollEvery = time.Second
	// pollWait bounds an exchange with the registry.
	pollWait = 2 * time.Second
	// leaveAfter is how long a model that is no longer served is still answered for:
	// for requests that were on their way.
	leaveAfter = 30 * time.Second
	// setWait bounds how long the server may take to learn of other models.
	setWait = 10 * time.Second
)

// follower keeps the worker's versions and routes at what deployments say, tells
// the registry what the worker has, and moves deployments on. One goroutine uses
// it.
type follower struct {
	worker *Worker
	log    *slog.Logger

	deployments map[string]*registry.Deployment // of models that this worker may serve
	stages      map[string]stage                // since when this process knows them
	served      map[string]bool                 // models whose active version was ready once
	leaving     map[string]time.Time            // when models stopped being served
	trouble     string                          // with the registry, as it was logged

	front    front
	unset    bool      // front does not have the models of the routes yet
	told     time.Time // when the last report went out
	reported string    // the state that it told of
	unheard  bool      // it was not stored
	omits    bool      // it had no room for all models
	quiet    time.Time // no deployment is moved on before
	session  uint64    // of the registry's connection
	met      bool      // the deployments were looked at
}

// stage is where a deployment is, and since when this process knows.
type stage struct {
	registry.Stage
	since time.Time
}

// front is what takes requests. It is zero as long as nothing does.
type front struct {
	intake  *broker.Intake
	service *broker.Service
}

func newFollower(w *Worker) *follower {
	return &follower{
		worker: w, log: w.log, deployments: map[string]*registry.Deployment{}, stages: map[string]stage{},
		served: map[string]bool{}, leaving: map[string]time.Time{},
	}
}

// run follows until ctx ends. Then it reports that the worker serves nothing.
func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.farewell()
			return
		case <-tick.C:
			f.poll(ctx)
			f.settle(ctx)
			f.report(ctx, time.Now())
			f.advance(ctx, time.Now())
		case <-f.worker.changed:
			f.settle(ctx)
			f.report(ctx, time.Now())
		}
	}
}

// begin makes the routes that there are at the start: those of the worker's own
// models, and of deployments as far as the registry answers soon. It waits for the
// first model to serve. There is none when the worker has been told to leave.
func (f *follower) begin(ctx context.Context) error {
	w := f.worker
	f.settle(ctx) // its own models' routes
	f.poll(ctx)
	if err := w.settle(ctx); err != nil {
		return err
	}
	f.settle(ctx)
	for {
		if own := (&ownModels{lacked: w.lacked}); !w.shelf.open() && own.complete() != nil {
			return own.complete()
		}
		if len(w.routes.Load().names()) > 0 {
			return nil
		}
		if len(w.lacked) == 0 && f.away() {
			return f.nothing()
		}
		tick := time.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
			tick.Stop()
			return context.Cause(ctx)
		case <-w.leave:
			tick.Stop()
			return nil
		case <-w.conn.Closed():
			tick.Stop()
			return fmt.Errorf("broker: %w", broker.ErrClosed)
		case <-w.changed:
		case <-tick.C:
			f.poll(ctx)
			f.report(ctx, time.Now())
			f.advance(ctx, time.Now())
		}
		tick.Stop()
		f.settle(ctx)
	}
}

// poll reads the deployments. Those that cannot be read stay as they are.
func (f *follower) poll(ctx context.Context) {
	w := f.worker
	if !w.shelf.open() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	defer context.AfterFunc(w.shelf.on, cancel)()
	all, asked, err := w.shelf.Deployments(ctx)
	var unreadable *registry.UnreadableError
	switch {
	case !w.shelf.open():
		return
	case errors.As(err, &unreadable):
		for model := range unreadable.Records {
			if d := f.deployments[model]; d != nil {
				all[model] = d
			}
		}
	case err != nil:
		w.unregistered.Store(errors.Is(err, registry.ErrNoRegistry) && len(f.deployments) == 0)
		f.met = f.met || w.unregistered.Load() // nothing is under way where there is no registry
		f.complain(err)
		return
	}
	w.unregistered.Store(false)
	f.complain(err)
	w.polled.Store(asked.UnixNano())
	for model := range f.deployments {
		if all[model] == nil { // its bucket was made anew: what serves goes on
			all[model] = f.deployments[model]
		}
	}
	for model, d := range all {
		if w.mayServe(model) {
			f.follow(d)
		}
	}
}

// complain logs what is wrong with the registry when that has changed.
func (f *follower) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == f.trouble {
		return
	}
	switch {
	case errors.Is(err, registry.ErrNoRegistry):
		if f.trouble != "" || len(f.deployments) > 0 {
			f.log.Warn("the model registry is gone, what is served stays")
		} else {
			f.log.Debug("no model registry")
		}
	case err != nil:
		f.log.Warn("the model registry does not answer, what is served stays", slog.Any("error", err))
	default:
		f.log.Info("the model registry answers")
	}
	f.trouble = text
}

// follow has the versions loaded that a deployment wants.
func (f *follower) follow(d *registry.Deployment) {
	before := f.deployments[d.Model]
	f.deployments[d.Model] = d
	if s := f.stages[d.Model]; s.since.IsZero() || s.Stage != d.Stage() {
		f.stages[d.Model] = stage{d.Stage(), time.Now()}
	}
	if sameRecord(before, d) {
		return
	}
	w := f.worker
	w.loader.name(d)
	var keys []versions.Key
	for _, ref := range d.Wanted() {
		if k, ok := keyAt(d.Model, ref, w.own[d.Model]); ok && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	if k, ok := f.failure(before, d); ok && len(keys) == 1 && keys[0] != k {
		keys = append(keys, k)
	}
	pinned := d.Pinned || d.Phase != registry.Steady
	if before == nil || before.Serial != d.Serial {
		w.versions.Want(d.Model, keys[:min(len(keys), 1)], pinned) // what failed before is tried again
	}
	w.versions.Want(d.Model, keys, pinned)
	f.log.Info("deployment", slog.String("model", d.Model), slog.String("phase", string(d.Phase)), slog.Uint64("serial", d.Serial),
		slog.String("active", d.Active.Version), slog.String("next", d.Next.Version), slog.Int("share", d.Share), slog.String("reason", d.Reason))
}

// failure returns the version that the deployment refused and that cannot be loaded
// here. The reason is kept, for reports and metrics, until operators begin something
// else; nothing is tried again.
func (f *follower) failure(before, d *registry.Deployment) (versions.Key, bool) {
	if before == nil || before.Serial != d.Serial || d.Phase != registry.Steady || len(d.Refused) == 0 {
		return versions.Key{}, false
	}
	k := versions.Key{Model: d.Model, Digest: d.Refused[0].Digest}
	return k, slices.ContainsFunc(f.worker.versions.Status(), func(s versions.Status) bool { return s.Key == k && s.State == versions.Failed })
}

// mayServe reports whether the configuration lets the worker serve a model.
func (w *Worker) mayServe(model string) bool {
	return len(w.cfg.Models) == 0 || slices.Contains(w.cfg.Models, model)
}

// needsFiles reports whether files in the cache are in use, or wanted.
func (w *Worker) needsFiles(digest string) bool {
	return slices.ContainsFunc(w.versions.Status(), func(s versions.Status) bool { return s.Digest == digest })
}
