package zoo_test

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/zoo"
)

// slots is how many requests of a model run at once.
const slots = 32

func serve(t *testing.T, m *models.Model) *runner.Runner {
	t.Helper()
	r, err := runner.New(m.Program(), slots, cellrt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestModels holds every embedded model to its golden outputs and its card.
func TestModels(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(zoo.Names()) || len(zoo.Names()) == 0 {
		t.Fatalf("names %v", zoo.Names())
	}
	for _, name := range zoo.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := zoo.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if m.Name() != name {
				t.Errorf("model %s is named %s", name, m.Name())
			}
			var ran atomic.Int64
			run := serve(t, m).Run
			_, err = m.VerifyGolden(t.Context(), slots, func(ctx context.Context, r *models.Request) (models.Output, error) {
				ran.Add(1)
				return run(ctx, r)
			})
			if err != nil {
				t.Error(err)
			}
			if n := ran.Load(); n < 32 {
				t.Errorf("%d golden requests, want at least 32", n)
			}
			dir, err := zoo.FS(name)
			if err != nil {
				t.Fatal(err)
			}
			wantNamedWeights(t, dir)
			card, err := fs.ReadFile(dir, "card.md")
			if err != nil || !strings.Contains(string(card), "icence") {
				t.Errorf("no card with a licence: %v", err)
			}
		})
	}
}

// wantNamedWeights wants each golden line to say which weights it is of. That they
// are those of the directory, Load checks.
func wantNamedWeights(t *testing.T, dir fs.FS) {
	t.Helper()
	golden, err := fs.ReadFile(dir, "golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines, named := strings.Count(string(golden), "\n"), strings.Count(string(golden), `"weights_sha256":`)
	if lines == 0 || lines != named {
		t.Errorf("%d of %d golden lines name their weights", named, lines)
	}
}

func TestStoredInHalves(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"g2p-en", "kjv-lm", "langid", "listops"} {
		dir, err := zoo.FS(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fs.ReadFile(dir, "model.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range f.Tensors() {
			if tensor.DType != safetensors.F16 {
				t.Errorf("%s: %s is stored as %s", name, tensor.Name, tensor.DType)
			}
		}
	}
}

func TestKJVGoesOn(t *testing.T) {
	t.Parallel()
	m, err := zoo.Load("kjv-lm")
	if err != nil {
		t.Fatal(err)
	}
	req, err := m.Unfold(models.Input{Text: "In the beginning "}, models.Params{Stop: []string{"\n"}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := serve(t, m).Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := req.Text(out.Tokens, req.Outcome().Cut); !strings.HasPrefix(got, "of the ") || strings.Contains(got, "\n") {
		t.Errorf("got %q %v", got, out.Reason)
	}
}

func TestG2PSpeaks(t *testing.T) {
	t.Parallel()
	m, err := zoo.Load("g2p-en")
	if err != nil {
		t.Fatal(err)
	}
	req, err := m.Unfold(models.Input{Text: "Hello world"}, models.Params{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := serve(t, m).Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.NewText().Append(nil, out.Tokens...)), "HH EH1 L OW0 | W ER1 L D"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "g2p", "g2p-en/config.json", "/g2p-en", "../zoo"} {
		if _, err := zoo.FS(name); err == nil {
			t.Errorf("%q opened", name)
		}
		if _, err := zoo.Load(name); err == nil {
			t.Errorf("%q loaded", name)
		}
	}
}
