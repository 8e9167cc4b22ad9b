package models_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
)

func checkInputError(t *testing.T, err error, code models.Code, field, message string) {
	t.Helper()
	got, ok := errors.AsType[*models.InputError](err)
	if !ok {
		t.Fatalf("got %v, want an InputError", err)
	}
	if got.Code != code || got.Field != field || !strings.Contains(got.Message, message) {
		t.Errorf("got %+v, want %s %s %s", *got, code, field, message)
	}
}

// TestTokenParamsAreRefused sends each parameter about tokens to the families
// that emit none.
func TestTokenParamsAreRefused(t *testing.T) {
	t.Parallel()
	all := map[string]models.Params{
		"max_tokens": {MaxTokens: ptr(1)}, "temperature": {Temperature: ptr(0.0)}, "top_k": {TopK: ptr(1)},
		"top_p": {TopP: ptr(1.0)}, "seed": {Seed: ptr(uint64(1))}, "stop": {Stop: []string{"x"}},
		"beam_width": {BeamWidth: ptr(1)}, "n_best": {NBest: ptr(1)}, "logprobs": {LogProbs: ptr(0)},
	}
	for fixture, in := range map[string]models.Input{"clf-gru-2x64": {Text: "3"}, "tree-h29": {Text: "t3"}} {
		m := load(t, directory(t, fixture), "m")
		for field, p := range all {
			_, err := m.Unfold(in, p)
			checkInputError(t, err, models.UnsupportedParameter, field, "label")
		}
		if r, err := m.Unfold(in, models.Params{Stop: []string{}, RequestID: "a"}); err != nil || r.MaxTokens != 0 || r.InputTokens != 1 {
			t.Errorf("%s: %+v, %v", fixture, r, err)
		}
	}
}

func TestClassesRefuse(t *testing.T) {
	t.Parallel()
	text := load(t, directory(t, "clf-gru-2x64"), "text")
	dir := directory(t, "clf-gru-2x64")
	configure(t, dir, map[string]any{"max_input_length": 3})
	short := load(t, dir, "short")
	trees := load(t, directory(t, "tree-h29"), "trees")
	dir = directory(t, "tree-h29")
	configure(t, dir, map[string]any{"max_nodes": 4})
	few := load(t, dir, "few")
	tests := []struct {
		name    string
		m       *models.Model
		in      models.Input
		p       models.Params
		code    models.Code
		field   string
		message string
	}{
		{"no text", text, models.Input{}, models.Params{}, models.BadRequest, "input", "empty"},
		{"unknown token", text, models.Input{Text: "1 61"}, models.Params{}, models.BadRequest, "input", `"61" at position 1 is not below 61`},
		{"unknown id", text, models.Input{IDs: []int32{61}}, models.Params{}, models.BadRequest, "input", "token id 61"},
		{"long text", short, models.Input{Text: "1 2 3 4"}, models.Params{}, models.InputTooLong, "input", "4 tokens, at most 3 wanted"},
		{"long ids", short, models.Input{IDs: []int32{1, 2, 3, 4}}, models.Params{}, models.InputTooLong, "input", "4 tokens, at most 3 wanted"},
		{"very long", text, models.Input{Text: strings.Repeat("1 ", 1<<19)}, models.Params{}, models.InputTooLong, "input", "at most 16384 wanted"},
		{"no tree", trees, models.Input{Text: " \n"}, models.Params{}, models.BadRequest, "input", "empty"},
		{"ids for a tree", trees, models.Input{IDs: []int32{1, 2, -1}}, models.Params{}, models.BadRequest, "input", "a tree as text wanted"},
		{"ramps of a tree", trees, models.Input{Text: "t1"}, models.Params{Ramps: true}, models.UnsupportedParameter, "ramps", "ramps"},
		{"open tree", trees, models.Input{Text: "( t1 ( t2"}, models.Params{}, models.BadRequest, "input", `"(" at position 5 is not closed`},
		{"closed too often", trees, models.Input{Text: "t1 )"}, models.Params{}, models.BadRequest, "input", `")" at position 3 closes nothing`},
		{"one child", trees, models.Input{Text: "( t1 )"}, models.Params{}, models.BadRequest, "input", "has 1 of 2 children"},
		{"three children", trees, models.Input{Text: "( t1 t2 t3 )"}, models.Params{}, models.BadRequest, "input", `"t3" at position 8 is a third child`},
		{"two trees", trees, models.Input{Text: "t1 t2"}, models.Params{}, models.BadRequest, "input", `"t2" at position 3 comes after the end`},
		{"unknown leaf", trees, models.Input{Text: "( t1 t11 )"}, models.Params{}, models.BadRequest, "input", `"t11" at position 5 is not in the vocabulary`},
		{"large tree", few, models.Input{Text: "( t1 ( t2 t3 ) )"}, models.Params{}, models.InputTooLong, "input", "a tree of 5 nodes, at most 4 wanted"},
		{"only parentheses", trees, models.Input{Text: strings.Repeat("(", 1<<20)}, models.Params{}, models.InputTooLong, "input", "at most 65536 wanted"},
		{"only closing", trees, models.Input{Text: strings.Repeat(")", 1<<20)}, models.Params{}, models.BadRequest, "input", "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.m.Unfold(tt.in, tt.p)
			checkInputError(t, err, tt.code, tt.field, tt.message)
		})
	}
	dir = directory(t, "clf-lstm-4x27")
	configure(t, dir, map[string]any{"ramps": 0})
	if _, err := models.Load(dir, "m"); err == nil || !strings.Contains(err.Error(), "tensor ramps.0.bias") {
		t.Errorf("ramps that the configuration does not have: %v", err)
	}
}

