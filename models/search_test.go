package models_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// beamResult is a hypothesis of PyTorch's search.
type beamResult struct {
	Tokens       []int32  `json:"tokens"`
	Output       []string `json:"output"` // the tokens' texts
	LogProb      float64  `json:"logprob"`
	FinishReason string   `json:"finish_reason"`
}

// search runs a beam search of width 4 and returns its request and output.
func search(t *testing.T, m *models.Model, run models.Run, in models.Input) (*models.Request, models.Output) {
	t.Helper()
	req, err := m.Unfold(in, models.Params{BeamWidth: ptr(4), NBest: ptr(4)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return req, out
}

// compareBeams compares all hypotheses of a search, and its output, with
// PyTorch's.
func compareBeams(t *testing.T, req *models.Request, out models.Output, want []beamResult) {
	t.Helper()
	got := req.Outcome().Alternatives
	if len(got) != len(want) {
		t.Fatalf("%d alternatives, want %d", len(got), len(want))
	}
	for i, w := range want {
		tokens := slices.Equal(ids(got[i].Tokens), w.Tokens)
		if w.Output != nil {
			tokens = req.Text(got[i].Tokens, 0) == strings.Join(w.Output, " ")
		}
		if !tokens || reason(got[i].Reason) != w.FinishReason || !near(got[i].LogProb, w.LogProb) {
			t.Errorf("alternative %d: got %v %v %s, want %+v", i, ids(got[i].Tokens), got[i].LogProb, reason(got[i].Reason), w)
		}
	}
	if !slices.Equal(ids(out.Tokens), ids(got[0].Tokens)) || out.Reason != got[0].Reason || req.LogProb() != got[0].LogProb {
		t.Errorf("output %v %s %v is not the best alternative", ids(out.Tokens), reason(out.Reason), req.LogProb())
	}
}

// TestBeamFixtures compares every hypothesis of every search with PyTorch.
func TestBeamFixtures(t *testing.T) {
	t.Parallel()
	type fixtureCase struct {
		InputIDs []int32      `json:"input_ids"`
		Beam4    []beamResult `json:"beam4"`
	}
	for _, m := range fixtures(t, "s2s-") {
		t.Run(m.Name(), func(t *testing.T) {
			t.Parallel()
			r := serve(t, m, 2, cellrt.Config{})
			for i, c := range readLines[fixtureCase](t, "testdata", "fixtures", m.Name(), "cases.jsonl") {
				if len(c.Beam4) != 4 {
					t.Fatalf("case %d has %d hypotheses", i, len(c.Beam4))
				}
				req, out := search(t, m, r.Run, models.Input{IDs: c.InputIDs})
				compareBeams(t, req, out, c.Beam4)
			}
		})
	}
}

// TestG2PBeams compares searches for test words with PyTorch's.
func TestG2PBeams(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	type word struct {
		Input string       `json:"input"`
		Beam4 []beamResult `json:"beam4"`
	}
	words := readLines[word](t, "testdata", "g2p-en-beams.jsonl")
	if len(words) != 300 {
		t.Fatalf("%d words, want 300", len(words))
	}
	if testing.Short() {
		words = words[:32]
		t.Logf("%d words", len(words))
	}
	const slots = 16
	r := serve(t, m, slots, cellrt.Config{})
	var group sync.WaitGroup
	for worker := range slots {
		group.Go(func() {
			for i := worker; i < len(words); i += slots {
				req, err := m.Unfold(models.Input{Text: words[i].Input}, models.Params{BeamWidth: ptr(4), NBest: ptr(4)})
				if err != nil {
					t.Error(err)
					return
				}
				out, err := r.Run(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				compareBeams(t, req, out, words[i].Beam4)
			}
		})
	}
	group.Wait()
}
