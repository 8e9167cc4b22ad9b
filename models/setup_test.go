package models_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
)

// fixtures are the small models with PyTorch's outputs whose names have the
// given prefix, one for each family.
func fixtures(t *testing.T, prefix string) []*models.Model {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("testdata", "fixtures", prefix+"*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no fixtures %s: %v", prefix, err)
	}
	var ms []*models.Model
	for _, d := range dirs {
		ms = append(ms, load(t, os.DirFS(d), filepath.Base(d)))
	}
	return ms
}

func load(t *testing.T, fsys fs.FS, name string) *models.Model {
	t.Helper()
	m, err := models.Load(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// loadG2P loads g2p-en with float32 weights.
func loadG2P(t *testing.T) *models.Model {
	t.Helper()
	return load(t, os.DirFS(filepath.Join("testdata", "g2p-en-f32")), "g2p-en")
}

// serve runs a model until the test ends.
func serve(t *testing.T, m *models.Model, slots int, cfg cellrt.Config) *runner.Runner {
	t.Helper()
	r, err := runner.New(m.Program(), slots, cfg)
	if err != nil {
		t.Fatal(err)
	}
	start(t, r)
	return r
}

// start runs a runner until the test ends.
func start(t *testing.T, r *runner.Runner) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// readLines decodes a file of one JSON object a line.
func readLines[T any](t *testing.T, path ...string) []T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for line := range strings.Lines(string(b)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// directory copies a fixture into memory, where a test can change it.
func directory(tb testing.TB, name string) fstest.MapFS {
	tb.Helper()
	dir := os.DirFS(filepath.Join("testdata", "fixtures", name))
	files, err := fs.Glob(dir, "*")
	if err != nil {
		tb.Fatal(err)
	}
	out := fstest.MapFS{}
	for _, f := range files {
		b, err := fs.ReadFile(dir, f)
		if err != nil {
			tb.Fatal(err)
		}
		out[f] = &fstest.MapFile{Data: b}
	}
	return out
}

// configure sets keys of a directory's configuration; nil removes a key.
func configure(t *testing.T, dir fstest.MapFS, changes map[string]any) {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(dir["config.json"].Data, &c); err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.Sorted(maps.Keys(changes)) {
		c[k] = changes[k]
		if changes[k] == nil {
			delete(c, k)
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	dir["config.json"] = &fstest.MapFile{Data: b}
}

func ids(tokens []cellrt.Token) []int32 {
	out := []int32{}
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	return out
}

func reason(r cellrt.Reason) string {
	return map[cellrt.Reason]string{cellrt.Stopped: "stop", cellrt.Length: "length"}[r]
}

func ptr[T any](v T) *T { return &v }
