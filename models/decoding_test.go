package models_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/internal/runner"
)

// answer unfolds and runs a request, and returns it with its output.
func answer(t *testing.T, r *runner.Runner, m *models.Model, a asked) (*models.Request, models.Output) {
	t.Helper()
	req, err := m.Unfold(a.in, a.p)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return req, out
}

// TestSeeds shows what decides a sampled output: the seed, or else the
// request's name.
func TestSeeds(t *testing.T) {
	t.Parallel()
	m := loadKJV(t)
	r := serve(t, m, 1, cellrt.Config{})
	sample := func(id string, seed *uint64) string {
		p := models.Params{RequestID: id, Seed: seed, Temperature: ptr(1.0), MaxTokens: ptr(24)}
		req, out := answer(t, r, m, asked{models.Input{Text: "And the "}, p})
		return req.Text(out.Tokens, 0)
	}
	one, two := ptr(uint64(1)), ptr(uint64(2))
	if sample("a", one) != sample("b", one) {
		t.Error("with a seed the name matters")
	}
	if first, again := sample("a", nil), sample("a", nil); first != again {
		t.Errorf("one name, two outputs: %q and %q", first, again)
	}
	outputs := map[string]bool{sample("a", one): true, sample("a", two): true, sample("a", nil): true, sample("b", nil): true, sample("", nil): true}
	if len(outputs) != 5 {
		t.Errorf("only %d outputs of 5 seeds: %v", len(outputs), outputs)
	}
}

// TestStopTexts ends greedy continuations at stop texts and compares with the
// text that goes on.
func TestStopTexts(t *testing.T) {
	t.Parallel()
	m := loadKJV(t)
	r := serve(t, m, 1, cellrt.Config{})
	in := models.Input{Text: "In the beginning God created "}
	p := models.Params{MaxTokens: ptr(60)}
	_, free := answer(t, r, m, asked{in, p})
	whole := string(m.NewText().Append(nil, free.Tokens...))
	for _, stop := range []string{" ", "the", "LORD", whole[20:27], whole[:1], whole[59:], "no such thing"} {
		p.Stop = []string{stop, "nor this one"}
		req, out := answer(t, r, m, asked{in, p})
		want, _, found := strings.Cut(whole, stop)
		wantReason := cellrt.Length
		if found {
			wantReason = cellrt.Stopped
		}
		cut := req.Outcome().Cut
		if got := req.Text(out.Tokens, cut); got != want || out.Reason != wantReason || len(out.Tokens) != len(want) || cut != 0 {
			t.Errorf("%q: got %q %s of %d tokens, cut %d, want %q %s", stop, got, reason(out.Reason), len(out.Tokens), cut, want, reason(wantReason))
		}
		sum := 0.0
		for _, tok := range free.Tokens[:len(want)] {
			sum += float64(tok.LogProb)
		}
		if math.Abs(req.LogProb()-sum) > 1e-9 {
			t.Errorf("%q: log-probability %v, want %v", stop, req.LogProb(), sum)
		}
	}
}

// TestStopInsideAToken cuts the text inside a token that stays in the output.
func TestStopInsideAToken(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	r := serve(t, m, 1, cellrt.Config{})
	tests := []struct {
		stop, want string
		tokens     int
	}{
		{"Y0 A", "M EY1 T R I", 5}, // M EY1 T R IY0 AA2 R K
		{"R IY", "M EY1 T ", 3},
		{"M", "", 0},
		{"K", "M EY1 T R IY0 AA2 R", 7},
	}
	for _, tt := range tests {
		req, out := answer(t, r, m, asked{models.Input{Text: "matriarch"}, models.Params{Stop: []string{tt.stop}}})
		got := req.Text(out.Tokens, req.Outcome().Cut)
		if got != strings.TrimSuffix(tt.want, " ") || len(out.Tokens) != tt.tokens || out.Reason != cellrt.Stopped {
			t.Errorf("%q: got %q of %d tokens %s, want %q", tt.stop, got, len(out.Tokens), reason(out.Reason), tt.want)
		}
	}
}

// TestDeltasAreWholeCharacters samples bytes that make no sense and streams
// them.
func TestDeltasAreWholeCharacters(t *testing.T) {
	t.Parallel()
	m := loadKJV(t)
	r := serve(t, m, 1, cellrt.Config{})
	broken := 0
	for seed := range uint64(4) {
		p := models.Params{Temperature: ptr(100.0), Seed: &seed, MaxTokens: ptr(200)}
		req, out := answer(t, r, m, asked{models.Input{Text: "世"}, p})
		text := req.NewText()
		var got []byte
		for _, tok := range out.Tokens {
			delta := text.Append(nil, tok)
			if !utf8.Valid(delta) {
				t.Fatalf("delta %q", delta)
			}
			got = append(got, delta...)
		}
		got = text.Flush(got, req.Outcome().Cut)
		if want := req.Text(out.Tokens, 0); string(got) != want {
			t.Errorf("streamed %q, whole %q", got, want)
		}
		broken += strings.Count(string(got), "\ufffd")
	}
	if broken < 100 {
		t.Errorf("only %d bytes of no character", broken)
	}
}

