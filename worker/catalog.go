package worker

import (
	"maps"
	"slices"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
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
	// active is the version that serves new requests.
	active versions.Key
	// named are the versions in memory by the name that requests may give.
	named map[string]versions.Key
}

// names are those of the models, in order.
func (rs *routes) names() []string { return slices.Sorted(maps.Keys(rs.byModel)) }

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
		rs.byModel[s.key.Model] = &route{shown: s.shown, active: s.key, named: map[string]versions.Key{s.shown.Version: s.key}}
	}
	return rs
}

// acquire refers to a version in memory, until release.
func (w *Worker) acquire(k versions.Key) (*served, bool) {
	s, ok := w.resident[k]
	return s, ok
}

// release gives back what the run refers to.
func (w *Worker) release(*run) {}
