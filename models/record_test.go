package models_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

// inputsOf returns inputs that a fixture understands.
func inputsOf(m *models.Model, n int) []models.Input {
	rng := rand.New(rand.NewPCG(6, uint64(n)))
	inputs := make([]models.Input, n)
	for i := range inputs {
		if m.Family() == models.FamilyTree {
			inputs[i].Text = randomTree(rng, 1+rng.IntN(12))
		} else {
			inputs[i].IDs = randomIDs(rng, 1+rng.IntN(12))
		}
	}
	return inputs
}

// recorded returns a fixture's directory with a golden file of n lines.
func recorded(t *testing.T, fixture string, n int) fstest.MapFS {
	t.Helper()
	dir := directory(t, fixture)
	m := load(t, dir, "m")
	var b bytes.Buffer
	if err := m.Record(t.Context(), runOracle(m), inputsOf(m, n), 0, &b); err != nil {
		t.Fatal(err)
	}
	dir["golden.jsonl"] = &fstest.MapFile{Data: b.Bytes()}
	return dir
}

// TestRecordVerifies records golden files of all families on each instruction
// tier, which must be the same file, and verifies it on each, with one executor
// and with two.
func TestRecordVerifies(t *testing.T) {
	for _, fixture := range fixtures(t, "") {
		t.Run(fixture.Name(), func(t *testing.T) {
			var file []byte
			dir := directory(t, fixture.Name())
			for _, isa := range cpu.Tiers() {
				t.Setenv("CELLMQ_ISA", isa)
				m := load(t, dir, "m")
				var b bytes.Buffer
				if err := m.Record(t.Context(), serve(t, m, 1, cellrt.Config{}).Run, inputsOf(m, 6), 0, &b); err != nil {
					t.Fatal(err)
				}
				if file != nil && !bytes.Equal(b.Bytes(), file) {
					t.Errorf("%s: another file than on %s", isa, cpu.Tiers()[0])
				}
				file = b.Bytes()
			}
			dir["golden.jsonl"] = &fstest.MapFile{Data: file}
			for _, isa := range cpu.Tiers() {
				for _, executors := range []int{1, 2} {
					t.Setenv("CELLMQ_ISA", isa)
					m := load(t, dir, "m")
					report, err := m.VerifyGolden(t.Context(), 4, serve(t, m, 4, cellrt.Config{Executors: executors}).Run)
					if err != nil || report != (models.GoldenReport{Cases: 6, Equal: 6}) || !m.SelfMade() {
						t.Errorf("%s, %d executors: %+v, %v, self-made %t", isa, executors, report, err, m.SelfMade())
					}
				}
			}
		})
	}
}

