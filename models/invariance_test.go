package models_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
	"github.com/cellmq/cellmq/models/safetensors"
)

// result is an output down to its bits.
type result struct {
	tokens       []cellrt.Token
	reason       cellrt.Reason
	logProb      uint64
	alternatives []models.Alternative
}

func sameTokens(a, b []cellrt.Token) bool {
	return slices.EqualFunc(a, b, func(a, b cellrt.Token) bool {
		return a.ID == b.ID && a.Break == b.Break && math.Float32bits(a.LogProb) == math.Float32bits(b.LogProb) &&
			slices.Equal(a.Top, b.Top)
	})
}

func (r result) equal(o result) bool {
	return r.reason == o.reason && r.logProb == o.logProb && sameTokens(r.tokens, o.tokens) &&
		slices.EqualFunc(r.alternatives, o.alternatives, func(a, b models.Alternative) bool {
			return a.Reason == b.Reason && math.Float64bits(a.LogProb) == math.Float64bits(b.LogProb) && sameTokens(a.Tokens, b.Tokens)
		})
}

// asked is an input with its parameters.
type asked struct {
	in models.Input
	p  models.Params
}

func runBits(t *testing.T, m *models.Model, r *runner.Runner, a asked) result {
	t.Helper()
	req, err := m.Unfold(a.in, a.p)
	if err != nil {
		t.Error(err)
		return result{}
	}
	out, err := r.Run(t.Context(), req)
	if err != nil {
		t.Error(err)
		return result{}
	}
	o := req.Outcome()
	return result{out.Tokens, out.Reason, math.Float64bits(o.LogProb), o.Alternatives}
}

// decodings are parameters of all the ways to write tokens.
func decodings() []models.Params {
	return []models.Params{
		{},
		{BeamWidth: ptr(4), NBest: ptr(4)},
		{Temperature: ptr(1.0), Seed: ptr(uint64(7)), LogProbs: ptr(3)},
		{},
		{BeamWidth: ptr(7), NBest: ptr(2)},
		{Temperature: ptr(0.8), TopK: ptr(5), TopP: ptr(0.9), RequestID: "a"},
		{Stop: []string{"1 1", "A"}},
	}
}

// checkMixes runs each request alone, then random sets of requests together,
// and compares the bits.
func checkMixes(t *testing.T, m *models.Model, requests []asked, mixes int, cfg cellrt.Config) {
	t.Helper()
	const slots = 24
	lone := serve(t, m, 1, cellrt.Config{})
	want := make([]result, len(requests))
	for i, a := range requests {
		want[i] = runBits(t, m, lone, a)
	}
	r := serve(t, m, slots, cfg)
	rng := rand.New(rand.NewPCG(11, uint64(cfg.Executors)))
	for range mixes {
		var group sync.WaitGroup
		for range 1 + rng.IntN(slots) {
			i, delay := rng.IntN(len(requests)), time.Duration(rng.IntN(200))*time.Microsecond
			group.Go(func() {
				<-time.After(delay) // arrive while others are running
				if got := runBits(t, m, r, requests[i]); !got.equal(want[i]) {
					t.Errorf("request %d, input %v: got %v in a mix, %v alone", i, requests[i].in, got, want[i])
				}
			})
		}
		group.Wait()
		if t.Failed() {
			return
		}
	}
	if s := r.Stats(); s.Rows == s.Steps || s.PaddedRows != 0 {
		t.Errorf("%d rows in %d steps, %d padded", s.Rows, s.Steps, s.PaddedRows)
	}
}

// TestBitIdentity runs requests alone and in random mixes with random moments
// of arrival, on one, two and four executors, and compares log-probabilities as
// bits.
func TestBitIdentity(t *testing.T) {
	t.Parallel()
	for _, executors := range []int{1, 2, 4} {
		cfg := cellrt.Config{Executors: executors, MaxRows: 7}
		for _, m := range append(fixtures(t, "s2s-"), fixtures(t, "lm-")...) {
			t.Run(fmt.Sprint(m.Name(), " executors ", executors), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(5, 5))
				var requests []asked
				for i := range 42 {
					source := make([]int32, 1+rng.IntN(15))
					for i := range source {
						source[i] = 3 + int32(rng.IntN(14))
					}
					p := decodings()[i%len(decodings())]
					p.MaxTokens = ptr(1 + rng.IntN(20))
					requests = append(requests, asked{models.Input{IDs: source}, p})
				}
				checkMixes(t, m, requests, 40, cfg)
			})
		}
	}
	mixes, texts := 25, 60
	if testing.Short() {
		mixes, texts = 2, 8
		t.Logf("%d mixes of %d texts for g2p-en", mixes, texts)
	}
	m := loadG2P(t)
	words := readLines[g2pWord](t, "testdata", "g2p-en-words.jsonl")
	var requests []asked
	for i := range texts {
		text := words[i].Input
		if i%5 == 0 {
			text += " " + words[i+1].Input
		}
		p := decodings()[i%len(decodings())]
		if i%5 == 0 {
			p.NBest = nil
		}
		requests = append(requests, asked{models.Input{Text: text}, p})
	}
	t.Run("g2p-en executors 2", func(t *testing.T) {
		t.Parallel()
		checkMixes(t, m, requests, mixes, cellrt.Config{Executors: 2})
	})
}

