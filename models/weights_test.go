package models_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

func TestConfiguredWeights(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		changes map[string]any
		weights cellrt.Weights
		version string
		field   string // of the error
	}{
		{"none", nil, cellrt.F32, "1", ""},
		{"null", map[string]any{"weights": nil}, cellrt.F32, "1", ""},
		{"empty", map[string]any{"weights": ""}, cellrt.F32, "1", ""},
		{"f32", map[string]any{"weights": "f32", "version": "2.1"}, cellrt.F32, "2.1", ""},
		{"bf16", map[string]any{"weights": "bf16"}, cellrt.BF16, "1+bf16", ""},
		{"int8", map[string]any{"weights": "int8", "version": "2.1+a"}, cellrt.Int8, "2.1+a+int8", ""},
		{"unknown", map[string]any{"weights": "int4"}, 0, "", "weights"},
		{"upper case", map[string]any{"weights": "BF16"}, 0, "", "weights"},
		{"long", map[string]any{"weights": strings.Repeat("f32", 1000)}, 0, "", "weights"},
		{"number", map[string]any{"weights": 8}, 0, "", "weights"},
		{"bool", map[string]any{"weights": true}, 0, "", "weights"},
		{"list", map[string]any{"weights": []string{"int8"}}, 0, "", "weights"},
		{"object", map[string]any{"weights": map[string]any{"type": "int8"}}, 0, "", "weights"},
		{"version with a mark", map[string]any{"version": "1+int8"}, 0, "", "version"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "lm-gru-1x48")
			configure(t, dir, tt.changes)
			m, err := models.Load(dir, "m")
			if tt.field != "" {
				got, ok := errors.AsType[*models.ConfigError](err)
				if !ok || got.Field != tt.field || len(err.Error()) > 200 {
					t.Errorf("got %v, want one of %s", err, tt.field)
				}
				if tt.field == "weights" && !strings.HasSuffix(err.Error(), ", one of f32, bf16, int8 wanted") || strings.Contains(err.Error(), "Go ") {
					t.Errorf("got %v, want the values there are", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if m.Weights() != tt.weights || m.Program().Weights != tt.weights || m.Version() != tt.version {
				t.Errorf("%v, program %v, version %s, want %v, %s", m.Weights(), m.Program().Weights, m.Version(), tt.weights, tt.version)
			}
		})
	}
}

func TestWithWeights(t *testing.T) {
	t.Parallel()
	m := fixtures(t, "lm-gru-1x48")[0]
	other := m.WithWeights(cellrt.BF16)
	if m.Weights() != cellrt.F32 || m.Version() != "1" {
		t.Errorf("the model itself changed: %v, %s", m.Weights(), m.Version())
	}
	if other.Weights() != cellrt.BF16 || other.Version() != "1+bf16" || other.Name() != m.Name() || other.Digest() != m.Digest() {
		t.Errorf("got %s %v %s", other.Name(), other.Weights(), other.Version())
	}
	if back := other.WithWeights(cellrt.F32); back.Version() != "1" {
		t.Errorf("version %s of f32", back.Version())
	}
	req, err := other.Unfold(models.Input{IDs: []int32{1}}, models.Params{MaxTokens: ptr(1)})
	if err != nil {
		t.Fatal(err)
	}
	if req.Model != other {
		t.Error("the request belongs to another model")
	}
	if out, err := serve(t, other, 1, cellrt.Config{}).Run(t.Context(), req); err != nil || len(out.Tokens) != 1 {
		t.Errorf("got %+v, %v", out, err)
	}
}

// TestConfiguredTextOfAnotherType has keys that want a text hold something else.
func TestConfiguredTextOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"model_type", "task", "version", "segment"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "lm-gru-1x48")
			configure(t, dir, map[string]any{field: []int{1}})
			_, err := models.Load(dir, "m")
			got, ok := errors.AsType[*models.ConfigError](err)
			if !ok || got.Field != field || !strings.Contains(err.Error(), "array, ") || strings.Contains(err.Error(), "Go ") {
				t.Errorf("got %v, want one of %s", err, field)
			}
		})
	}
}
