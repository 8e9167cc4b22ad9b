package models_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// onDisk copies a fixture to a directory that a test can change.
func onDisk(t *testing.T, fixture string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), fixture)
	if err := os.CopyFS(dir, directory(t, fixture)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// open opens a directory, which is closed at the end of the test.
func open(t *testing.T, dir string) *models.Dir {
	t.Helper()
	d, err := models.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// mappings counts the mappings of a file in this process.
func mappings(t *testing.T, path string) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("/proc/self/maps is Linux's")
	}
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), path)
}

// TestMappedModelKeepsBits compares models of all families whose weights are
// mapped with the same ones whose weights are read, with each weight type.
func TestMappedModelKeepsBits(t *testing.T) {
	t.Parallel()
	for _, a := range randomRequests(t, rand.New(rand.NewPCG(4, 4)), 3) {
		for _, w := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
			t.Run(fmt.Sprint(a.model.Name(), " ", w), func(t *testing.T) {
				t.Parallel()
				read, mapped := a, a
				read.model = a.model.WithWeights(w)
				mapped.model = load(t, open(t, onDisk(t, a.model.Name())), a.model.Name()).WithWeights(w)
				t.Cleanup(mapped.model.Close)
				if got, want := mapped.model.Digest(), read.model.Digest(); got != want {
					t.Errorf("digest %s mapped, %s read", got, want)
				}
				r := serveAll(t, 1, cellrt.Config{}, []question{read, mapped})
				want, err := runQuestion(t.Context(), r, read)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := runQuestion(t.Context(), r, mapped); err != nil || got != want {
					t.Errorf("%+v: got %s, %v mapped, %s read", a.input, got, err, want)
				}
			})
		}
	}
}

// TestDirStaysWhileModelsUseIt closes a directory before, between and after its
// models.
func TestDirStaysWhileModelsUseIt(t *testing.T) {
	t.Parallel()
	at := onDisk(t, "lm-gru-1x48")
	path := filepath.Join(at, "model.safetensors")
	d, err := models.OpenDir(at)
	if err != nil {
		t.Fatal(err)
	}
	first, second := load(t, d, "a"), load(t, d, "b")
	if _, err := models.Load(d, "No name"); err == nil {
		t.Error("loaded under no name")
	}
	for want, closeOne := range []func(){func() {}, first.Close, first.WithWeights(cellrt.Int8).Close} {
		closeOne()
		users := 2 - min(want, 1) // a model and the same of another type are one
		if err := d.Close(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(users, " models use it")) {
			t.Errorf("closed %d: %v", want, err)
		}
	}
	if n := mappings(t, path); n != 1 {
		t.Errorf("%d mappings, want 1", n)
	}
	second.Close()
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := mappings(t, path); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
	if _, err := models.Load(d, "a"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("load from a closed directory: %v", err)
	}
}

// TestRefusedModelLeavesNoMapping loads what cannot be loaded.
func TestRefusedModelLeavesNoMapping(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(dir string) error{
		"no weights":    func(dir string) error { return os.Remove(filepath.Join(dir, "model.safetensors")) },
		"empty weights": func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 0) },
		"cut weights":   func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 5000) },
		"weights are a directory": func(dir string) error {
			path := filepath.Join(dir, "model.safetensors")
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		},
		"golden": func(dir string) error { return os.WriteFile(filepath.Join(dir, "golden.jsonl"), []byte("{"), 0o600) },
	}
	for name, do := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := onDisk(t, "tree-h29")
			if err := do(at); err != nil {
				t.Fatal(err)
			}
			d, err := models.OpenDir(at)
			if err != nil {
				t.Fatal(err)
			}
			_, mapped := models.Load(d, "m")
			_, read := models.Load(os.DirFS(at), "m")
			if mapped == nil || read == nil || (name != "no weights" && mapped.Error() != read.Error()) {
				t.Errorf("got %v mapped, %v read", mapped, read)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if n := mappings(t, at); n != 0 {
				t.Errorf("%d mappings are left", n)
			}
		})
	}
	if _, err := models.OpenDir(filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := models.OpenDir(filepath.Join(onDisk(t, "tree-h29"), "config.json")); err == nil {
		t.Error("a file was opened as a directory")
	}
}
