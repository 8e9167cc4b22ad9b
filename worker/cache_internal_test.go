package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCacheKeepsWhatIsUsed fills a cache over its bound: the least recently used
// versions go that nobody needs, and what interrupted fetches left goes when it is
// old. Nothing else in the directory is touched.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	entry := func(name string, bytes int, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "model.safetensors"), make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	digest := func(letter string) string { return strings.Repeat(letter, 64) }
	entry(digest("a"), 100, 4*time.Hour) // needed
	entry(digest("b"), 100, 3*time.Hour)
	entry(digest("c"), 100, 2*time.Hour)
	entry(digest("d"), 100, time.Hour)
	entry("mine", 100, 9*time.Hour)
	entry(".fetch-1", 100, 2*fetchOld)
	entry(".fetch-2", 100, fetchOld/2)
	sweepCache(dir, now)
	if err := trimCache(dir, 350, 100, func(d string) bool { return d == digest("a") }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name()[:min(len(e.Name()), 8)])
	}
	if want := ".fetch-2 aaaaaaaa dddddddd mine"; strings.Join(got, " ") != want {
		t.Errorf("left are %v, want %s", got, want)
	}
	if err := trimCache(filepath.Join(dir, "absent"), 1, 1, nil); err != nil {
		t.Errorf("an absent cache: %v", err)
	}
}
