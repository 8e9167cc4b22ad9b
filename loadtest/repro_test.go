package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReproBatchMaker(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	dir := filepath.Join(t.TempDir(), "report")
	args := []string{"repro", "batchmaker", "--virtual-only", "--scale", "quick", "--seed", "5", "--dir", dir}
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "batchmaker.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, []byte("--scale quick --seed 5")) {
		t.Errorf("the page does not say how it was made:\n%s", page)
	}
	for _, name := range []string{"runs.csv", "lstm-core.svg", "tree-accelerator.svg"} {
		if _, err := os.Stat(filepath.Join(dir, "batchmaker", name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "batchmaker-wallclock.md")); err == nil {
		t.Error("the clock on the wall was read")
	}
}

func TestReproRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want string
		args []string
	}{
		{`scale "huge"`, []string{"--scale", "huge"}},
		{"virtual-only wall-only", []string{"--virtual-only", "--wall-only"}},
		{"unknown command", []string{"now"}},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"repro", "batchmaker", "--dir", filepath.Join(t.TempDir(), "none")}, tc.args...)
		if code := run(t.Context(), args, &stdout, &stderr); code != exitFailure {
			t.Errorf("%v: exit code %d, want %d", tc.args, code, exitFailure)
		}
		if !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: %q, want something about %s", tc.args, &stderr, tc.want)
		}
	}
}
