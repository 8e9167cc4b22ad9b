//go:build unix

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/registry"
)

// The models that operators push: language models over ids with random weights.
const (
	randomVocab = 64
	poison      = 3 // the id that a poisoned model has no number for
)

// shop is an operator: models in directories, and the command line.
type shop struct {
	t   *testing.T
	url string
	dir string
}

func newShop(t *testing.T, url string) *shop {
	t.Helper()
	return &shop{t: t, url: url, dir: t.TempDir()}
}

// command runs the program and wants it to succeed.
func (s *shop) command(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// try runs the program, in a process of its own.
func (s *shop) try(args ...string) (string, error) {
	p, err := brokertest.Launch([]string{role + "=1", "CELLMQ_NATS_URL=" + s.url, "CELLMQ_PROFILE=0"}, args...)
	if err != nil {
		return "", err
	}
	defer p.Kill()
	select {
	case <-p.Done():
		return p.Output(), p.Err()
	case <-time.After(patience):
		return p.Output(), errors.New("it does not end")
	}
}

// make writes a model's version with random weights into a directory, with golden
// outputs, and returns the directory. Poisoned: what follows one of the ids is not
// a number, and there are no golden outputs, as the program records none of such a
// model.
func (s *shop) make(model, version string, hidden int, weights uint64, poisoned bool) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, version, model)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	config := fmt.Sprintf(`{"model_type":"rnn_lm","cell":"lstm","num_layers":1,"vocab_size":%d,"embedding_size":%d,"hidden_size":%d,
		"tokenizer":"ids","version":%q}`, randomVocab, hidden, hidden, version)
	var file bytes.Buffer
	if err := safetensors.Write(&file, randomTensors(hidden, weights, poisoned), nil); err != nil {
		s.t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": []byte(config), "model.safetensors": file.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	if !poisoned {
		s.command("model", "golden", dir, "--input", "4 11 24", "--input", "7", "--max-tokens", "24")
	}
	return dir
}

// randomTensors are the weights of a language model over ids.
func randomTensors(hidden int, weights uint64, poisoned bool) []safetensors.Values {
	r := rand.New(rand.NewPCG(weights, 2))
	random := func(name string, scale float64, shape ...int) safetensors.Values {
		size := 1
		for _, n := range shape {
			size *= n
		}
		data := make([]float32, size)
		for i := range data {
			data[i] = float32(scale * r.NormFloat64())
		}
		return safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: data}
	}
	inner := 2 / math.Sqrt(float64(hidden))
	embed, bias := random("embed.weight", 1, randomVocab, hidden), random("out.bias", 1, randomVocab)
	bias.Data[poison] = -1000 // it is never written by a model itself
	if poisoned {
		for i := range hidden {
			embed.Data[poison*hidden+i] = float32(math.NaN())
		}
	}
	return []safetensors.Values{
		embed, bias, random("out.weight", 2*inner, randomVocab, hidden), random("rnn.bias_ih_l0", 0.5, 4*hidden), random("rnn.bias_hh_l0", 0.5, 4*hidden),
		random("rnn.weight_ih_l0", inner, 4*hidden, hidden), random("rnn.weight_hh_l0", inner, 4*hidden, hidden),
	}
}

// shown is what model show tells programs.
type shown struct {
	Versions   []struct{ Version, Digest, Role string }
	Deployment *struct {
		registry.Deployment

		Stored time.Time
	}
	Workers []shownWorker
}

type shownWorker struct {
	Worker, Version, Digest, State, Reason string
	WeightBytes                            int64 `json:"weight_bytes"`
	Golden                                 int
	GoldenEqual                            int `json:"golden_equal"`
}

// show asks how a model stands.
func (s *shop) show(model string) shown {
	s.t.Helper()
	out := s.command("model", "show", model, "--json")
	var v shown
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return v
}

// digest of a version that was pushed.
func (v *shown) digest(version string) string {
	for _, one := range v.Versions {
		if one.Version == version {
			return one.Digest
		}
	}
	return ""
}

// of returns what workers have of a version.
func (v *shown) of(version string) []shownWorker {
	return slices.DeleteFunc(slices.Clone(v.Workers), func(w shownWorker) bool { return w.Version != version })
}

// metric reads the series of a worker that have all of the labels.
func (m *member) metric(ctx context.Context, name string, labels ...string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(answer.Body)
	found := map[string]float64{}
	for line := range strings.Lines(body.String()) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(series, name+"{") || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		v, failed := strconv.ParseFloat(value, 64)
		err = errors.Join(err, failed)
		found[series+"}"] = v
	}
	return found, errors.Join(err, answer.Body.Close())
}

// dial connects a client that lives as long as the test.
func dial(t *testing.T, url, name string) *sender {
	t.Helper()
	nc, err := broker.Dial(t.Context(), url, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close() // with its connection
		nc.Close()
	})
	return &sender{nc, c}
}

// randomAsk asks a random model for some ids.
func randomAsk(model, id string, n int) ask {
	r := rand.New(rand.NewPCG(*seed, uint64(n)))
	input := make([]int32, 1+r.IntN(4))
	for i := range input {
		input[i] = int32(poison + 1 + r.IntN(randomVocab-poison-1))
	}
	return ask{model: model, options: broker.RequestOptions{
		ID: id, Priority: broker.Std, Mode: pick(r, broker.ModeStream, broker.ModeStream, broker.ModeFinal),
		Input: broker.Input{IDs: input, IsIDs: true}, Params: broker.Params{MaxTokens: ptr(16 + r.IntN(48))},
	}}
}