// deepTrees are trees 10,000 nodes deep.
func deepTrees() map[string]string {
	const n = 10_000
	var zigzag, end strings.Builder
	for i := range n {
		if i%2 == 0 {
			zigzag.WriteString("( t2 ")
		} else {
			zigzag.WriteString("( ")
		}
	}
	zigzag.WriteString("t1")
	for i := n - 1; i >= 0; i-- {
		if i%2 == 0 {
			end.WriteString(" )")
		} else {
			end.WriteString(" t3 )")
		}
	}
	return map[string]string{
		"left":   strings.Repeat("( ", n) + "t1" + strings.Repeat(" t2 )", n),
		"right":  strings.Repeat("( t2 ", n) + "t1" + strings.Repeat(" )", n),
		"zigzag": zigzag.String() + end.String(),
	}
}

// TestDeepTrees runs trees 10,000 deep together with trees of one leaf, in a
// slot for 64 nodes and in one for the fewest that are allowed.
func TestDeepTrees(t *testing.T) {
	t.Parallel()
	logits := make(map[string]string)
	for _, entries := range []int{64, 16} {
		dir := directory(t, "tree-h29")
		configure(t, dir, map[string]any{"state_entries": entries})
		m := load(t, dir, "m")
		if got := m.Program().Layout.Size(); got != 2*29*entries {
			t.Errorf("a state of %d values", got)
		}
		r := serve(t, m, 4, cellrt.Config{Executors: 2})
		for name, text := range deepTrees() {
			a, one := question{model: m, input: models.Input{Text: text}}, question{model: m, input: models.Input{Text: "t4"}}
			got := runTogether(t, r, a, one)
			if want, ok := logits[name]; ok && got != want {
				t.Errorf("%s: got %s with %d entries, %s with 64", name, got, entries, want)
			}
			logits[name] = got
		}
	}
	if logits["left"] == logits["right"] {
		t.Error("left and right are the same")
	}
}

