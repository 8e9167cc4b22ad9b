package registry_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
)

func TestPushAndFetch(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const p = registry.PartBytes
	for i, n := range []int{0, 1, p - 1, p, p + 1, 3 * p} {
		files := dir(map[string][]byte{
			"config.json": fmt.Appendf(nil, "config %d", n), "model.safetensors": random(uint64(i), n),
			".hidden": []byte("none of it"), "sub/file": []byte("none of it"),
		})
		m, _ := b.push(t, version("m", fmt.Sprint("v ", n)), files)
		if len(m.Files) != 2 || len(m.Files[1].Parts) != (n+p-1)/p || m.Files[1].Size != int64(n) {
			t.Errorf("%d bytes: %+v", n, m.Files)
		}
		b.fetch(t, m, files)
		for _, part := range m.Files[1].Parts { // as any client of the object store reads it
			if data := b.content(t, part); sum(data) != part {
				t.Errorf("%d bytes of part %s", len(data), part)
			}
		}
		got, err := b.Version(t.Context(), "m", m.Version)
		if err != nil || cmp.Diff(got, m) != "" {
			t.Errorf("%v, %s", err, cmp.Diff(got, m))
		}
	}
	all, err := b.Versions(t.Context(), "m")
	if err != nil || len(all) != 6 {
		t.Errorf("%d versions: %v", len(all), err)
	}
	if all, err = b.Versions(t.Context(), "other"); err != nil || len(all) != 0 {
		t.Errorf("%d versions: %v", len(all), err)
	}
}

// TestEqualPartsAreStoredOnce: of files, versions and models.
func TestEqualPartsAreStoredOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	part := random(1, registry.PartBytes)
	b.push(t, version("a", "1"), dir(map[string][]byte{"x": append(part[:len(part):len(part)], part...), "y": part}))
	before := b.chunks(t)
	if before != registry.PartBytes/(512<<10) || b.metas(t) != 1 {
		t.Errorf("%d chunks of %d parts, one part wanted", before, b.metas(t))
	}
	m, p := b.push(t, version("b", "1"), dir(map[string][]byte{"y": part}))
	if b.chunks(t) != before || p.Skipped != m.Bytes() {
		t.Errorf("%d chunks, %d before, skipped %+v", b.chunks(t), before, p)
	}
}

func TestPushAgainSendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"config.json": []byte("{}"), "model.safetensors": random(1, registry.PartBytes+5)})
	first, p := b.push(t, version("m", "1"), files)
	if p.Skipped != 0 {
		t.Errorf("skipped %+v", p)
	}
	object := b.object(t, first.Files[1].Parts[0])
	again, p := b.push(t, version("m", "1"), files)
	if p.Skipped != again.Bytes() || cmp.Diff(first, again) != "" {
		t.Errorf("%+v: %s", p, cmp.Diff(first, again))
	}
	if now := b.object(t, first.Files[1].Parts[0]); now.NUID != object.NUID {
		t.Error("part was stored again")
	}
}

func TestVersionTaken(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first, _ := b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("1")}))
	_, err := b.Push(t.Context(), dir(map[string][]byte{"a": []byte("2")}), version("m", "1"), nil)
	if !errors.Is(err, registry.ErrVersionTaken) || !strings.Contains(err.Error(), first.Digest) || !strings.Contains(err.Error(), "m@1") {
		t.Errorf("%v", err)
	}
	if n := b.metas(t); n != 1 {
		t.Errorf("%d parts, 1 wanted", n)
	}
	b.fetch(t, first, dir(map[string][]byte{"a": []byte("1")}))
}

