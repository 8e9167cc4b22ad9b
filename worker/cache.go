package worker

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/registry"
)

// fetchOld is the age at which what an interrupted fetch left is nobody's.
const fetchOld = time.Hour

// cachedName is a directory of the cache: a version's digest.
var cachedName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// CachePath returns the directory where fetched models are kept, with the default
// resolved.
func (c Config) CachePath() (string, error) {
	if c.CacheDir != "" {
		return c.CacheDir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: set %s_CACHE_DIR: %w", EnvPrefix, err)
	}
	return filepath.Join(dir, "cellmq"), nil
}

// cached is a version in the cache.
type cached struct {
	digest string
	bytes  int64
	used   time.Time
}

// listCache returns the versions in the cache, the least recently used first.
func listCache(dir string) ([]cached, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cache: %w", err)
	}
	var out []cached
	for _, e := range entries {
		if !e.IsDir() || !cachedName.MatchString(e.Name()) {
			continue
		}
		c := cached{digest: e.Name()}
		if info, err := e.Info(); err == nil {
			c.used = info.ModTime()
		}
		files, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // another worker dropped it
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				c.bytes += info.Size()
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b cached) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.digest, b.digest)) })
	return out, nil
}

// trimCache drops versions, the least recently used first, until there is room for
// more bytes within limit; those that keep names stay.
func trimCache(dir string, limit, more int64, keep func(digest string) bool) error {
	all, err := listCache(dir)
	if err != nil {
		return err
	}
	total := more
	for _, c := range all {
		total += c.bytes
	}
	for _, c := range all {
		if total <= limit {
			return nil
		}
		if keep(c.digest) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, c.digest)); err != nil {
			return fmt.Errorf("drop version %.12s from the cache: %w", c.digest, err)
		}
		total -= c.bytes
	}
	return nil
}

// sweepCache removes what fetches left that did not end.
func sweepCache(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it is made when it is needed
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), registry.FetchPrefix) && now.Sub(info.ModTime()) > fetchOld {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // tried again at the next start
		}
	}
}
