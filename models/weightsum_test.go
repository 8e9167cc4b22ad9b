package models_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
)

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestOneBitIsRefused flips one bit of the weights file of each family, in its
// header's length, its header, and its values, of which the first and the last
// are two classes of their own. With golden outputs that name the weights every
// one is refused.
func TestOneBitIsRefused(t *testing.T) {
	t.Parallel()
	const trials = 200
	families := familyFixtures()
	rng := rand.New(rand.NewPCG(7, 7))
	for _, fixture := range families {
		dir := recorded(t, fixture, 1)
		whole := dir["model.safetensors"].Data
		values := 8 + int(binary.LittleEndian.Uint64(whole))
		classes := [][2]int{{0, 8}, {8, values}, {values, values + 4}, {values, len(whole)}, {values, len(whole)}, {len(whole) - 4, len(whole)}}
		for i := range trials / len(families) {
			class := classes[i%len(classes)]
			bit := 8*class[0] + rng.IntN(8*(class[1]-class[0]))
			flipped := slices.Clone(whole)
			flipped[bit/8] ^= 1 << (bit % 8)
			spoiled := maps.Clone(dir)
			spoiled["model.safetensors"] = &fstest.MapFile{Data: flipped}
			_, err := models.Load(spoiled, "m")
			if err == nil {
				t.Fatalf("%s: bit %d of %d flipped: loaded", fixture, bit, 8*len(whole))
			}
			checkBrief(t, err)
			if class[0] < values {
				continue // the header may break first
			}
			if e, ok := errors.AsType[*models.ConfigError](err); !ok || e.File != "golden.jsonl" || e.Field != "weights_sha256" {
				t.Errorf("%s: bit %d: %v", fixture, bit, err)
			}
			for _, sum := range []string{sumOf(whole), sumOf(flipped)} {
				if !strings.Contains(err.Error(), sum) {
					t.Errorf("%s: bit %d: %v does not name %s", fixture, bit, err, sum)
				}
			}
		}
	}
}

// TestGoldenKeys has the keys of a line that say where it is from.
func TestGoldenKeys(t *testing.T) {
	t.Parallel()
	dir := directory(t, "s2s-gru-plain")
	sum := sumOf(dir["model.safetensors"].Data)
	other := strings.Repeat("0", 64)
	line := func(more string) string {
		return `{"input":"21","tokens":[],"text":"","finish_reason":"stop"` + more + "}\n"
	}
	named := func(s string) string { return line(`,"weights_sha256":"` + s + `"`) }
	tests := []struct {
		name, golden string
		selfMade     bool
		want         string // of the error; empty: loaded
	}{
		{"neither", line(""), false, ""},
		{"self-made", line("") + line(`,"self_made":true`), true, ""},
		{"not self-made", line(`,"self_made":false`), false, ""},
		{"named", named(sum) + line("") + named(sum), false, ""},
		{"null", line(`,"weights_sha256":null`), false, ""},
		{"other weights", line("") + named(other), false, fmt.Sprintf("golden.jsonl: weights_sha256: line 2 is of weights with %q, those of model.safetensors have %q", other, sum)},
		{"contradicting", named(sum) + line("") + named(other), false, "weights_sha256: line 3 "},
		{"upper case", named(strings.ToUpper(sum)), false, "weights_sha256: line 1 "},
		{"empty", named(""), false, "weights_sha256: line 1 "},
		{"long", named(strings.Repeat(sum, 1000)), false, "weights_sha256: line 1 "},
		{"no text", line(`,"weights_sha256":1`), false, "golden.jsonl: line 1: "},
		{"no truth value", line(`,"self_made":1`), false, "golden.jsonl: line 1: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := maps.Clone(dir)
			dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(tt.golden)}
			m, err := models.Load(dir, "m")
			checkBrief(t, err)
			if tt.want == "" {
				if err != nil || m.SelfMade() != tt.selfMade {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestWrongShape gives a model of each family the weights of a configuration
// that is one wider, and wants a tensor's name and both shapes.
func TestWrongShape(t *testing.T) {
	t.Parallel()
	tests := []struct{ fixture, key, tensor string }{
		{"s2s-lstm-bi-attn", "decoder_hidden_size", "decoder.weight_hh_l0"},
		{"clf-gru-2x64", "hidden_size", "layers.0.weight_hh_l0"},
		{"lm-lstm-2x37", "hidden_size", "rnn.weight_hh_l0"},
		{"tree-h29", "hidden_size", "node.weight"},
	}
	for _, tt := range tests {
		t.Run(tt.fixture, func(t *testing.T) {
			t.Parallel()
			dir := recorded(t, tt.fixture, 1)
			f, err := safetensors.Parse(dir["model.safetensors"].Data)
			if err != nil {
				t.Fatal(err)
			}
			tensor, ok := f.Tensor(tt.tensor)
			if !ok {
				t.Fatalf("no tensor %s", tt.tensor)
			}
			var c map[string]any
			if err := json.Unmarshal(dir["config.json"].Data, &c); err != nil {
				t.Fatal(err)
			}
			configure(t, dir, map[string]any{tt.key: c[tt.key].(float64) + 1})
			_, err = models.Load(dir, "m")
			if err == nil {
				t.Fatal("loaded")
			}
			checkBrief(t, err)
			if !strings.Contains(err.Error(), fmt.Sprintf("tensor %s: shape %v, [", tt.tensor, tensor.Shape)) {
				t.Errorf("%v does not name %s of shape %v and the wanted one", err, tt.tensor, tensor.Shape)
			}
		})
	}
}
