package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

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
