package models_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/safetensors"
)

// The longest error that any file of a model may lead to.
const (
	longestError = 8 << 10
	mostLines    = 20
)

// checkShort checks that an error was returned and that its text is short.
func checkShort(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	checkBrief(t, err)
}

// checkBrief checks that an error's text, if there is one, is short.
func checkBrief(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if lines := strings.Count(text, "\n") + 1; len(text) > longestError || lines > mostLines {
		t.Errorf("the message has %d bytes in %d lines: %.200s", len(text), lines, text)
	}
}

// hostileValues are JSON values that no key of a model's files wants.
func hostileValues() map[string]json.RawMessage {
	const n = 50_000
	list := func(item string) json.RawMessage {
		return json.RawMessage("[" + strings.Repeat(item+",", n) + item + "]")
	}
	return map[string]json.RawMessage{
		"digits":       json.RawMessage(strings.Repeat("7", n)),
		"fraction":     json.RawMessage("1." + strings.Repeat("7", n)),
		"exponent":     json.RawMessage("1e" + strings.Repeat("7", n)),
		"text":         json.RawMessage(`"` + strings.Repeat("t", n) + `"`),
		"lines":        json.RawMessage(`"` + strings.Repeat(`\n`, n) + `"`),
		"controls":     json.RawMessage(`"` + strings.Repeat(`\u0001`, n) + `"`),
		"key":          json.RawMessage(`{"` + strings.Repeat("k", n) + `":1}`),
		"few lines":    json.RawMessage(`"` + strings.Repeat(`\n`, 100) + `"`),
		"texts":        list(`"t"`),
		"numbers":      list("7"),
		"long numbers": json.RawMessage("[" + strings.Repeat("7", n) + "]"),
		"objects":      list(`{"a":1}`),
		"nested":       json.RawMessage(strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)),
	}
}

// withKey returns the text of an object with one key set.
func withKey(t *testing.T, object []byte, key string, value json.RawMessage) []byte {
	t.Helper()
	c := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &c); err != nil {
		t.Fatal(err)
	}
	c[key] = value
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keysOf returns the keys of an object and more, sorted.
func keysOf(t *testing.T, object []byte, more ...string) []string {
	t.Helper()
	c := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &c); err != nil {
		t.Fatal(err)
	}
	for _, k := range more {
		c[k] = nil
	}
	return slices.Sorted(maps.Keys(c))
}

// familyFixtures are one fixture of each family.
func familyFixtures() []string {
	return []string{"s2s-lstm-bi-attn", "clf-gru-2x64", "lm-lstm-2x37", "tree-h29"}
}

// TestHostileConfigGivesShortErrors sets every key of every family's
// configuration, those of its tokenizers included, to values that nobody
// wants.
func TestHostileConfigGivesShortErrors(t *testing.T) {
	t.Parallel()
	tokenizerKeys := []string{"type", "vocab", "lowercase", "separator", "segment_separator"}
	for _, family := range familyFixtures() {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, family)
			good := dir["config.json"].Data
			check := func(what string, config []byte) {
				spoiled := maps.Clone(dir)
				spoiled["config.json"] = &fstest.MapFile{Data: config}
				t.Run(what, func(t *testing.T) {
					_, err := models.Load(spoiled, "m")
					checkBrief(t, err)
				})
			}
			for name, value := range hostileValues() {
				check("whole "+name, value)
				for _, k := range keysOf(t, good, "tokenizer", "source_tokenizer", "target_tokenizer", "segment", "task", "version", "labels") {
					check(k+" "+name, withKey(t, good, k, value))
				}
				for _, k := range tokenizerKeys {
					for _, side := range []string{"tokenizer", "source_tokenizer"} {
						part := withKey(t, []byte(`{"type":"characters","vocab":"v.json"}`), k, value)
						check(side+"."+k+" "+name, withKey(t, good, side, part))
					}
				}
			}
		})
	}
}

// TestHostileVocabularyGivesShortErrors spoils the vocabulary of every kind of
// tokenizer that has one.
func TestHostileVocabularyGivesShortErrors(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"characters", "words", "tree"} {
		family := map[bool]string{true: "tree-h29", false: "lm-lstm-2x37"}[kind == "tree"]
		for name, value := range hostileValues() {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := directory(t, family)
				configure(t, dir, map[string]any{"tokenizer": map[string]any{"type": kind, "vocab": "v.json"}})
				dir["v.json"] = &fstest.MapFile{Data: value}
				_, err := models.Load(dir, "m")
				checkShort(t, err)
			})
		}
	}
}

