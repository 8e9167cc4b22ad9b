package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/models/safetensors"
)

// TestConvert converts a small model whose text is token ids.
func TestConvert(t *testing.T) {
	t.Parallel()
	from := filepath.Join("..", "..", "..", "testdata", "fixtures", "s2s-gru-plain")
	cases, err := os.ReadFile(filepath.Join(from, "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	for line := range strings.Lines(string(cases)) {
		var c struct {
			InputIDs     []int   `json:"input_ids"`
			Greedy       []int   `json:"greedy"`
			LogProb      float64 `json:"logprob"`
			FinishReason string  `json:"finish_reason"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		output := strings.Fields(strings.Trim(fmt.Sprint(c.Greedy), "[]"))
		w := word{
			Input: strings.Trim(fmt.Sprint(c.InputIDs), "[]"), Output: output, LogProb: c.LogProb,
			FinishReason: c.FinishReason, References: [][]string{output, {"99"}},
		}
		if err := json.NewEncoder(&words).Encode(w); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	wordFile, to := filepath.Join(dir, "words.jsonl"), filepath.Join(dir, "to")
	if err := os.WriteFile(wordFile, words.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	if err := run(t.Context(), []string{"-from", from, "-words", wordFile, "-storage", "F16", "-to", to}, &report); err != nil {
		t.Fatal(err)
	}
	if got := report.String(); !strings.HasPrefix(got, "F32   51288 bytes  0 of 12 words wrong (0.00 %)  output differs from the trainer's: 0 ") || strings.Count(got, "\n") != 3 {
		t.Errorf("report:\n%s", got)
	}
	b, err := os.ReadFile(filepath.Join(to, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Tensors()[0].DType; got != safetensors.F16 {
		t.Errorf("stored as %s", got)
	}
	lines, err := os.ReadFile(filepath.Join(to, goldenFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(lines, []byte("\n")); n == 0 || n > 12 {
		t.Errorf("%d golden lines", n)
	}
}

// TestConvertLanguageModel stores a model of made-up bytes.
func TestConvertLanguageModel(t *testing.T) {
	t.Parallel()
	from := filepath.Join("..", "..", "..", "testdata", "kjv-lm-f32")
	all, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "kjv-lm-texts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	dir := t.TempDir()
	texts, heldOut, to := filepath.Join(dir, "texts.jsonl"), filepath.Join(dir, "text"), filepath.Join(dir, "to")
	if err := os.WriteFile(texts, bytes.Join(lines[:2], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(heldOut, []byte("And God said, Let there be light: and there was light."), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	if err := run(t.Context(), []string{"-from", from, "-texts", texts, "-held-out", heldOut, "-storage", "F32", "-to", to}, &report); err != nil {
		t.Fatal(err)
	}
	if got := report.String(); !strings.Contains(got, "F32   5658528 bytes  1.") || !strings.Contains(got, " bits per byte  continuation differs from the trainer's: 0 of 2 ") {
		t.Errorf("report:\n%s", got)
	}
	golden, err := os.ReadFile(filepath.Join(to, goldenFile))
	if err != nil || !bytes.Contains(golden, []byte(`"max_tokens":16,`)) {
		t.Errorf("golden lines %s, %v", golden, err)
	}
}

func TestConvertWantsOneKind(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-words", "a", "-labels", "b"}, {"-words", "a", "-texts", "b"}} {
		if err := run(t.Context(), args, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "one of -words") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
