package models_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/internal/runner"
)

func loadKJV(t *testing.T) *models.Model {
	t.Helper()
	return load(t, os.DirFS(filepath.Join("testdata", "kjv-lm-f32")), "kjv-lm")
}

// watched keeps the first logits that a graph is shown.
type watched struct {
	cellrt.Graph
	logits []float32
}

func (w *watched) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	if out.Values != nil && w.logits == nil {
		w.logits = slices.Clone(out.Values)
	}
	w.Graph.Advance(n, out, f)
}

// score returns the log-probability of an input.
func score(t *testing.T, r *runner.Runner, m *models.Model, in models.Input) float64 {
	t.Helper()
	req, err := m.UnfoldScore(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Run(t.Context(), req)
	if err != nil || len(out.Tokens) != 0 || out.Reason != cellrt.Stopped {
		t.Fatalf("got %v, %v", out, err)
	}
	return req.LogProb()
}

// TestLanguageFixtures compares every case of the language models with PyTorch:
// logits, log-probabilities and greedy tokens.
func TestLanguageFixtures(t *testing.T) {
	t.Parallel()
	type fixtureCase struct {
		InputIDs   []int32   `json:"input_ids"`
		LastLogits []float64 `json:"last_logits"`
		SumLogProb float64   `json:"sum_logprob"`
		Greedy     []int32   `json:"greedy"`
	}
	for _, m := range fixtures(t, "lm-") {
		t.Run(m.Name(), func(t *testing.T) {
			t.Parallel()
			r := serve(t, m, 2, cellrt.Config{})
			for i, c := range readLines[fixtureCase](t, "testdata", "fixtures", m.Name(), "cases.jsonl") {
				in := models.Input{IDs: c.InputIDs}
				req, err := m.Unfold(in, models.Params{MaxTokens: ptr(len(c.Greedy))})
				if err != nil {
					t.Fatal(err)
				}
				w := &watched{Graph: req.Graph}
				req.Graph = w
				out, err := r.Run(t.Context(), req)
				if err != nil || !slices.Equal(ids(out.Tokens), c.Greedy) || out.Reason != cellrt.Length {
					t.Errorf("case %d: got %v %s, %v, want %v length", i, ids(out.Tokens), reason(out.Reason), err, c.Greedy)
				}
				if len(w.logits) != len(c.LastLogits) {
					t.Fatalf("case %d: %d logits, want %d", i, len(w.logits), len(c.LastLogits))
				}
				for k, want := range c.LastLogits {
					if got := float64(w.logits[k]); math.Abs(got-want) > 1e-5+1e-5*math.Abs(want) {
						t.Errorf("case %d: logit %d is %v, want %v", i, k, got, want)
					}
				}
				if got := score(t, r, m, in); math.Abs(got-c.SumLogProb) > 1e-5*math.Abs(c.SumLogProb) {
					t.Errorf("case %d: input's log-probability %v, want %v", i, got, c.SumLogProb)
				}
			}
		})
	}
}

// TestInputIsProjectedOnce counts nodes: a position of the input needs no
// logits, save the last.
func TestInputIsProjectedOnce(t *testing.T) {
	t.Parallel()
	m := fixtures(t, "lm-gru-1x48")[0]
	req, err := m.Unfold(models.Input{IDs: []int32{1, 2, 3, 4, 5}}, models.Params{MaxTokens: ptr(3)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := oracle.New(m.Program()).Run(req.Graph)
	if err != nil || got.Nodes["layers"] != 5+2 || got.Nodes["project"] != 3 {
		t.Errorf("nodes %v, %v, want 7 of layers and 3 of project", got.Nodes, err)
	}
}

// TestKJVEqualsPyTorch compares greedy continuations and the log-probabilities
// of their inputs with PyTorch's.
func TestKJVEqualsPyTorch(t *testing.T) {
	t.Parallel()
	m := loadKJV(t)
	type text struct {
		Input          string  `json:"input"`
		SumLogProb     float64 `json:"sum_logprob"`
		Greedy         string  `json:"greedy"`
		SmallestMargin float64 `json:"smallest_margin"`
	}
	texts := readLines[text](t, "testdata", "kjv-lm-texts.jsonl")
	if testing.Short() {
		texts = texts[:10]
		t.Logf("%d texts", len(texts))
	}
	r := serve(t, m, len(texts), cellrt.Config{})
	compared := 0
	var group sync.WaitGroup
	for i, c := range texts {
		if c.SmallestMargin <= 1e-4 {
			continue // another rounding may choose the other byte
		}
		compared++
		group.Go(func() {
			req, err := m.Unfold(models.Input{Text: c.Input}, models.Params{MaxTokens: ptr(64)})
			if err != nil {
				t.Error(err)
				return
			}
			out, err := r.Run(t.Context(), req)
			if got := req.Text(out.Tokens, 0); err != nil || got != c.Greedy || out.Reason != cellrt.Length {
				t.Errorf("text %d: got %q %s, %v, want %q", i, got, reason(out.Reason), err, c.Greedy)
			}
		})
	}
	group.Wait()
	if compared < len(texts)*9/10 {
		t.Errorf("only %d of %d texts compared", compared, len(texts))
	}
	for i, c := range texts {
		if got := score(t, r, m, models.Input{Text: c.Input}); math.Abs(got-c.SumLogProb) > 1e-5*math.Abs(c.SumLogProb) {
			t.Errorf("text %d: input's log-probability %v, want %v", i, got, c.SumLogProb)
		}
	}
}

// TestKJVBitsPerByte reads held-out text as one sequence and compares with what
// the trainer measured on it, or on its beginning with float64 arithmetic.
func TestKJVBitsPerByte(t *testing.T) {
	t.Parallel()
	m := loadKJV(t)
	text, err := os.ReadFile(filepath.Join("testdata", "kjv-lm-valid.txt"))
	if err != nil || len(text) != 20000 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	want := 1.7215556221998611
	if testing.Short() {
		text, want = text[:2000], 1.833573511325635
	}
	r := serve(t, m, 1, cellrt.Config{})
	got := -score(t, r, m, models.Input{Text: string(text)}) / math.Ln2 / float64(len(text)-1)
	if math.Abs(got-want) > 1e-5 {
		t.Errorf("%v bits per byte, want %v", got, want)
	}
}
