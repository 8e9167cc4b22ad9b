package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/models"
)

// familiesTimesTypes is how many models random_models.py writes: of each of four
// families two for each storage type.
const familiesTimesTypes = 4 * 2 * 3

// TestRandomModels exports models of every family with random sizes, tokenizers
// and storage types, and wants the runtime to give PyTorch's outputs.
func TestRandomModels(t *testing.T) {
	t.Parallel()
	py := python(t, "torch")
	seeds := 2
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run("seed "+strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := script(t, py, dir, absolute(t, "testdata/random_models.py"), strconv.Itoa(seed), dir); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n := verify(t, dir); n != familiesTimesTypes {
				t.Errorf("%d models, %d wanted", n, familiesTimesTypes)
			}
		})
	}
}

// TestVerifyCommand asks the real binary and PyTorch the same, then spoils what
// either says.
func TestVerifyCommand(t *testing.T) {
	t.Parallel()
	py := python(t, "torch")
	dir := t.TempDir()
	if out, err := script(t, py, dir, absolute(t, "testdata/random_models.py"), "9", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cellmq := filepath.Join(t.TempDir(), "cellmq")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", cellmq, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"language-lstm-f32", "translator-gru-f16", "classifier-lstm-bf16", "tree-gru-f32"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := filepath.Join(dir, name)
			check := func(args ...string) (string, error) {
				return script(t, py, dir, append([]string{absolute(t, "export.py"), "verify", at}, args...)...)
			}
			if out, err := check("--cellmq", cellmq); err != nil || !strings.Contains(out, "golden outputs are right") {
				t.Errorf("%v\n%s", err, out)
			}
			spoilGolden(t, at)
			if out, err := check(); err == nil || !strings.Contains(out, "golden.jsonl line 1: PyTorch: ") {
				t.Errorf("a spoiled golden output: %v\n%s", err, out)
			}
			if out, err := check("--cellmq", cellmq); err == nil || !strings.Contains(out, "0 answers to ") {
				t.Errorf("a model that the worker refuses: %v\n%s", err, out)
			}
		})
	}
}

// spoilGolden changes what the first golden line of a model says.
func spoilGolden(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "golden.jsonl")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var line map[string]any
	if err := json.Unmarshal(first, &line); err != nil {
		t.Fatal(err)
	}
	line["finish_reason"] = "other"
	if first, err = json.Marshal(line); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(append(first, '\n'), rest...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExportRefuses wants a state that does not fit its configuration to be
// refused by the script, with the tensor's name and both shapes, and the loader
// to say the same of such a file.
func TestExportRefuses(t *testing.T) {
	t.Parallel()
	py := python(t, "torch")
	const all = "tensor rnn.weight_hh_l0: shape [20 6], [20 5] wanted\n" +
		"tensor rnn.bias_ih_l0: missing, shape [20] wanted\n" +
		"tensor extra: shape [2 3], not part of the model"
	tests := []struct{ name, change, want string }{
		{"shapes", `state["rnn.weight_hh_l0"] = torch.zeros(20, 6); del state["rnn.bias_ih_l0"]; state["extra"] = torch.zeros(2, 3)`, all},
		{"too large", `state["out.bias"][3] = 70000`, "tensor out.bias: values up to 70000, finite ones in f16 wanted"},
		{"not a number", `state["out.bias"][3] = float("nan")`, "tensor out.bias: values up to nan, finite ones in f16 wanted"},
		{"family", `config["model_type"] = "bert"`, "model_type: 'bert', one of rnn_lm, rnn_seq2seq, rnn_classifier, tree_lstm wanted"},
		{"cell", `config["cell"] = "rnn"`, "cell: 'rnn', one of lstm, gru wanted"},
		{"a token outside", `export.export("n", config, state, inputs=[[7]])`, "input [7]: is empty or has a token outside 0 to 6"},
		{"an empty input", `export.export("n", config, state, inputs=[""])`, "input '': is empty"},
		{"a whole checkpoint", `state = {"epoch": 3}`, "tensor epoch: shape [], not part of the model"},
		{"no size", `del config["hidden_size"]`, "hidden_size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := `
import torch, export, families
config = {"model_type": "rnn_lm", "cell": "lstm", "vocab_size": 7, "embedding_size": 4, "hidden_size": 5, "num_layers": 1, "tokenizer": "ids"}
state = families.build(config).state_dict()
try:
    ` + tt.change + `
    export.export("m", config, state, dtype="f16")
except ValueError as error:
    print(error)
`
			out, err := script(t, py, dir, "-c", program)
			if got := strings.ReplaceAll(out, ", ", " "); err != nil || !strings.Contains(got, strings.ReplaceAll(tt.want, ", ", " ")) {
				t.Errorf("%v\n%s\nwant %s", err, out, tt.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "m", "config.json")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a refused model was written: %v", err)
			}
			if tt.name == "shapes" {
				loadRefuses(t, py, program, tt.want)
			}
		})
	}
}

// loadRefuses writes the tensors of a program's state, whatever they are, and
// wants the loader to say what is wrong with them.
func loadRefuses(t *testing.T, py, program, want string) {
	t.Helper()
	dir := t.TempDir()
	unchecked := program + `
import json, pathlib, storage
pathlib.Path("m").mkdir()
pathlib.Path("m/config.json").write_text(json.dumps(config))
storage.save("m/model.safetensors", state)
`
	if out, err := script(t, py, dir, "-c", unchecked); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err := models.Load(os.DirFS(filepath.Join(dir, "m")), "m")
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the loader says %v, want %s", err, want)
	}
}

// TestFromONNX writes models as ONNX files with PyTorch's own exporter, reads
// them back, and wants every tensor equal and the runtime to give PyTorch's
// outputs; nodes that do something else are refused.
func TestFromONNX(t *testing.T) {
	t.Parallel()
	py := python(t, "torch, onnx")
	dir := t.TempDir()
	if out, err := script(t, py, dir, absolute(t, "testdata/onnx_models.py"), "1", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := verify(t, dir); n != 6 {
		t.Errorf("%d models, 6 wanted", n)
	}
}