// runTogether returns what the first request gives while the second runs.
func runTogether(t *testing.T, r *runner.Runner, a, b question) string {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := runQuestion(t.Context(), r, b)
		done <- err
	}()
	got, err := runQuestion(t.Context(), r, a)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLabels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, fixture string
		change        map[string]any
		want          string
	}{
		{"repeated", "clf-gru-2x64", map[string]any{"labels": []string{"a", "b", "a"}}, `labels: label 2, "a"`},
		{"empty", "clf-gru-2x64", map[string]any{"labels": []string{"a", "b", ""}}, `labels: label 2, ""`},
		{"long", "clf-gru-2x64", map[string]any{"labels": []string{"a", "b", strings.Repeat("x", 65)}}, "labels: label 2"},
		{"missing", "clf-gru-2x64", map[string]any{"labels": nil}, "labels: 0, 1 to"},
		{"pooling", "clf-gru-2x64", map[string]any{"pooling": "max"}, `pooling: "max"`},
		{"tokenizer", "clf-gru-2x64", map[string]any{"tokenizer": nil}, "tokenizer: missing"},
		{"labels of a tree", "tree-h29", map[string]any{"labels": []string{"a"}}, "labels: 1, num_labels is 5"},
		{"tokenizer of a tree", "tree-h29", map[string]any{"tokenizer": "ids"}, `tokenizer: type "ids", tree wanted`},
		{"entries", "tree-h29", map[string]any{"state_entries": 15}, "state_entries: 15, 16 to 4096 wanted"},
		{"vocabulary", "tree-h29", map[string]any{"vocab_size": 12}, "vocabulary has 11 tokens, the model 12"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, tt.fixture)
			configure(t, dir, tt.change)
			if _, err := models.Load(dir, "m"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	dir := directory(t, "tree-h29")
	configure(t, dir, map[string]any{"labels": []string{"v", "w", "x", "y", "z"}})
	m := load(t, dir, "m")
	req, err := m.Unfold(models.Input{Text: "t3"}, models.Params{})
	if err != nil {
		t.Fatal(err)
	}
	if o := req.Outcome(); o.Label != "" || o.Scores != nil {
		t.Errorf("outcome before the end: %+v", o)
	}
	if _, err := serve(t, m, 1, cellrt.Config{}).Run(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if o := req.Outcome(); o.Label != "w" || o.Scores[1].Label != "w" || o.Scores[1].Probability < 0.2 {
		t.Errorf("outcome %+v, want w", o)
	}
}

// TestTiesGoToTheLowest makes all logits equal.
func TestTiesGoToTheLowest(t *testing.T) {
	t.Parallel()
	dir := directory(t, "tree-h29")
	zeroTensors(t, dir, "classifier.weight", "classifier.bias")
	m := load(t, dir, "m")
	req, err := m.Unfold(models.Input{Text: "( t3 t1 )"}, models.Params{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serve(t, m, 1, cellrt.Config{}).Run(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	o := req.Outcome()
	for i, s := range o.Scores {
		if s.Label != strconv.Itoa(i) || math.Abs(float64(s.Probability)-0.2) > 1e-7 {
			t.Errorf("score %+v", s)
		}
	}
	if o.Label != "0" || len(o.Scores) != 5 {
		t.Errorf("label %s of %d scores", o.Label, len(o.Scores))
	}
}

func TestGoldenLabels(t *testing.T) {
	t.Parallel()
	right := `{"input":"t3","label":"1","logits":[-0.27147,0.212799,-0.240574,-0.529966,-0.065670],"finish_reason":"stop","tolerance":0.00001}`
	tests := []struct{ name, golden, field string }{
		{"right", right, ""},
		{"label", strings.Replace(right, `"1"`, `"2"`, 1), "label"},
		{"logits", strings.Replace(right, "0.212799", "0.2129", 1), "logits"},
		{"no label", strings.Replace(right, `"label":"1",`, "", 1), "label"},
		{"nothing to verify", `{"input":"t3","finish_reason":"stop"}`, "label"},
		{"fewer logits", strings.Replace(right, ",-0.065670", "", 1), "logits"},
		{"finish_reason", strings.Replace(right, "stop", "length", 1), "finish_reason"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "tree-h29")
			dir["golden.jsonl"] = &fstest.MapFile{Data: []byte(tt.golden)}
			m := load(t, dir, "m")
			_, err := m.VerifyGolden(t.Context(), 2, serve(t, m, 2, cellrt.Config{}).Run)
			got, ok := errors.AsType[*models.GoldenError](err)
			if (tt.field == "") != (err == nil) || ok && got.Field != tt.field {
				t.Errorf("got %v, want %s", err, tt.field)
			}
		})
	}
}