// TestDigest: the digest is that of models, and another one in the manifest is refused.
func TestDigest(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const fixtures = "../models/testdata/fixtures"
	entries, err := os.ReadDir(fixtures)
	if err != nil || len(entries) == 0 {
		t.Fatal(len(entries), err)
	}
	for _, e := range entries {
		files := os.DirFS(filepath.Join(fixtures, e.Name()))
		model, err := models.Load(files, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		m := version(e.Name(), model.Version())
		m.Digest = model.Digest()
		if stored, _ := b.push(t, m, files); stored.Digest != model.Digest() {
			t.Errorf("%s: digest %s, %s wanted", e.Name(), stored.Digest, model.Digest())
		}
		m.Version, m.Digest = "other", strings.Repeat("0", 64)
		if _, err := b.Push(t.Context(), files, m, nil); !errors.Is(err, registry.ErrChanged) {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
}

// TestFileChanges while it is pushed, so that what was hashed is not what is sent.
func TestFileChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, change := range map[string]func(name string) error{
		"other bytes": func(name string) error { return os.WriteFile(name, random(2, registry.PartBytes+9), 0o600) },
		"shorter":     func(name string) error { return os.Truncate(name, 5) },
	} {
		d := t.TempDir()
		weights := filepath.Join(d, "weights")
		if err := os.WriteFile(weights, random(1, registry.PartBytes+9), 0o600); err != nil {
			t.Fatal(err)
		}
		files := &changing{FS: os.DirFS(d), change: func() error { return change(weights) }}
		_, err := b.Push(t.Context(), files, version("m", "1"), nil)
		if !errors.Is(err, registry.ErrChanged) || !strings.Contains(err.Error(), "weights") {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := b.Versions(t.Context(), ""); err != nil || len(all) != 0 {
			t.Errorf("%s: %d versions, %v", name, len(all), err)
		}
	}
}

// changing changes a file before it is opened for the second time.
type changing struct {
	fs.FS
	mu     sync.Mutex
	opened int
	change func() error
}

func (c *changing) Open(name string) (fs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "weights" {
		if c.opened++; c.opened == 2 {
			if err := c.change(); err != nil {
				return nil, err
			}
		}
	}
	return c.FS.Open(name)
}

func (c *changing) Stat(name string) (fs.FileInfo, error) { return fs.Stat(c.FS, name) }

func (c *changing) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(c.FS, name) }

func TestPushRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	one := dir(map[string][]byte{"a": []byte("1")})
	many := map[string][]byte{}
	for i := range 65 {
		many[fmt.Sprint("f", i)] = nil
	}
	for name, c := range map[string]struct {
		files fstest.MapFS
		m     registry.Manifest
		text  string
	}{
		"no files":           {dir(nil), version("m", "1"), "files: 0, 1 to 64"},
		"too many files":     {dir(many), version("m", "1"), "more than 64 files"},
		"name of a file":     {dir(map[string][]byte{"a\x01b": nil}), version("m", "1"), "printable text"},
		"name of a model":    {one, version("M", "1"), `"M"`},
		"no version":         {one, version("m", ""), "version"},
		"version of 65":      {one, version("m", strings.Repeat("v", 65)), "64 bytes"},
		"unprintable":        {one, version("m", "a\nb"), "printable"},
		"negative":           {one, registry.Manifest{Model: "m", Version: "1", Golden: -1}, "golden"},
		"too many cells":     {one, registry.Manifest{Model: "m", Version: "1", Cells: make([]string, 257)}, "257"},
		"unprintable family": {one, registry.Manifest{Model: "m", Version: "1", Family: "\x00"}, "family"},
	} {
		if _, err := b.Push(t.Context(), c.files, c.m, nil); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, %q wanted", name, err, c.text)
		}
	}
	if _, err := b.Versions(t.Context(), ""); !errors.Is(err, registry.ErrNoRegistry) {
		t.Errorf("a refused push made the buckets: %v", err)
	}
}

// TestStoreTooLarge: a store that the server has no room for is not made, and one that
// is there stays as it is.
func TestStoreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.StoreBytes = 1 << 50 })
	files := dir(map[string][]byte{"a": random(1, 64)})
	if _, err := b.Push(t.Context(), files, version("m", "1"), nil); !errors.Is(err, registry.ErrNoReserve) || !strings.Contains(err.Error(), strconv.Itoa(1<<50)) {
		t.Errorf("a new one: %v", err)
	}
	small := setupOn(t, b.server, func(c *registry.Config) { c.StoreBytes = 10 << 20 })
	if _, err := small.Push(t.Context(), files, version("m", "1"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Push(t.Context(), files, version("m", "2"), nil); !errors.Is(err, registry.ErrNoReserve) {
		t.Errorf("a larger one: %v", err)
	}
	if all, err := small.Versions(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("%v: %v", all, err)
	}
}

// TestFullStore: what does not fit is refused before it is sent, or by the server,
// and what was there stays.
func TestFullStore(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.StoreBytes = 10 << 20 })
	files := dir(map[string][]byte{"a": random(1, registry.PartBytes)})
	m, _ := b.push(t, version("m", "1"), files)
	chunks := b.chunks(t)

	_, err := b.Push(t.Context(), dir(map[string][]byte{"a": random(2, registry.PartBytes)}), version("m", "2"), nil)
	if !errors.Is(err, registry.ErrNoRoom) || !strings.Contains(err.Error(), strconv.Itoa(registry.PartBytes)) {
		t.Errorf("%v", err)
	}
	if b.chunks(t) != chunks {
		t.Errorf("%d chunks, %d before", b.chunks(t), chunks)
	}

	s, err := b.js.Stream(t.Context(), storeStream)
	if err != nil {
		t.Fatal(err)
	}
	room := 10<<20 - int(s.CachedInfo().State.Bytes) // without the headers of messages
	_, err = b.Push(t.Context(), dir(map[string][]byte{"a": random(3, room)}), version("m", "2"), nil)
	if !errors.Is(err, registry.ErrNoRoom) {
		t.Errorf("%d bytes into %d: %v", room, room, err)
	}
	if b.chunks(t) != chunks || b.metas(t) != 1 {
		t.Errorf("%d chunks, %d before; %d parts", b.chunks(t), chunks, b.metas(t))
	}
	if all, err := b.Versions(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("%d versions: %v", len(all), err)
	}
	b.fetch(t, m, files)

	larger, err := registry.New(registry.Config{Conn: b.nc, StoreBytes: 40 << 20, Stale: stale})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := larger.Push(t.Context(), dir(map[string][]byte{"a": random(3, room)}), version("m", "2"), nil); err != nil {
		t.Error(err)
	}
}