// TestSegmentsEqualWordsAlone compares the bits of a text's words with those
// of each word sent alone.
func TestSegmentsEqualWordsAlone(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	r := serve(t, m, 4, cellrt.Config{Executors: 2})
	words := []string{"cellular", "batching", "a", "Matriarch"}
	var (
		want  result
		sum   float64
		texts []string
	)
	want.reason = cellrt.Stopped
	for i, w := range words {
		alone := runBits(t, m, r, asked{in: models.Input{Text: w}})
		texts = append(texts, string(m.NewText().Append(nil, alone.tokens...)))
		for j, tok := range alone.tokens {
			if tok.Break {
				t.Errorf("%s alone has a boundary", w)
			}
			tok.Break = i > 0 && j == 0
			want.tokens = append(want.tokens, tok)
		}
		sum += math.Float64frombits(alone.logProb)
	}
	got := runBits(t, m, r, asked{in: models.Input{Text: "\t" + strings.Join(words, " \n ") + " "}})
	want.logProb = got.logProb // a sum in another order
	if !got.equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if p := math.Float64frombits(got.logProb); math.Abs(p-sum) > 1e-12 {
		t.Errorf("log-probability %v, want %v", p, sum)
	}
	if text := string(m.NewText().Append(nil, got.tokens...)); text != strings.Join(texts, " | ") {
		t.Errorf("text is %q, want %q joined by bars", text, texts)
	}
}

// TestPoisonedRowHurtsNobodyElse runs a model with one embedding that is not a
// number: the inputs that have its token fail, the others give the bits that
// they give without it.
func TestPoisonedRowHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	const poison = 22
	dir := directory(t, "s2s-lstm-bi-attn")
	healthy := load(t, dir, "healthy")
	dir["model.safetensors"] = &fstest.MapFile{Data: poisoned(t, dir["model.safetensors"].Data, poison)}
	sick := load(t, dir, "sick")
	lone, r := serve(t, healthy, 1, cellrt.Config{}), serve(t, sick, 8, cellrt.Config{})
	rng := rand.New(rand.NewPCG(3, 3))
	var group sync.WaitGroup
	for i := range 200 {
		source := make([]int32, 1+rng.IntN(9))
		for j := range source {
			source[j] = 3 + int32(rng.IntN(poison-3))
		}
		if i%3 > 0 {
			a := asked{in: models.Input{IDs: source}}
			want := runBits(t, healthy, lone, a)
			group.Go(func() {
				if got := runBits(t, sick, r, a); !got.equal(want) {
					t.Errorf("input %v: got %v, want %v", source, got, want)
				}
			})
			continue
		}
		source[rng.IntN(len(source))] = poison
		group.Go(func() {
			req, err := sick.Unfold(models.Input{IDs: source}, models.Params{})
			if err != nil {
				t.Error(err)
				return
			}
			if out, err := r.Run(t.Context(), req); !errors.Is(err, cellrt.ErrNumerical) || len(out.Tokens) > 0 {
				t.Errorf("input %v: %d tokens, %v, want %v", source, len(out.Tokens), err, cellrt.ErrNumerical)
			}
		})
	}
	group.Wait()
}

// poisoned returns a weights file whose source embedding of a token is NaN.
func poisoned(t *testing.T, b []byte, token int) []byte {
	t.Helper()
	f, err := safetensors.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []safetensors.Values
	for _, tensor := range f.Tensors() {
		v := safetensors.Values{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Data: tensor.Float32s()}
		if v.Name == "src_embed.weight" {
			v.Data[token*v.Shape[1]] = float32(math.NaN())
		}
		out = append(out, v)
	}
	var buf bytes.Buffer
	if err := safetensors.Write(&buf, out, nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
