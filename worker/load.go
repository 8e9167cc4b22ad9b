package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sort"

	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// ownModels are the models that a worker has without a registry.
type ownModels struct {
	models []*models.Model   // wanted ones, in the order of their names
	dirs   map[string]string // of those that come from a directory
	known  []string          // the names of all, wanted or not
	lacked []string          // names that are wanted, and are none of known
}

// complete returns an error that names a model that is wanted and not there.
func (o *ownModels) complete() error {
	if len(o.lacked) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is neither bundled nor in a model directory", ErrModel, o.lacked[0])
}

// again returns what reads a model's files once more.
func (o *ownModels) again(name string) func() (*models.Model, error) {
	if dir, ok := o.dirs[name]; ok {
		return func() (*models.Model, error) { return models.LoadFrom(filepath.Join(dir, name), name) }
	}
	return func() (*models.Model, error) { return zoo.Load(name) }
}

// findModels loads the bundled models and those of the configured directories,
// as far as they are wanted.
func findModels(cfg ServeConfig) (*ownModels, error) {
	wanted := func(name string) bool { return len(cfg.Models) == 0 || slices.Contains(cfg.Models, name) }
	found := map[string]*models.Model{}
	from := map[string]string{}
	for _, dir := range cfg.ModelDirs {
		loaded, err := models.LoadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
		}
		if len(loaded) == 0 {
			return nil, fmt.Errorf("%w: %s has no sub-directory with a config.json", ErrModel, dir)
		}
		for _, m := range loaded {
			if other, ok := from[m.Name()]; ok {
				return nil, fmt.Errorf("%w: %s is in %s and in %s", ErrModel, m.Name(), other, dir)
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
			return nil, fmt.Errorf("%w: %s: %w", ErrModel, name, err)
		}
		found[name] = m
	}
	own := &ownModels{dirs: from, known: slices.AppendSeq(zoo.Names(), maps.Keys(from))}
	for _, m := range found {
		own.models = append(own.models, m)
	}
	sort.Slice(own.models, func(i, j int) bool { return own.models[i].Name() < own.models[j].Name() })
	for _, name := range cfg.Models {
		if found[name] == nil {
			own.lacked = append(own.lacked, name)
		}
	}
	return own, nil
}

// loadOwn brings the worker's own models into memory, each checked against its
// golden outputs: without a memory budget all of them, else those there is room
// for. A model that fails ends the start, unless it is one that nobody asked for and
// is larger than the budget: then it is not offered here.
func (w *Worker) loadOwn(ctx context.Context) error {
	own := &ownModels{models: w.deps.Models}
	if w.deps.Models == nil {
		var err error
		if own, err = findModels(w.cfg.ServeConfig); err != nil {
			return err
		}
		w.lacked = own.lacked
	}
	for _, m := range own.models {
		own.known = append(own.known, m.Name())
	}
	slices.Sort(own.known)
	known := append(slices.Compact(own.known), own.lacked...)
	weighed, err := weigh(own.models, known, w.cfg.Weights)
	if err != nil {
		return err
	}
	if w.loader.weights, err = parseWeights(w.cfg.Weights); err != nil {
		return err
	}
	for _, m := range weighed {
		again := own.again(m.Name())
		if w.deps.Models != nil {
			again = nil
		}
		w.loader.add(m, again)
		w.own[m.Name()] = keyOf(m)
		w.versions.Want(m.Name(), []versions.Key{keyOf(m)}, false)
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	for _, s := range w.versions.Status() {
		if s.State != versions.Failed {
			continue
		}
		_, err := w.versions.Await(ctx, s.Key)
		if err == nil {
			w.versions.Release(s.Key) // tried again, with success
			continue
		}
		if errors.Is(err, versions.ErrBudget) {
			err = fmt.Errorf("%w (%s_MODEL_BYTES)", err, EnvPrefix)
			if w.bundled(own, s.Model) && len(w.own) > 1 {
				w.log.LogAttrs(ctx, slog.LevelWarn, "bundled model not served", slog.String("model", s.Model), slog.Any("error", err))
				w.disown(s.Key)
				continue
			}
		}
		return fmt.Errorf("%w: %w", ErrModel, err)
	}
	return nil
}

// bundled reports whether a model is there because it is bundled: nobody named it,
// and it is in no directory.
func (w *Worker) bundled(own *ownModels, name string) bool {
	_, placed := own.dirs[name]
	return w.deps.Models == nil && !placed && !slices.Contains(w.cfg.Models, name)
}

// disown forgets a version of the worker's own.
func (w *Worker) disown(k versions.Key) {
	w.versions.Want(k.Model, nil, false)
	w.loader.drop(k)
	delete(w.own, k.Model)
}

// settle waits until no version is on its way into memory.
func (w *Worker) settle(ctx context.Context) error {
	for {
		if !slices.ContainsFunc(w.versions.Status(), underWay) {
			return nil
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// underWay reports whether a version is on its way, and is held up by nothing.
func underWay(s versions.Status) bool {
	switch s.State {
	case versions.Loading, versions.Verifying:
		return true
	case versions.Absent, versions.Fetching, versions.Cold:
		return s.Reason == "" && s.Wanted
	}
	return false
}

// slots is how many sequences of a model can be live.
func (w *Worker) slots() int { return w.cfg.Slots + w.cfg.realtimeSlots() }
