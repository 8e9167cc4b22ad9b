package models_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// TestVerifyGoldenByWeights holds models to golden files of four lines, some
// of which say something else than the model.
func TestVerifyGoldenByWeights(t *testing.T) {
	t.Parallel()
	const (
		tokens = `{"input":"21","tokens":[],"text":"","finish_reason":"stop","logprob":-0.857275,"tolerance":0.001}` + "\n"
		label  = `{"input":"t3","label":"1","logits":[-0.27147,0.212799,-0.240574,-0.529966,-0.065670],"finish_reason":"stop","tolerance":0.00001}` + "\n"
	)
	change := func(line, from, to string) string { return strings.Replace(line, from, to, 1) }
	tests := []struct {
		name, fixture string
		line, other   string
		others        int // of four lines
		equal         int // with other weight types than f32
		refused       bool
	}{
		{"all equal", "s2s-gru-plain", tokens, "", 0, 4, false},
		{"one token", "s2s-gru-plain", tokens, change(tokens, "[]", "[3]"), 1, 3, false},
		{"two tokens", "s2s-gru-plain", tokens, change(tokens, "[]", "[3]"), 2, 2, true},
		{"a text", "s2s-gru-plain", tokens, change(tokens, `""`, `"x"`), 1, 3, false},
		{"finish reasons", "s2s-gru-plain", tokens, change(tokens, "stop", "length"), 2, 2, true},
		{"near log-probabilities", "s2s-gru-plain", tokens, change(tokens, "-0.857275", "-1.35"), 4, 4, false},
		{"far log-probabilities", "s2s-gru-plain", tokens, change(tokens, "-0.857275", "-1.36"), 4, 0, true},
		{"one label", "tree-h29", label, change(label, `"1"`, `"2"`), 1, 3, false},
		{"all labels", "tree-h29", label, change(label, `"1"`, `"2"`), 4, 0, true},
		{"near logits", "tree-h29", label, change(label, "-0.240574", "-0.3"), 4, 4, false},
		{"far logits", "tree-h29", label, change(label, "-0.240574", "-0.31"), 4, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, tt.fixture)
			dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(strings.Repeat(tt.line, 4-tt.others) + strings.Repeat(tt.other, tt.others))}
			m := load(t, dir, "m")
			for _, w := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
				m := m.WithWeights(w)
				report, err := m.VerifyGolden(t.Context(), 2, runOracle(m))
				refused, equal := tt.refused, tt.equal
				if w == cellrt.F32 {
					refused, equal = tt.others > 0, 4-tt.others
				}
				if (err != nil) != refused || report != (models.GoldenReport{Cases: 4, Equal: equal}) {
					t.Errorf("%v: %+v, %v", w, report, err)
				}
				got, ok := errors.AsType[*models.GoldenError](err)
				if refused && (!ok || got.Line != 5-tt.others) {
					t.Errorf("%v: %v is not about line %d", w, err, 5-tt.others)
				}
				if refused && w != cellrt.F32 && !strings.Contains(err.Error(), "at least 3 wanted") {
					t.Errorf("%v: %v does not say the bound", w, err)
				}
			}
		})
	}
}

// TestVerifyGoldenRunsEverything wants an input that cannot be run to count
// with every weight type.
func TestVerifyGoldenRunsEverything(t *testing.T) {
	t.Parallel()
	dir := directory(t, "s2s-gru-plain")
	const good = `{"input":"21","tokens":[],"text":"","finish_reason":"stop","logprob":-0.857275,"tolerance":0.001}` + "\n"
	dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(strings.Repeat(good, 9) + `{"input":"9"}`)}
	m := load(t, dir, "m").WithWeights(cellrt.Int8)
	broken := errors.New("broken")
	run := runOracle(m)
	_, err := m.VerifyGolden(t.Context(), 1, func(ctx context.Context, r *models.Request) (models.Output, error) {
		if r.InputTokens == 1 {
			return models.Output{}, broken
		}
		return run(ctx, r)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
