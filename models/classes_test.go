package models_test

import (
	"context"
	"math"
	"strconv"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/oracle"
)

// close says whether two logits agree within 1e-5 and 1e-5 of their size.
func closeLogits(got, want []float32) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !(math.Abs(float64(got[i])-float64(want[i])) <= 1e-5+1e-5*math.Abs(float64(want[i]))) {
			return false
		}
	}
	return true
}

// classCase is a case of a classifier or a tree model.
type classCase struct {
	InputIDs      []int32     `json:"input_ids"`
	Input         string      `json:"input"`
	LogitsByLayer [][]float32 `json:"logits_by_layer"`
	Logits        []float32   `json:"logits"`
}

// layers are the wanted logits of each layer.
func (c classCase) layers() [][]float32 {
	if c.Logits != nil {
		return [][]float32{c.Logits}
	}
	return c.LogitsByLayer
}

// runs are the ways to run a model that must agree.
func runs(t *testing.T, m *models.Model) map[string]models.Run {
	t.Helper()
	o := oracle.New(m.Program())
	return map[string]models.Run{
		"runtime": serve(t, m, 2, cellrt.Config{}).Run,
		"oracle": func(_ context.Context, req *models.Request) (models.Output, error) {
			res, err := o.Run(req.Graph)
			return models.Output{Tokens: res.Tokens, Reason: res.Reason}, err
		},
	}
}

// TestClassFixtures compares the logits of every case of every classifier and
// tree model with PyTorch, at every layer, through the oracle and through the
// runtime.
func TestClassFixtures(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]int{"clf-": 12, "tree-": 16} {
		for _, m := range fixtures(t, prefix) {
			cases := readLines[classCase](t, "testdata", "fixtures", m.Name(), "cases.jsonl")
			if len(cases) != want {
				t.Fatalf("%s has %d cases, want %d", m.Name(), len(cases), want)
			}
			for name, run := range runs(t, m) {
				t.Run(m.Name()+" "+name, func(t *testing.T) {
					t.Parallel()
					for i, c := range cases {
						t.Run(strconv.Itoa(i), func(t *testing.T) { checkClassCase(t, m, run, c) })
					}
				})
			}
		}
	}
}

func checkClassCase(t *testing.T, m *models.Model, run models.Run, c classCase) {
	t.Helper()
	req, err := m.Unfold(models.Input{IDs: c.InputIDs, Text: c.Input}, models.Params{Ramps: c.LogitsByLayer != nil})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), req)
	if err != nil || out.Reason != cellrt.Stopped || len(out.Tokens) > 0 {
		t.Fatalf("got %+v, %v", out, err)
	}
	o, want := req.Outcome(), c.layers()
	if len(o.Logits) != len(want) {
		t.Fatalf("%d layers, want %d", len(o.Logits), len(want))
	}
	for l := range want {
		if !closeLogits(o.Logits[l], want[l]) {
			t.Errorf("layer %d: logits %v, want %v", l, o.Logits[l], want[l])
		}
	}
	checkScores(t, o.Label, o.Scores, want[len(want)-1])
	if c.LogitsByLayer == nil {
		if o.Layers != nil {
			t.Errorf("layers %+v", o.Layers)
		}
		return
	}
	if len(o.Layers) != len(want) {
		t.Fatalf("%d layers with labels, want %d", len(o.Layers), len(want))
	}
	for l, layer := range o.Layers {
		checkScores(t, layer.Label, layer.Scores, want[l])
	}
}

// checkScores compares scores and label with what the wanted logits say.
func checkScores(t *testing.T, label string, scores []models.Score, logits []float32) {
	t.Helper()
	best, total, sum := 0, 0.0, 0.0
	for i, v := range logits {
		total += math.Exp(float64(v))
		if v > logits[best] {
			best = i
		}
	}
	for i, s := range scores {
		if want := math.Exp(float64(logits[i])) / total; math.Abs(float64(s.Probability)-want) > 1e-4*want {
			t.Errorf("score of %s is %v, want %v", s.Label, s.Probability, want)
		}
		sum += float64(s.Probability)
	}
	if len(scores) != len(logits) || label != scores[best].Label || math.Abs(sum-1) > 1e-6 {
		t.Errorf("label %s of scores %v", label, scores)
	}
}
