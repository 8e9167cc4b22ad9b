package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// Fetch implements [versions.Loader].
func (l *loader) Fetch(ctx context.Context, k versions.Key) error {
	l.mu.Lock()
	own := l.local[k] != nil
	l.mu.Unlock()
	if own {
		return nil
	}
	dir, err := l.worker.cfg.CachePath()
	if err != nil {
		return err
	}
	return l.fetch(ctx, k, dir)
}

func (l *loader) fetch(ctx context.Context, k versions.Key, dir string) error {
	path := filepath.Join(dir, k.Digest)
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m, err := l.manifest(ctx, k)
	if err != nil {
		return err
	}
	if limit := l.worker.cfg.CacheBytes; m.Bytes() > limit {
		return fmt.Errorf("%w: %d bytes, and %s_CACHE_BYTES is %d", versions.ErrRefused, m.Bytes(), EnvPrefix, limit)
	}
	if err := trimCache(dir, l.worker.cfg.CacheBytes, m.Bytes(), l.worker.needsFiles); err != nil {
		return err
	}
	switch err := l.worker.shelf.Fetch(ctx, m, path, nil); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, registry.ErrDigest), errors.Is(err, registry.ErrIncomplete), errors.Is(err, registry.ErrMalformed):
		return fmt.Errorf("%w: %w", versions.ErrRefused, err)
	case err != nil:
		return err
	}
	l.worker.log.LogAttrs(ctx, slog.LevelInfo, "model fetched", slog.String("model", m.Model), slog.String("version", m.Version),
		slog.String("digest", m.Digest), slog.Int64("bytes", m.Bytes()), slog.Duration("took", time.Since(now)))
	return nil
}

// manifest finds a version in the registry.
func (l *loader) manifest(ctx context.Context, k versions.Key) (*registry.Manifest, error) {
	if !l.worker.shelf.open() {
		return nil, fmt.Errorf("%w: %.12s of %s is not here, and there is no registry", versions.ErrUnknown, k.Digest, k.Model)
	}
	all, err := l.worker.shelf.Versions(ctx, k.Model)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.Digest == k.Digest {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: %.12s of %s is not in the registry", versions.ErrUnknown, k.Digest, k.Model)
}

// opened is a version whose files are open.
type opened struct {
	key            versions.Key
	model          *models.Model
	dir            *models.Dir // nil of local ones
	stays          bool        // the model is not closed
	weights, state int64
	began          time.Time
	log            *slog.Logger
}

// Size implements [versions.Opened].
func (o *opened) Size() (weights, state int64) { return o.weights, o.state }

// Close implements [versions.Opened].
func (o *opened) Close() {
	if o.stays {
		return
	}
	o.model.Close()
	if o.dir == nil {
		return
	}
	if err := o.dir.Close(); err != nil {
		o.log.LogAttrs(context.Background(), slog.LevelWarn, "files of a model stay mapped", slog.String("model", o.key.Model), slog.Any("error", err))
	}
}

// Open implements [versions.Loader].
func (l *loader) Open(ctx context.Context, k versions.Key) (versions.Opened, error) {
	o := &opened{key: k, began: time.Now(), log: l.worker.log}
	err := l.read(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.weights, o.state, err = l.size(o.model); err != nil {
		o.Close()
		return nil, fmt.Errorf("%s: %w", k.Model, err)
	}
	l.mu.Lock()
	l.facts[k] = factsOf(o.model)
	l.mu.Unlock()
	return o, nil
}

// read reads the files of a version, and gives it the weight type that the
// operator chose.
func (l *loader) read(ctx context.Context, o *opened) error {
	l.mu.Lock()
	own := l.local[o.key]
	if own != nil {
		o.model, o.stays = own.model, own.again == nil
		if !o.stays {
			own.model = nil
		}
	}
	l.mu.Unlock()
	switch {
	case own == nil:
		return l.readCached(ctx, o)
	case o.model != nil:
		return nil // it has its weight type
	}
	m, err := own.again()
	if err != nil {
		return err
	}
	if o.model = m; m.Digest() != o.key.Digest {
		o.Close()
		return fmt.Errorf("%w: its files have changed since the start", versions.ErrRefused)
	}
	o.model = l.weights.weigh(m)
	return nil
}

// readCached reads fetched files. Those that are not what was fetched are fetched
// once more.
func (l *loader) readCached(ctx context.Context, o *opened) error {
	dir, err := l.worker.cfg.CachePath()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, o.key.Digest)
	damaged, err := o.readDir(path)
	if damaged {
		if removed := os.RemoveAll(path); removed != nil {
			return errors.Join(err, removed)
		}
		if err = l.fetch(ctx, o.key, dir); err == nil {
			_, err = o.readDir(path)
		}
	}
	if err != nil {
		return err
	}
	o.model = l.weights.weigh(o.model)
	return nil
}

// readDir reads a directory of the cache, and reports whether it is not that of
// the version.
func (o *opened) readDir(path string) (damaged bool, err error) {
	if o.dir, err = models.OpenDir(path); err != nil {
		return true, err
	}
	o.model, err = models.Load(o.dir, o.key.Model)
	var sum string
	if err == nil {
		sum = o.model.Digest()
	} else if sum, _ = models.Digest(o.dir); sum == o.key.Digest {
		return false, errors.Join(err, o.dir.Close()) // it is what was pushed, and no good
	}
	if sum == o.key.Digest {
		return false, nil
	}
	if o.model != nil {
		o.model.Close()
	}
	return true, errors.Join(fmt.Errorf("%w: the files have digest %.12s, %.12s wanted", versions.ErrRefused, sum, o.key.Digest), o.dir.Close())
}

// size returns the most that loading a model adds to what is in memory: itself, or
// what proves its files first.
func (l *loader) size(m *models.Model) (weights, state int64, err error) {
	sizer, ok := l.worker.deps.Backend.(cellrt.Sizer)
	if !ok {
		return 4 * int64(m.Parameters()), 0, nil
	}
	slots := l.worker.slots()
	weights, state, err = sizer.Size(m.Program(), slots)
	if err == nil && m.Weights() != cellrt.F32 && m.GoldenCases() > 0 {
		var w, s int64
		w, s, err = sizer.Size(m.WithWeights(cellrt.F32).Program(), min(slots, m.GoldenCases()))
		weights, state = max(weights, w), max(state, s)
	}
	return weights, state, err
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
