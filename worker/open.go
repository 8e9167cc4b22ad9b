package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

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