func TestEndToken(t *testing.T) {
	t.Parallel()
	dir := directory(t, "lm-lstm-2x37")
	in := models.Input{IDs: []int32{18, 50, 7, 12, 35, 24, 51, 5, 10, 9, 31, 33, 44, 47}}
	p := models.Params{MaxTokens: ptr(8)} // 16 11 11 11 11 50 50 40
	configure(t, dir, map[string]any{"eos_token_id": 50})
	m := load(t, dir, "m")
	req, out := answer(t, serve(t, m, 1, cellrt.Config{}), m, asked{in, p})
	if got := ids(out.Tokens); !slices.Equal(got, []int32{16, 11, 11, 11, 11}) || out.Reason != cellrt.Stopped {
		t.Errorf("got %v %s", got, reason(out.Reason))
	}
	sum := 0.0
	for _, tok := range out.Tokens {
		sum += float64(tok.LogProb)
	}
	if req.LogProb() >= sum {
		t.Errorf("log-probability %v does not count the end token, tokens %v", req.LogProb(), sum)
	}
	p.BeamWidth, p.NBest = ptr(8), ptr(8)
	req, _ = answer(t, serve(t, m, 1, cellrt.Config{}), m, asked{in, p})
	for _, a := range req.Outcome().Alternatives {
		if slices.Contains(ids(a.Tokens), 50) || (a.Reason == cellrt.Length) != (len(a.Tokens) == 8) {
			t.Errorf("alternative %v %s", ids(a.Tokens), reason(a.Reason))
		}
	}
}

// TestLanguageBeamsAreScores compares the score of each hypothesis with that of
// its text.
func TestLanguageBeamsAreScores(t *testing.T) {
	t.Parallel()
	for _, m := range fixtures(t, "lm-") {
		r := serve(t, m, 2, cellrt.Config{Executors: 2})
		input := []int32{3, 1, 4, 1, 5}
		before := score(t, r, m, models.Input{IDs: input})
		greedy, _ := answer(t, r, m, asked{models.Input{IDs: input}, models.Params{MaxTokens: ptr(10)}})
		p := models.Params{MaxTokens: ptr(10), BeamWidth: ptr(8), NBest: ptr(8)}
		req, _ := answer(t, r, m, asked{models.Input{IDs: input}, p})
		seen := map[string]bool{}
		last := math.Inf(1)
		for _, a := range req.Outcome().Alternatives {
			whole := append(slices.Clone(input), ids(a.Tokens)...)
			if got := score(t, r, m, models.Input{IDs: whole}) - before; math.Abs(got-a.LogProb) > 1e-4 {
				t.Errorf("%s: %v has score %v, its text %v", m.Name(), ids(a.Tokens), a.LogProb, got)
			}
			if a.LogProb > last || a.Reason != cellrt.Length {
				t.Errorf("%s: score %v %s after %v", m.Name(), a.LogProb, reason(a.Reason), last)
			}
			last = a.LogProb
			seen[fmt.Sprint(ids(a.Tokens))] = true
		}
		if len(seen) != 8 || req.LogProb() < greedy.LogProb() {
			t.Errorf("%s: %d hypotheses, best %v, greedy %v", m.Name(), len(seen), req.LogProb(), greedy.LogProb())
		}
	}
}

