package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/cellmq/cellmq/models/safetensors"
)

// modelName is the model that computes next to nothing.
const modelName = "nothing"

// writeModel writes a language model of four units below dir. Its weights are
// zero, so it always chooses the first token.
func writeModel(dir string) error {
	const vocabulary, units = 8, 4
	config, err := json.Marshal(map[string]any{
		"model_type": "rnn_lm", "cell": "gru", "vocab_size": vocabulary, "embedding_size": units, "hidden_size": units,
		"num_layers": 1, "tokenizer": "ids",
	})
	if err != nil {
		return err
	}
	var tensors []safetensors.Values
	for _, t := range []struct {
		name  string
		shape []int
	}{
		{"embed.weight", []int{vocabulary, units}},
		{"out.bias", []int{vocabulary}},
		{"out.weight", []int{vocabulary, units}},
		{"rnn.bias_hh_l0", []int{3 * units}},
		{"rnn.bias_ih_l0", []int{3 * units}},
		{"rnn.weight_hh_l0", []int{3 * units, units}},
		{"rnn.weight_ih_l0", []int{3 * units, units}},
	} {
		n := 1
		for _, d := range t.shape {
			n *= d
		}
		tensors = append(tensors, safetensors.Values{Name: t.name, DType: safetensors.F32, Shape: t.shape, Data: make([]float32, n)})
	}
	var weights bytes.Buffer
	if err := safetensors.Write(&weights, tensors, nil); err != nil {
		return err
	}
	at := filepath.Join(dir, modelName)
	return errors.Join(
		os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(at, "config.json"), config, 0o600),
		os.WriteFile(filepath.Join(at, "model.safetensors"), weights.Bytes(), 0o600),
	)
}
