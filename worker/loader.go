package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

const (
	// besideOthers is how many golden outputs run at once beside requests.
	besideOthers = 4
	// unloadWait bounds how long a version that failed may take to leave.
	unloadWait = 5 * time.Second
)

// loader brings versions into the worker's runtime. It implements
// [versions.Loader].
type loader struct {
	worker  *Worker
	weights wantedWeights

	mu       sync.Mutex
	local    map[versions.Key]*local
	facts    map[versions.Key]facts
	names    map[versions.Key]string // of versions that deployments name
	resident []*cellrt.Model
}

// facts are what is known of a version since its files were read.
type facts struct {
	shown  broker.ServedModel
	family string
	golden int
	// selfMade says that its golden outputs are.
	selfMade bool
}

// local is a version that the worker has of its own.
type local struct {
	model *models.Model                 // open; nil: to be read again
	again func() (*models.Model, error) // nil: model is somebody else's, and stays open
}

func newLoader(w *Worker) *loader {
	return &loader{worker: w, local: map[versions.Key]*local{}, facts: map[versions.Key]facts{}, names: map[versions.Key]string{}}
}

// name learns what a deployment calls its versions, whose files may never be read.
func (l *loader) name(d *registry.Deployment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range slices.Concat([]registry.Ref{d.Active, d.Next, d.Previous}, d.Refused) {
		if ref != (registry.Ref{}) {
			l.names[versions.Key{Model: d.Model, Digest: ref.Digest}] = ref.Version
		}
	}
}

// called is what a deployment calls a version; empty if none does.
func (l *loader) called(k versions.Key) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[k]
}

// add makes a local version known.
func (l *loader) add(m *models.Model, again func() (*models.Model, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.local[keyOf(m)] = &local{model: m, again: again}
	l.facts[keyOf(m)] = factsOf(m)
	if l.worker.cfg.ModelBytes > 0 && again != nil { // what does not get room shall not take any
		m.Close()
		l.local[keyOf(m)].model = nil
	}
}

// drop forgets a local version.
func (l *loader) drop(k versions.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.local, k)
}

func factsOf(m *models.Model) facts {
	return facts{shown: shownOf(m), family: m.Family(), golden: m.GoldenCases(), selfMade: m.SelfMade()}
}

// known returns what is known of a version.
func (l *loader) known(k versions.Key) (facts, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.facts[k]
	return f, ok
}

// keep forgets the facts and names of all versions but local ones and those named.
func (l *loader) keep(needed map[versions.Key]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.facts {
		if l.local[k] == nil && !needed[k] {
			delete(l.facts, k)
		}
	}
	for k := range l.names {
		if !needed[k] {
			delete(l.names, k)
		}
	}
}

// Load implements [versions.Loader]. A model with another weight type than float32
// has to pass its golden outputs with float32 first: what rounding may change says
// little about whether the files are whole.
func (l *loader) Load(ctx context.Context, v versions.Opened, stage func(versions.State)) (*versions.Loaded, error) {
	o := v.(*opened) //nolint:forcetypeassert // it is what Open returned
	out, err := l.load(ctx, o, stage)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.key.Model, err)
	}
	m := o.model
	l.worker.metrics.loaded(m.Name(), out.Took)
	l.worker.log.LogAttrs(ctx, slog.LevelInfo, "model loaded",
		slog.String("model", m.Name()), slog.String("version", m.Version()), slog.String("family", m.Family()),
		slog.Int("parameters", m.Parameters()), slog.String("digest", m.Digest()),
		slog.String("weights", m.Weights().String()), slog.Int("golden", out.Golden.Cases), slog.Int("golden_equal", out.Golden.Equal),
		slog.Bool("golden_self_made", m.SelfMade()), slog.Duration("took", out.Took),
		slog.Int64("weight_bytes", out.Weights), slog.Int64("shared_bytes", out.Shared), slog.Int64("state_bytes", out.State))
	return out, nil
}

func (l *loader) load(ctx context.Context, o *opened, stage func(versions.State)) (*versions.Loaded, error) {
	w, m, slots := l.worker, o.model, l.worker.slots()
	if m.Weights() != cellrt.F32 && m.GoldenCases() > 0 {
		if err := w.prove(ctx, m.WithWeights(cellrt.F32), min(slots, m.GoldenCases())); err != nil {
			return nil, fmt.Errorf("golden outputs with f32 weights: %w", err)
		}
	}
	loaded, err := w.runtime.Load(m.Program(), slots)
	if err != nil {
		return nil, err
	}
	stage(versions.Verifying)
	atOnce := slots
	if w.serving.Load() {
		atOnce = min(slots, besideOthers)
	}
	golden, err := m.VerifyGolden(ctx, atOnce, rehearse(w.runtime, loaded))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("golden outputs: %w", err), l.dismiss(loaded))
	}
	out := &versions.Loaded{Model: m, Runtime: loaded, Golden: golden}
	out.Weights, out.State = loaded.Bytes()
	l.mu.Lock()
	without := cellrt.Footprint(l.resident...)
	l.resident = append(l.resident, loaded)
	out.Shared = max(out.Weights+out.State-(cellrt.Footprint(l.resident...)-without), 0)
	l.mu.Unlock()
	out.Took = time.Since(o.began)
	return out, nil
}

// dismiss unloads a version that failed, as soon as the last of its sequences has
// left.
func (l *loader) dismiss(m *cellrt.Model) error {
	for end := time.Now().Add(unloadWait); ; {
		err := l.worker.runtime.Unload(m)
		if !errors.Is(err, cellrt.ErrBusy) || time.Now().After(end) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Unload implements [versions.Loader].
func (l *loader) Unload(v *versions.Loaded) error {
	if err := l.worker.runtime.Unload(v.Runtime); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resident = slices.DeleteFunc(l.resident, func(m *cellrt.Model) bool { return m == v.Runtime })
	l.worker.log.LogAttrs(context.Background(), slog.LevelInfo, "model unloaded",
		slog.String("model", v.Model.Name()), slog.String("version", v.Model.Version()), slog.String("digest", v.Model.Digest()))
	return nil
}

// Footprint implements [versions.Loader].
func (l *loader) Footprint(all []*versions.Loaded) int64 {
	runtimes := make([]*cellrt.Model, len(all))
	for i, v := range all {
		runtimes[i] = v.Runtime
	}
	return cellrt.Footprint(runtimes...)
}
