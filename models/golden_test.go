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

func TestVerifyGolden(t *testing.T) {
	t.Parallel()
	const (
		first = `{"input_ids":[9,4,20,18,16,20],"tokens":[17],"text":"17","finish_reason":"stop","logprob":-2.109718,"tolerance":0.001}` + "\n"
		good  = `{"input":"21","tokens":[],"text":"","finish_reason":"stop","logprob":-0.857275,"tolerance":0.001}`
	)
	change := func(from, to string) string { return first + strings.Replace(good, from, to, 1) }
	tests := []struct {
		name, golden, field string
	}{
		{"right", first + good, ""},
		{"no lines", "", ""},
		{"tokens", change(`"tokens":[]`, `"tokens":[3]`), "tokens"},
		{"text", change(`"text":""`, `"text":"x"`), "text"},
		{"finish_reason", change("stop", "length"), "finish_reason"},
		{"logprob", change("-0.857275", "-0.86"), "logprob"},
		{"tolerance", change("-0.857275", "-0.86") + "\n" + change(`0.001`, `0`), "logprob"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "s2s-gru-plain")
			dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(tt.golden)}
			m := load(t, dir, "g")
			_, err := m.VerifyGolden(t.Context(), 2, serve(t, m, 2, cellrt.Config{}).Run)
			if tt.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			got, ok := errors.AsType[*models.GoldenError](err)
			if !ok || got.Field != tt.field || got.Line != 2 || got.Model != "g" || got.Got == got.Want {
				t.Errorf("got %v, want line 2 and %s", err, tt.field)
			}
		})
	}
}

func TestVerifyGoldenReports(t *testing.T) {
	t.Parallel()
	dir := directory(t, "s2s-gru-plain")
	dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(`{"input":"99"}`)}
	m := load(t, dir, "g")
	never := func(context.Context, *models.Request) (models.Output, error) {
		t.Error("a refused input was run")
		return models.Output{}, nil
	}
	_, err := m.VerifyGolden(t.Context(), 1, never)
	if _, ok := errors.AsType[*models.InputError](err); !ok {
		t.Errorf("refused input: %v", err)
	}
	dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(`{"input":"9"}`)}
	broken := errors.New("broken")
	_, err = load(t, dir, "g").VerifyGolden(t.Context(), 1, func(context.Context, *models.Request) (models.Output, error) {
		return models.Output{}, broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("failing run: %v", err)
	}
	delete(dir, "golden.jsonl")
	if _, err := load(t, dir, "g").VerifyGolden(t.Context(), 1, never); err != nil {
		t.Errorf("no golden file: %v", err)
	}
}