// TestHostileVocabularyName reads a vocabulary from a directory of the file
// system, whose errors repeat the name.
func TestHostileVocabularyName(t *testing.T) {
	t.Parallel()
	for _, n := range []int{255, 256, 100_000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "lm-lstm-2x37")
			configure(t, dir, map[string]any{"tokenizer": map[string]any{"type": "words", "vocab": strings.Repeat("v", n)}})
			at := t.TempDir()
			if err := os.CopyFS(at, dir); err != nil {
				t.Fatal(err)
			}
			_, err := models.Load(os.DirFS(at), "m")
			checkShort(t, err)
		})
	}
}

// emptyTensors returns a file of n empty tensors whose names are made of an
// index.
func emptyTensors(t *testing.T, n int, name string) []byte {
	t.Helper()
	all := make([]safetensors.Values, n)
	for i := range all {
		all[i] = safetensors.Values{Name: fmt.Sprintf(name, i), DType: safetensors.F32, Shape: []int{0}}
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, all, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHostileWeightsGiveShortErrors gives every family many tensors too many,
// so that all of its own are missing too.
func TestHostileWeightsGiveShortErrors(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{
		"many":     emptyTensors(t, 50_000, "tensor.%06d"),
		"none":     emptyTensors(t, 0, ""),
		"long":     emptyTensors(t, 5_000, "%06d"+strings.Repeat("n", 500)),
		"controls": emptyTensors(t, 5_000, "%06d"+strings.Repeat("\n", 500)),
		"wide":     emptyTensors(t, 5_000, "%06d"+strings.Repeat("\U0010ffff", 120)),
	}
	for _, family := range familyFixtures() {
		for name, file := range files {
			t.Run(family+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := directory(t, family)
				dir["model.safetensors"] = &fstest.MapFile{Data: file}
				_, err := models.Load(dir, "m")
				checkShort(t, err)
				text := err.Error()
				if !strings.Contains(text, ": missing, shape") {
					t.Errorf("names no missing tensor: %s", text)
				}
				if name != "none" && (!strings.Contains(text, "not part of the model") || !strings.Contains(text, "92 more")) {
					t.Errorf("names no tensor too many and how many more there are: %s", text)
				}
			})
		}
	}
}

// TestManyLayersMissing has a configuration with many more layers than the
// weights.
func TestManyLayersMissing(t *testing.T) {
	t.Parallel()
	dir := directory(t, "clf-gru-2x64")
	configure(t, dir, map[string]any{"num_layers": 64, "ramps": 63})
	_, err := models.Load(dir, "m")
	checkShort(t, err)
}

// TestHostileGoldenGivesShortErrors sets every key of a golden line to values
// that nobody wants, and runs those that can be read.
func TestHostileGoldenGivesShortErrors(t *testing.T) {
	t.Parallel()
	const line = `{"input":"21","input_ids":null,"tokens":[],"text":"","finish_reason":"stop","logprob":-0.857275,` +
		`"tolerance":0.001,"max_tokens":null,"input_logprob":null,"label":"","logits":[],"self_made":false,"weights_sha256":null}`
	dir := directory(t, "s2s-gru-plain")
	for name, value := range hostileValues() {
		for _, k := range keysOf(t, []byte(line), "unknown", strings.Repeat("u", 50_000)) {
			t.Run(fmt.Sprintf("%.20s %s", k, name), func(t *testing.T) {
				spoiled := maps.Clone(dir)
				spoiled["golden.jsonl"] = &fstest.MapFile{Data: withKey(t, []byte(line), k, value)}
				m, err := models.Load(spoiled, "g")
				checkBrief(t, err)
				if err != nil {
					return
				}
				_, err = m.VerifyGolden(t.Context(), 1, runOracle(m))
				checkBrief(t, err)
			})
		}
	}
}

// runOracle runs requests of a model through the oracle.
func runOracle(m *models.Model) models.Run {
	return func(_ context.Context, r *models.Request) (models.Output, error) {
		res, err := oracle.New(m.Program()).Run(r.Graph)
		return models.Output{Tokens: res.Tokens, Reason: res.Reason}, err
	}
}

// TestLoadDirListsTheFirst loads a directory of many models that are all
// wrong.
func TestLoadDirListsTheFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 200 {
		sub := filepath.Join(dir, fmt.Sprintf("m%03d", i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, "config.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := models.LoadDir(dir)
	checkShort(t, err)
	if !strings.Contains(err.Error(), "load model m000: ") || !strings.Contains(err.Error(), "and 192 more") {
		t.Errorf("got %v", err)
	}
	if _, ok := errors.AsType[*models.ConfigError](err); !ok {
		t.Errorf("%v has no ConfigError", err)
	}
}
