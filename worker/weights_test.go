package worker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// TestWeightTypeIsVisible serves a model with another weight type than its own
// and looks for it where people and clients look.
func TestWeightTypeIsVisible(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // read once the worker has ended
	server := newServer(t)
	w := start(t, server, worker.Deps{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Models: []*models.Model{g2p(t)},
	}, func(c *worker.Config) { c.Weights, c.ISA = []string{"f32", "g2p-en=bf16"}, "purego" })
	nc := connect(t, server)
	if e := endpoints(t, nc)["infer.rt.g2p-en"]; e.Metadata["weights"] != "bf16" || e.Metadata["version"] != "1+bf16" {
		t.Errorf("endpoint %+v", e)
	}
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"), "Infer-Version", "1+bf16")
	frames := untilTerminal(t, replies)
	last := frames[len(frames)-1]
	if frames[0].Version != "1+bf16" || last.Type != broker.FrameFinal || last.Version != "1+bf16" || last.Text != "HH EH1 L OW0" {
		t.Errorf("accepted %+v, final %+v", frames[0], last)
	}
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"), "Infer-Version", "1")
	if f := nextFrame(t, replies); f.Error == nil || f.Error.Code != broker.CodeUnknownVersion {
		t.Errorf("a request for version 1: %+v", f)
	}
	w.stop()
	w.wait(t)
	want := "weights=bf16 golden=33 golden_equal="
	if raced {
		want = "weights=bf16 golden=0 golden_equal=0"
	}
	if got := log.String(); !strings.Contains(got, "version=1+bf16") || !strings.Contains(got, want) || !strings.Contains(got, "isa=purego") {
		t.Errorf("log:\n%s", got)
	}
}

// TestDamagedModelIsRefused negates a bias of a model. Its labels and nearly
// its logits stay what they were, which is good enough for another weight
// type but not for a model's files.
func TestDamagedModelIsRefused(t *testing.T) {
	t.Parallel()
	files, err := zoo.FS("listops")
	if err != nil {
		t.Fatal(err)
	}
	damaged := fstest.MapFS{}
	for _, name := range []string{"config.json", "vocab.json", "golden.jsonl", "model.safetensors"} {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		damaged[name] = &fstest.MapFile{Data: b}
	}
	f, err := safetensors.Parse(damaged["model.safetensors"].Data)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Values
	for _, tensor := range f.Tensors() {
		v := safetensors.Values{Name: tensor.Name, DType: safetensors.F16, Shape: tensor.Shape, Data: tensor.Float32s()}
		for i := range v.Data {
			if tensor.Name == "leaf.bias" {
				v.Data[i] = -v.Data[i]
			}
		}
		tensors = append(tensors, v)
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	sound, written := sha256.Sum256(damaged["model.safetensors"].Data), sha256.Sum256(file.Bytes())
	damaged["model.safetensors"] = &fstest.MapFile{Data: file.Bytes()}
	// The golden outputs claim to be of the damaged weights: values have to tell.
	golden := strings.ReplaceAll(string(damaged["golden.jsonl"].Data), hex.EncodeToString(sound[:]), hex.EncodeToString(written[:]))
	damaged["golden.jsonl"] = &fstest.MapFile{Data: []byte(golden)}
	m, err := models.Load(damaged, "listops")
	if err != nil {
		t.Fatal(err)
	}
	for _, weights := range []string{"f32", "bf16", "int8"} {
		cfg := worker.DefaultConfig()
		cfg.AdminAddress, cfg.Profile, cfg.Weights = "", 0, []string{weights}
		w, err := worker.New(cfg, worker.Deps{Models: []*models.Model{m}})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Run(t.Context())
		if _, ok := errors.AsType[*models.GoldenError](err); !ok || !errors.Is(err, worker.ErrModel) {
			t.Errorf("%s: %v", weights, err)
		}
	}
}

func TestWeightsOfUnknownModel(t *testing.T) {
	t.Parallel()
	for _, deps := range []worker.Deps{{}, {Models: []*models.Model{g2p(t)}}} {
		cfg := worker.DefaultConfig()
		cfg.AdminAddress, cfg.Models = "", []string{"g2p-en"}
		cfg.Weights = []string{"bf16", "no-such=int8"}
		w, err := worker.New(cfg, deps)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Run(t.Context())
		if !errors.Is(err, worker.ErrModel) || !strings.Contains(err.Error(), "CELLMQ_WEIGHTS names no-such, which is none of g2p-en") {
			t.Errorf("got %v", err)
		}
	}
}