// TestRecordedLines has what a line says in each family.
func TestRecordedLines(t *testing.T) {
	t.Parallel()
	common := []string{"finish_reason", "self_made", "tolerance", "weights_sha256"}
	for fixture, keys := range map[string][]string{
		"s2s-gru-plain": {"input_ids", "logprob", "tokens"},
		"lm-lstm-2x37":  {"input_ids", "input_logprob", "logprob", "tokens"},
		"clf-gru-2x64":  {"input_ids", "label", "logits"},
		"tree-h29":      {"input", "label", "logits"},
	} {
		var line map[string]any
		first, _, _ := bytes.Cut(recorded(t, fixture, 2)["golden.jsonl"].Data, []byte("\n"))
		if err := json.Unmarshal(first, &line); err != nil {
			t.Fatal(err)
		}
		for _, k := range append(keys, common...) {
			if _, ok := line[k]; !ok {
				t.Errorf("%s: no %s in %s", fixture, k, first)
			}
		}
		if line["self_made"] != true || line["tolerance"] != 0.0 {
			t.Errorf("%s: %s", fixture, first)
		}
	}
	m := load(t, directory(t, "lm-lstm-2x37"), "m")
	var b bytes.Buffer
	if err := m.Record(t.Context(), runOracle(m), []models.Input{{IDs: []int32{4}}}, 3, &b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"max_tokens":3`) {
		t.Errorf("no max_tokens in %s", b.String())
	}
}

// TestRecordRefuses wants nothing to be written when something is wrong.
func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	m := load(t, directory(t, "s2s-gru-plain"), "m")
	label := load(t, directory(t, "tree-h29"), "t")
	broken := errors.New("broken")
	good := models.Input{Text: "21"}
	long := m.Limits().MaxTokens + 1
	tests := []struct {
		name      string
		model     *models.Model
		inputs    []models.Input
		maxTokens int
		run       models.Run
		want      string
	}{
		{"no input", m, nil, 0, runOracle(m), "no input"},
		{"other weights", m.WithWeights(cellrt.Int8), []models.Input{good}, 0, runOracle(m), "int8 weights, f32 wanted"},
		{"refused input", m, []models.Input{good, {Text: "x"}}, 0, runOracle(m), "golden output 2: input: "},
		{"too many tokens", m, []models.Input{good}, long, runOracle(m), "max_tokens"},
		{"no tokens to bound", label, []models.Input{{Text: "t1"}}, 5, runOracle(label), "max_tokens"},
		{"failing run", m, []models.Input{good}, 0, func(context.Context, *models.Request) (models.Output, error) {
			return models.Output{}, broken
		}, "golden output 1: broken"},
		{"stopped run", m, []models.Input{good}, 0, func(context.Context, *models.Request) (models.Output, error) {
			return models.Output{}, nil
		}, "did not end by itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := tt.model.Record(t.Context(), tt.run, tt.inputs, tt.maxTokens, &b)
			if err == nil || !strings.Contains(err.Error(), tt.want) || b.Len() > 0 {
				t.Errorf("got %v and %d bytes, want %s", err, b.Len(), tt.want)
			}
		})
	}
	full := errors.New("disk full")
	if err := m.Record(t.Context(), runOracle(m), []models.Input{good}, 0, failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("failing writer: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

var _ io.Writer = failingWriter{}

// TestMismatchesAreAll has a golden file some of whose lines are wrong in
// different ways.
func TestMismatchesAreAll(t *testing.T) {
	t.Parallel()
	dir := recorded(t, "lm-lstm-2x37", 9)
	lines := strings.SplitAfter(string(dir["golden.jsonl"].Data), "\n")
	lines[1] = strings.Replace(lines[1], `"finish_reason":"length"`, `"finish_reason":"stop"`, 1)
	lines[4] = strings.Replace(lines[4], `"input_logprob":-`, `"input_logprob":-1`, 1)
	lines[6] = `{"input_ids":[99]}` + "\n"
	lines[8] = strings.Replace(lines[8], `"tokens":[`, `"tokens":[1,`, 1)
	dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(strings.Join(lines, ""))}
	m := load(t, dir, "m")
	for limit, want := range map[int]string{0: "", 2: "[2 finish_reason 5 input_logprob]", 20: "[2 finish_reason 5 input_logprob refused 9 tokens]"} {
		report, wrong, err := m.Mismatches(t.Context(), 3, runOracle(m), limit)
		if report != (models.GoldenReport{Cases: 9, Equal: 5}) {
			t.Errorf("limit %d: %+v", limit, report)
		}
		if first, ok := errors.AsType[*models.GoldenError](err); !ok || first.Line != 2 {
			t.Errorf("limit %d: verdict %v", limit, err)
		}
		var got []string
		for _, err := range wrong {
			if g, ok := errors.AsType[*models.GoldenError](err); ok {
				got = append(got, fmt.Sprint(g.Line, " ", g.Field))
			} else if _, ok := errors.AsType[*models.InputError](err); ok {
				got = append(got, "refused")
			}
		}
		if fmt.Sprint(got) != want && len(got)+len(want) > 0 {
			t.Errorf("limit %d: got %v, want %s", limit, got, want)
		}
	}
}