// TestBeamWidthOneIsGreedy compares bits.
func TestBeamWidthOneIsGreedy(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	r := serve(t, m, 1, cellrt.Config{})
	in := models.Input{Text: "cellular batching"}
	want := runBits(t, m, r, asked{in: in})
	if got := runBits(t, m, r, asked{in, models.Params{BeamWidth: ptr(1), NBest: ptr(1)}}); !got.equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSegmentsAreSearchedAlone compares a search of two words with one for
// each.
func TestSegmentsAreSearchedAlone(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	r := serve(t, m, 2, cellrt.Config{})
	p := models.Params{BeamWidth: ptr(5), NBest: ptr(1)}
	var want []cellrt.Token
	sum := 0.0
	for i, word := range []string{"read", "laboratory"} {
		req, out := answer(t, r, m, asked{models.Input{Text: word}, p})
		for j, tok := range out.Tokens {
			tok.Break = i > 0 && j == 0
			want = append(want, tok)
		}
		sum += req.LogProb()
	}
	req, out := answer(t, r, m, asked{models.Input{Text: "read laboratory"}, p})
	if !sameTokens(out.Tokens, want) || out.Reason != cellrt.Stopped || math.Abs(req.LogProb()-sum) > 1e-12 {
		t.Errorf("got %v %v, want %v %v", out, req.LogProb(), want, sum)
	}
	a := req.Outcome().Alternatives
	if len(a) != 1 || !sameTokens(a[0].Tokens, want) || a[0].LogProb != req.LogProb() || a[0].Reason != out.Reason {
		t.Errorf("alternatives %v", a)
	}
	p.MaxTokens = ptr(6) // four phonemes of the first word, two of the second
	req, out = answer(t, r, m, asked{models.Input{Text: "read laboratory"}, p})
	if len(out.Tokens) != 6 || out.Reason != cellrt.Length || req.MaxTokens != 6 {
		t.Errorf("bounded: %v", out)
	}
}

// proposals keeps what a graph proposes and emits.
type proposals struct {
	cellrt.Graph
	proposed [][]cellrt.Token
	early    bool // a token was emitted while the graph went on
}

func (p *proposals) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	p.Graph.Advance(n, out, f)
	if tokens := f.Proposal(); len(tokens) > 0 {
		p.proposed = append(p.proposed, slices.Clone(tokens))
	}
	reason, _ := f.Done()
	p.early = p.early || reason == 0 && len(f.Tokens()) > 0
}

// TestProposals shows that a search proposes its best live hypothesis after
// each step and emits nothing before its end.
func TestProposals(t *testing.T) {
	t.Parallel()
	s2s, lm, g2p := fixtures(t, "s2s-lstm-bi-attn")[0], fixtures(t, "lm-gru-3x21")[0], loadG2P(t)
	p := models.Params{BeamWidth: ptr(3), MaxTokens: ptr(9)}
	for _, tt := range []struct {
		m  *models.Model
		in models.Input
	}{{s2s, models.Input{IDs: []int32{13, 7, 7, 14, 8}}}, {lm, models.Input{IDs: []int32{1, 2}}}, {g2p, models.Input{Text: "a cat"}}} {
		req, err := tt.m.Unfold(tt.in, p)
		if err != nil {
			t.Fatal(err)
		}
		watch := &proposals{Graph: req.Graph}
		got, err := oracle.New(tt.m.Program()).Run(watch)
		if err != nil {
			t.Fatal(err)
		}
		if watch.early || len(watch.proposed) == 0 || got.Reason == 0 {
			t.Errorf("%s: early %t, %d proposals, %d tokens", tt.m.Name(), watch.early, len(watch.proposed), len(got.Tokens))
		}
		length := 0
		for _, tokens := range watch.proposed {
			if len(tokens) < length {
				t.Errorf("%s: a proposal of %d tokens after one of %d", tt.m.Name(), len(tokens), length)
			}
			length = len(tokens)
		}
	}
	req, err := g2p.Unfold(models.Input{Text: "a cat"}, p)
	if err != nil {
		t.Fatal(err)
	}
	watch := &proposals{Graph: req.Graph}
	req.Graph = watch
	out, err := serve(t, g2p, 1, cellrt.Config{}).Run(context.Background(), req)
	last := watch.proposed[len(watch.proposed)-1] // it goes on where the output ends
	if err != nil || !strings.HasPrefix(req.Text(last, 0), req.Text(out.Tokens, 0)) {
		t.Errorf("last proposal %v, output %v, %v", last, out.Tokens, err)
	}
}

// TestLogProbsOfRequests compares candidates with the tokens that are chosen
// greedily.
func TestLogProbsOfRequests(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	_, out := answer(t, serve(t, m, 1, cellrt.Config{}), m, asked{models.Input{Text: "hello"}, models.Params{LogProbs: ptr(5)}})
	for i, tok := range out.Tokens {
		if len(tok.Top) != 5 || tok.Top[0] != (cellrt.Candidate{ID: tok.ID, LogProb: tok.LogProb}) {
			t.Errorf("token %d: %+v", i, tok)
		}
		sum := 0.0
		for k, c := range tok.Top {
			sum += math.Exp(float64(c.LogProb))
			if k > 0 && c.LogProb > tok.Top[k-1].LogProb {
				t.Errorf("token %d: candidates %v", i, tok.Top)
			}
		}
		if sum > 1+1e-6 {
			t.Errorf("token %d: candidates have probability %v", i, sum)
		}
	}
}
