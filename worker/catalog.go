package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// served is a version of a model in memory.
type served struct {
	key    versions.Key
	shown  broker.ServedModel // what clients are told of it
	model  *models.Model
	loaded *cellrt.Model
}

func newServed(k versions.Key, m *models.Model, loaded *cellrt.Model) *served {
	return &served{key: k, shown: shownOf(m), model: m, loaded: loaded}
}

func shownOf(m *models.Model) broker.ServedModel {
	return broker.ServedModel{Name: m.Name(), Version: m.Version(), Digest: m.Digest(), Weights: m.Weights().String()}
}

// keyOf names a version as its model does.
func keyOf(m *models.Model) versions.Key { return versions.Key{Model: m.Name(), Digest: m.Digest()} }

// routes say which models are served here, and which versions of them. They are
// immutable: what changes is which routes the worker has.
type routes struct {
	byModel map[string]*route
}

// route is how requests of one model find their version.
type route struct {
	// shown is the version that serves new requests: for discovery, and for
	// letters of requests that had none.
	shown broker.ServedModel
	// active is the version that serves new requests, of a deployment what it calls
	// active.
	active versions.Key
	// own is the version that the worker has without a registry; zero: none.
	own versions.Key
	// named are the versions in memory by the name that requests may give.
	named map[string]versions.Key
	// deployment says what shall serve; nil: own does.
	deployment *registry.Deployment
	// leaving: the model is not served here any more, and what was on its way is.
	leaving bool
}

// key returns the version that a reference means here. It reports false for what
// each worker has of its own when this one has nothing.
func (rt *route) key(ref registry.Ref) (versions.Key, bool) { return keyAt(rt.shown.Name, ref, rt.own) }

func keyAt(model string, ref registry.Ref, own versions.Key) (versions.Key, bool) {
	if ref == (registry.Ref{}) {
		return own, own != versions.Key{}
	}
	return versions.Key{Model: model, Digest: ref.Digest}, true
}

// same reports whether two routes are alike.
func (rt *route) same(o *route) bool {
	return rt.shown == o.shown && rt.active == o.active && rt.own == o.own && rt.leaving == o.leaving &&
		revision(rt.deployment) == revision(o.deployment) && maps.Equal(rt.named, o.named)
}

// revision tells records of a model's deployment apart.
func revision(d *registry.Deployment) uint64 {
	if d == nil {
		return 0
	}
	return d.Revision
}

// same reports whether two tables are alike.
func (rs *routes) same(o *routes) bool { return maps.EqualFunc(rs.byModel, o.byModel, (*route).same) }

// names are those of the models that are served, in order.
func (rs *routes) names() []string {
	out := make([]string, 0, len(rs.byModel))
	for name, rt := range rs.byModel {
		if !rt.leaving {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// describe describes the models for discovery, in the order of their names.
func (rs *routes) describe() []broker.ServedModel {
	out := make([]broker.ServedModel, 0, len(rs.byModel))
	for _, name := range rs.names() {
		out = append(out, rs.byModel[name].shown)
	}
	return out
}

// routesTo returns the routes to models that have one version each.
func routesTo(all ...*served) *routes {
	rs := &routes{byModel: map[string]*route{}}
	for _, s := range all {
		rs.byModel[s.key.Model] = &route{shown: s.shown, active: s.key, own: s.key, named: map[string]versions.Key{s.shown.Version: s.key}}
	}
	return rs
}

// acquire refers to a version in memory, until release.
func (w *Worker) acquire(k versions.Key) (*served, bool) {
	l, ok := w.versions.Acquire(k)
	if !ok {
		return nil, false
	}
	return w.refer(k, l), true
}

// await is acquire for a version that has to be loaded. It also ends when somebody
// wants the run stopped.
func (w *Worker) await(ctx context.Context, r *run, k versions.Key) (*served, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	defer func() { <-watched }()
	go func() {
		defer close(watched)
		for wait(ctx, stopPoll) {
			if cause := w.outbox.stopAsked(r); cause != nil {
				cancel(cause)
			}
		}
	}()
	l, err := w.versions.Await(ctx, k)
	cancel(nil)
	if err != nil {
		return nil, err
	}
	return w.refer(k, l), nil
}

// stopPoll is how often a run that waits for its version looks whether it still
// should.
const stopPoll = 50 * time.Millisecond

func (w *Worker) refer(k versions.Key, l *versions.Loaded) *served {
	f, _ := w.loader.known(k)
	return &served{key: k, shown: f.shown, model: l.Model, loaded: l.Runtime}
}

// release gives back what a run refers to.
func (w *Worker) release(r *run) {
	if r.served != nil {
		w.versions.Release(r.served.key)
	}
}
