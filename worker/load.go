package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// models returns the models to serve, each with its weight type.
func (w *Worker) models() ([]*models.Model, error) {
	found := w.deps.Models
	var known []string
	if found == nil {
		var err error
		if found, known, err = findModels(w.cfg.ServeConfig); err != nil {
			return nil, err
		}
	}
	for _, m := range found {
		known = append(known, m.Name())
	}
	slices.Sort(known)
	return weigh(found, slices.Compact(known), w.cfg.Weights)
}

// findModels loads the bundled models and those of the configured directories,
// as far as they are wanted, in the order of their names. Known are the names
// of all, wanted or not.
func findModels(cfg ServeConfig) (_ []*models.Model, known []string, _ error) {
	wanted := func(name string) bool { return len(cfg.Models) == 0 || slices.Contains(cfg.Models, name) }
	found := map[string]*models.Model{}
	from := map[string]string{}
	for _, dir := range cfg.ModelDirs {
		loaded, err := models.LoadDir(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
		}
		if len(loaded) == 0 {
			return nil, nil, fmt.Errorf("%w: %s has no sub-directory with a config.json", ErrModel, dir)
		}
		for _, m := range loaded {
			if other, ok := from[m.Name()]; ok {
				return nil, nil, fmt.Errorf("%w: %s is in %s and in %s", ErrModel, m.Name(), other, dir)
			}
			from[m.Name()] = dir
			if wanted(m.Name()) {
				found[m.Name()] = m
			}
		}
	}
	for _, name := range zoo.Names() {
		if found[name] != nil || !wanted(name) {
			continue
		}
		m, err := zoo.Load(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", ErrModel, name, err)
		}
		found[name] = m
	}
	for _, name := range cfg.Models {
		if found[name] == nil {
			return nil, nil, fmt.Errorf("%w: %s is neither bundled nor in a model directory", ErrModel, name)
		}
	}
	out := make([]*models.Model, 0, len(found))
	for _, m := range found {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name() < out[j].Name() })
	return out, slices.AppendSeq(zoo.Names(), maps.Keys(from)), nil
}

// load puts the models into the runtime, which must run, and checks each
// against its golden outputs. One with another weight type than float32 has to
// pass with float32 first: what rounding may change says little about whether
// the files are whole.
func (w *Worker) load(ctx context.Context, found []*models.Model) error {
	slots := w.cfg.Slots + w.cfg.realtimeSlots()
	for _, m := range found {
		if m.Weights() != cellrt.F32 && m.GoldenCases() > 0 {
			if err := w.prove(ctx, m.WithWeights(cellrt.F32), min(slots, m.GoldenCases())); err != nil {
				return fmt.Errorf("%w: %s: golden outputs with f32 weights: %w", ErrModel, m.Name(), err)
			}
		}
		loaded, err := w.runtime.Load(m.Program(), slots)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrModel, m.Name(), err)
		}
		golden, err := m.VerifyGolden(ctx, slots, rehearse(w.runtime, loaded))
		if err != nil {
			return fmt.Errorf("%w: %s: golden outputs: %w", ErrModel, m.Name(), err)
		}
		w.resident[keyOf(m)] = newServed(keyOf(m), m, loaded)
		w.log.LogAttrs(ctx, slog.LevelInfo, "model loaded",
			slog.String("model", m.Name()), slog.String("version", m.Version()), slog.String("family", m.Family()),
			slog.Int("parameters", m.Parameters()), slog.String("digest", m.Digest()),
			slog.String("weights", m.Weights().String()), slog.Int("golden", golden.Cases), slog.Int("golden_equal", golden.Equal))
	}
	if len(w.resident) == 0 {
		return fmt.Errorf("%w: there is none", ErrModel)
	}
	w.routes.Store(routesTo(slices.Collect(maps.Values(w.resident))...))
	return nil
}
