package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
)

// TestConvertLabels converts a small tree model, one label of whose test is not
// the model's.
func TestConvertLabels(t *testing.T) {
	t.Parallel()
	from := filepath.Join("..", "..", "..", "testdata", "fixtures", "tree-h29")
	cases, err := os.ReadFile(filepath.Join(from, "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for line := range strings.Lines(string(cases)) {
		var c struct {
			Input  string    `json:"input"`
			Logits []float32 `json:"logits"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		answer := strconv.Itoa(slices.Index(c.Logits, slices.Max(c.Logits)))
		truth := answer
		if lines.Len() == 0 {
			truth = "none"
		}
		l := labelled{Input: c.Input, Label: label(truth), Output: label(answer), Logits: c.Logits}
		if err := json.NewEncoder(&lines).Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	file, to := filepath.Join(t.TempDir(), "labels.jsonl"), t.TempDir()
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	if err := run(t.Context(), []string{"-from", from, "-labels", file, "-storage", "BF16", "-to", to}, &report); err != nil {
		t.Fatal(err)
	}
	if got := report.String(); !strings.HasPrefix(got, "F32   47088 bytes  right of 16, by layer: 15  output differs from the trainer's: 0 ") || strings.Count(got, "\n") != 3 {
		t.Errorf("report:\n%s", got)
	}
	verifyStored(t, from, to)
}

// verifyStored loads the stored weights with the rest of their directory and
// holds them to the golden file.
func verifyStored(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"config.json", "vocab.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := models.Load(os.DirFS(to), "m")
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.New(m.Program(), 1, cellrt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(t.Context()) //nolint:errcheck // it ends with the test, whose requests have all ended by then
	if _, err := m.VerifyGolden(t.Context(), 1, r.Run); err != nil {
		t.Error(err)
	}
	golden, err := os.ReadFile(filepath.Join(to, goldenFile))
	if err != nil || bytes.Count(golden, []byte("\n")) != 16 {
		t.Errorf("%d golden lines, %v", bytes.Count(golden, []byte("\n")), err)
	}
}

func TestReadLabels(t *testing.T) {
	t.Parallel()
	var l labelled
	if err := json.Unmarshal([]byte(`{"label":"de","output":7,"by_layer":["a",1]}`), &l); err != nil {
		t.Fatal(err)
	}
	if l.Label != "de" || l.Output != "7" || !slices.Equal(l.ByLayer, []label{"a", "1"}) {
		t.Errorf("read %+v", l)
	}
	if err := json.Unmarshal([]byte(`{"label":true}`), &l); err == nil {
		t.Error("read a label that is neither text nor number")
	}
}
