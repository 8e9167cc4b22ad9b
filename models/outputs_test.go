package models_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/internal/runner"
)

// near says whether two log-probabilities agree within 1e-4 of their size.
func near(got, want float64) bool { return math.Abs(got-want) <= 1e-4*math.Abs(want) }

// TestFixtures compares every case of every fixture with PyTorch, through the
// oracle and through the runtime.
func TestFixtures(t *testing.T) {
	t.Parallel()
	type fixtureCase struct {
		InputIDs     []int32 `json:"input_ids"`
		Greedy       []int32 `json:"greedy"`
		LogProb      float64 `json:"logprob"`
		FinishReason string  `json:"finish_reason"`
	}
	for _, m := range fixtures(t, "s2s-") {
		o := oracle.New(m.Program())
		r := serve(t, m, 2, cellrt.Config{})
		runs := map[string]models.Run{
			"runtime": r.Run,
			"oracle": func(_ context.Context, req *models.Request) (models.Output, error) {
				res, err := o.Run(req.Graph)
				return models.Output{Tokens: res.Tokens, Reason: res.Reason}, err
			},
		}
		cases := readLines[fixtureCase](t, "testdata", "fixtures", m.Name(), "cases.jsonl")
		if len(cases) != 12 {
			t.Fatalf("%s has %d cases, want 12", m.Name(), len(cases))
		}
		for name, run := range runs {
			t.Run(m.Name()+" "+name, func(t *testing.T) {
				t.Parallel()
				for i, c := range cases {
					req, err := m.Unfold(models.Input{IDs: c.InputIDs}, models.Params{})
					if err != nil {
						t.Fatal(err)
					}
					out, err := run(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					if got := ids(out.Tokens); !slices.Equal(got, c.Greedy) || reason(out.Reason) != c.FinishReason {
						t.Errorf("case %d: got %v %s, want %v %s", i, got, reason(out.Reason), c.Greedy, c.FinishReason)
					}
					if got := req.LogProb(); !near(got, c.LogProb) {
						t.Errorf("case %d: log-probability %v, want %v", i, got, c.LogProb)
					}
				}
			})
		}
	}
}

// g2pWord is a test word with PyTorch's result for the float32 weights.
type g2pWord struct {
	Input        string   `json:"input"`
	Output       []string `json:"output"`
	LogProb      float64  `json:"logprob"`
	FinishReason string   `json:"finish_reason"`
}

// TestG2PEqualsPyTorch runs the sample of test words through the runtime.
func TestG2PEqualsPyTorch(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	words := readLines[g2pWord](t, "testdata", "g2p-en-words.jsonl")
	if len(words) < 500 {
		t.Fatalf("%d words, want at least 500", len(words))
	}
	if testing.Short() {
		words = words[:64]
		t.Logf("%d words", len(words))
	}
	const slots = 64
	r, err := runner.New(m.Program(), slots, cellrt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for worker := range slots {
		group.Go(func() {
			for i := worker; i < len(words); i += slots {
				checkWord(t, m, r.Run, words[i])
			}
		})
	}
	full := time.NewTicker(time.Millisecond)
	defer full.Stop()
	for r.Stats().Running < slots {
		select {
		case <-full.C:
		case <-t.Context().Done():
			t.Fatal("the slots never filled")
		}
	}
	start(t, r)
	group.Wait()
	if s := r.Stats(); s.PaddedRows != 0 || s.MaxRows < slots/2 {
		t.Errorf("%d padded rows, at most %d rows in a step", s.PaddedRows, s.MaxRows)
	}
}

func checkWord(t *testing.T, m *models.Model, run models.Run, w g2pWord) {
	t.Helper()
	req, err := m.Unfold(models.Input{Text: w.Input}, models.Params{})
	if err != nil {
		t.Error(err)
		return
	}
	out, err := run(t.Context(), req)
	if err != nil {
		t.Error(err)
		return
	}
	var want []byte
	for i, p := range w.Output {
		if i > 0 {
			want = append(want, ' ')
		}
		want = append(want, p...)
	}
	got := m.NewText().Append(nil, out.Tokens...)
	if !slices.Equal(got, want) || reason(out.Reason) != w.FinishReason {
		t.Errorf("%s: got %q %s, want %q %s", w.Input, got, reason(out.Reason), want, w.FinishReason)
	}
	if math.Abs(req.LogProb()-w.LogProb) > 1e-4*max(1, math.Abs(w.LogProb)) {
		t.Errorf("%s: log-probability %v, want %v", w.Input, req.LogProb(), w.LogProb)
	}
}
