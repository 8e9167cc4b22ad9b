//go:build unix

package chaos_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/registry"
)

// randomLM is the shape of a language model of LSTM cells with random weights.
type randomLM struct{ vocab, hidden, layers int }

// write makes the directory of a version, whose weights depend on the seed alone,
// and returns the version's name.
func (l randomLM) write(t *testing.T, dir, version string, seed uint64) registry.Ref {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"model_type": "rnn_lm", "cell": "lstm", "vocab_size": l.vocab, "embedding_size": l.hidden, "hidden_size": l.hidden,
		"num_layers": l.layers, "tokenizer": "ids", "version": version,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(safetensors.Write(w, l.tensors(seed), nil), w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	digest, err := models.Digest(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return registry.Ref{Version: version, Digest: digest}
}

func (l randomLM) tensors(seed uint64) []safetensors.Values {
	r := rand.New(rand.NewPCG(seed, 7))
	tensor := func(name string, width float64, shape ...int) safetensors.Values {
		n := 1
		for _, d := range shape {
			n *= d
		}
		v := safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]float32, n)}
		for i := range v.Data {
			v.Data[i] = float32(width) * (2*r.Float32() - 1)
		}
		return v
	}
	width := 1 / math.Sqrt(float64(l.hidden)) // as PyTorch begins
	out := []safetensors.Values{
		tensor("embed.weight", 1, l.vocab, l.hidden),
		tensor("out.weight", 4*width, l.vocab, l.hidden), tensor("out.bias", width, l.vocab),
	}
	for i := range l.layers {
		for _, of := range []string{"ih", "hh"} {
			out = append(out,
				tensor(fmt.Sprintf("rnn.weight_%s_l%d", of, i), width, 4*l.hidden, l.hidden),
				tensor(fmt.Sprintf("rnn.bias_%s_l%d", of, i), width, 4*l.hidden))
		}
	}
	return out
}

// depot is a registry, with the command line that operators use.
type depot struct {
	t   *testing.T
	url string
	nc  *nats.Conn
	*registry.Registry
}

func newDepot(t *testing.T, url string) *depot {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r, err := registry.New(registry.Config{Conn: nc})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(t.Context()); err != nil { // before workers start that may serve only what is deployed
		t.Fatal(err)
	}
	return &depot{t: t, url: url, nc: nc, Registry: r}
}

// begin starts a command of "cellmq model".
func (d *depot) begin(args ...string) *brokertest.Process {
	d.t.Helper()
	p, err := brokertest.Launch([]string{role + "=1"}, append([]string{"model", args[0], "--nats-url", d.url}, args[1:]...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(p.Kill)
	return p
}

// run runs a command of "cellmq model" to its end.
func (d *depot) run(args ...string) (output string, err error) {
	d.t.Helper()
	return d.ended(d.begin(args...))
}

func (d *depot) ended(p *brokertest.Process) (output string, err error) {
	d.t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		p.Kill()
		d.t.Errorf("process has not ended within %v", patience)
	}
	return p.Output(), p.Err()
}

// must is run for a command that succeeds.
func (d *depot) must(args ...string) (output string) {
	d.t.Helper()
	output, err := d.run(args...)
	if err != nil {
		d.t.Fatalf("model %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}

// golden gives a directory golden outputs. The weights stay what they were, the
// version's digest does not.
func golden(t *testing.T, dir string, inputs ...string) (digest string) {
	t.Helper()
	args := []string{"model", "golden", dir, "--max-tokens", "6"}
	for _, in := range inputs {
		args = append(args, "--input", in)
	}
	p := brokertest.Start(t, []string{role + "=1"}, args...)
	if err := p.Err(); err != nil {
		t.Fatalf("golden outputs: %v: %s", err, p.Output())
	}
	digest, err := models.Digest(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return digest
}
