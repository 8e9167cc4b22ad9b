package batchmaker_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/batchmaker"
)

func quiet(string) {}

// virtual returns the files of a report.
func virtual(t *testing.T, scale batchmaker.Scale, seed uint64) map[string][]byte {
	t.Helper()
	files, err := batchmaker.Virtual(t.Context(), batchmaker.Options{Scale: scale, Seed: seed}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// same fails the test when two reports differ.
func same(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Fatalf("files %v, want %v", g, w)
	}
	for name := range want {
		g, w := bytes.Split(got[name], []byte("\n")), bytes.Split(want[name], []byte("\n"))
		for i := range min(len(g), len(w)) {
			if !bytes.Equal(g[i], w[i]) {
				t.Errorf("%s line %d:\n%s\nwant\n%s", name, i+1, g[i], w[i])
				break
			}
		}
		if len(g) != len(w) {
			t.Errorf("%s: %d lines, want %d", name, len(g), len(w))
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	t.Parallel()
	first := virtual(t, batchmaker.Quick, 3)
	same(t, virtual(t, batchmaker.Quick, 3), first)
	if other := virtual(t, batchmaker.Quick, 4); bytes.Equal(other["batchmaker/runs.csv"], first["batchmaker/runs.csv"]) {
		t.Error("another seed gives the same runs")
	}
}

// The committed report is what the code says: go generate makes it again.
func TestCommittedReport(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the full scale")
	}
	const dir = "../../../docs/repro"
	committed := map[string][]byte{}
	for _, pattern := range []string{"batchmaker.md", "batchmaker/*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			relative, err := filepath.Rel(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			committed[filepath.ToSlash(relative)] = content
		}
	}
	same(t, committed, virtual(t, batchmaker.Full, 1))
}

// Everything that the page shows is there, and nothing names the machine.
func TestPage(t *testing.T) {
	t.Parallel()
	files := virtual(t, batchmaker.Quick, 1)
	page := string(files["batchmaker.md"])
	for _, want := range []string{
		"## The figures side by side", "## LSTM", "## Widths of buckets", "## One length", "## Sequence to sequence",
		"## Which cell goes first", "## TreeLSTM", "## The largest batch", "## Look-ahead", "## How this differs from the paper",
		"--scale quick --seed 1", "buckets of 40, in turn",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	shown := 0
	for name := range files {
		if filepath.Ext(name) == ".svg" {
			shown++
			if !strings.Contains(page, "]("+name+")") {
				t.Errorf("%s is on no page", name)
			}
		}
	}
	if strings.Count(page, "![") != shown {
		t.Errorf("%d figures for %d files", strings.Count(page, "!["), shown)
	}
	for _, broken := range []string{"NaN", "+Inf", "%!", "-0.0"} {
		if strings.Contains(page, broken) || strings.Contains(string(files["batchmaker/runs.csv"]), broken) {
			t.Errorf("%q in the report", broken)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	_, err := batchmaker.Virtual(t.Context(), batchmaker.Options{Scale: "huge"}, quiet)
	if err == nil || !strings.Contains(err.Error(), `scale "huge": want quick or full`) {
		t.Errorf("error %v", err)
	}
}
