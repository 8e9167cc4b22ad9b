package decode_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
)

const end = 2

// hypothesis is one of the reference's.
type hypothesis struct {
	tokens []int32
	score  float64
	reason cellrt.Reason
}

// reference searches as the definition says, without any cleverness.
func reference(w world, k, bound int) []hypothesis {
	live := []hypothesis{{}}
	var finished []hypothesis
	better := func(a, b hypothesis) int { return -cmp.Compare(a.score, b.score) }
	for step := 1; ; step++ {
		var all []hypothesis
		for _, h := range live {
			out := w.output(h.tokens)
			order := make([]int32, w.vocab)
			for i := range order {
				order[i] = int32(i)
			}
			slices.SortStableFunc(order, func(a, b int32) int { return -cmp.Compare(out.Values[a], out.Values[b]) })
			for _, t := range order {
				p := float64(out.LogProbOf(t))
				all = append(all, hypothesis{tokens: append(slices.Clone(h.tokens), t), score: h.score + p})
			}
		}
		slices.SortStableFunc(all, better)
		live = nil
		for _, h := range all[:min(k, len(all))] {
			if last := len(h.tokens) - 1; h.tokens[last] == end {
				finished = append(finished, hypothesis{h.tokens[:last], h.score, cellrt.Stopped})
			} else {
				live = append(live, h)
			}
		}
		slices.SortStableFunc(finished, better)
		if len(live) == 0 || len(finished) >= k && finished[k-1].score >= live[0].score {
			break
		}
		if step == bound {
			for _, h := range live {
				finished = append(finished, hypothesis{h.tokens, h.score, cellrt.Length})
			}
			slices.SortStableFunc(finished, better)
			break
		}
	}
	return finished[:min(k, len(finished))]
}

// run drives a search over a made-up state: each entry holds the prefix that
// led to it. The rows of a step run in random order.
func run(t *testing.T, s *decode.Search, w world, rng *rand.Rand, half, stride, bound, n int) []decode.Hypothesis {
	t.Helper()
	states := make([][]int32, decode.Entries(stride))
	s.Begin(half, bound)
	states[s.Row(0).To] = nil
	entries := []int32{s.Row(0).To}
	for {
		rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		for i, e := range entries {
			complete, err := s.Take(e, w.output(states[e]))
			if err != nil || complete != (i == len(entries)-1) {
				t.Fatalf("row %d of %d: complete %t, %v", i, len(entries), complete, err)
			}
		}
		if !s.Step() {
			return s.Results(n)
		}
		order := rng.Perm(s.Rows())
		entries = entries[:0]
		for _, i := range order {
			r := s.Row(i)
			states[r.To] = append(slices.Clone(states[r.From]), r.Token)
			entries = append(entries, r.To)
		}
		if got, want := ids(s.Best()), states[s.Row(0).To]; !slices.Equal(got, want) {
			t.Fatalf("best live hypothesis %v, its state is that of %v", got, want)
		}
	}
}

func TestSearchIsTheDefinition(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 1))
	lengths := map[cellrt.Reason]int{}
	for range 1500 {
		w := world{seed: rng.Uint64(), vocab: 3 + rng.IntN(9), grain: []float64{1e-3, 1}[rng.IntN(2)]}
		k, bound := 2+rng.IntN(7), 1+rng.IntN(9)
		stride := k + rng.IntN(3)
		s := decode.NewSearch(decode.Options{BeamWidth: k, EndToken: end}, stride, bound)
		want := reference(w, k, bound)
		for half := range 2 { // a search can be begun again
			got := run(t, s, w, rng, half, stride, bound, k)
			if len(got) != len(want) {
				t.Fatalf("%+v k %d bound %d: %d hypotheses, want %d", w, k, bound, len(got), len(want))
			}
			for i, h := range want {
				if !slices.Equal(ids(got[i].Tokens), h.tokens) || got[i].LogProb != h.score || got[i].Reason != h.reason {
					t.Fatalf("%+v k %d bound %d: hypothesis %d is %v %v %v, want %+v",
						w, k, bound, i, ids(got[i].Tokens), got[i].LogProb, got[i].Reason, h)
				}
				sum := 0.0
				for _, tok := range got[i].Tokens {
					sum += float64(tok.LogProb)
				}
				if h.reason == cellrt.Length && sum != h.score {
					t.Fatalf("tokens sum to %v, score %v", sum, h.score)
				}
				lengths[h.reason]++
			}
		}
	}
	if lengths[cellrt.Stopped] < 1000 || lengths[cellrt.Length] < 1000 {
		t.Errorf("only %v hypotheses", lengths)
	}
}

// TestWidthOneIsGreedy compares a search of one hypothesis with a writer.
func TestWidthOneIsGreedy(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	for range 300 {
		w := world{seed: rng.Uint64(), vocab: 3 + rng.IntN(5), grain: 0.5}
		o := decode.Options{MaxTokens: 6, BeamWidth: 1, EndToken: end}
		got := run(t, decode.NewSearch(o, 1, 6), w, rng, 0, 2, 6, 1)[0]
		want := write(t, w, o)
		if !slices.Equal(ids(got.Tokens), ids(want.tokens)) || got.Reason != want.reason || math.Abs(got.LogProb-want.logProb) > 1e-12 {
			t.Fatalf("search %v, greedy %v", got, want)
		}
	}
}

func TestSearchFailsOnNaN(t *testing.T) {
	t.Parallel()
	s := decode.NewSearch(decode.Options{BeamWidth: 2, EndToken: end}, 2, 3)
	s.Begin(0, 3)
	if _, err := s.Take(0, cellrt.Output{LogProb: float32(math.NaN())}); !errors.Is(err, cellrt.ErrNumerical) {
		t.Errorf("got %v", err)
	}
}

func TestSearchAllocatesNothing(t *testing.T) {
	const k, bound = 4, 20
	s := decode.NewSearch(decode.Options{BeamWidth: k, EndToken: -1}, k, bound)
	outs := make([]cellrt.Output, k)
	for i := range outs {
		outs[i] = world{seed: uint64(i), vocab: 9, grain: 0.1}.output(nil)
	}
	n := testing.AllocsPerRun(50, func() {
		s.Begin(0, bound)
		entries := [k]int32{}
		rows := 1
		for {
			for i := range rows {
				if _, err := s.Take(entries[i], outs[i]); err != nil {
					t.Fatal(err)
				}
			}
			if !s.Step() {
				return
			}
			s.Best()
			rows = s.Rows()
			for i := range rows {
				entries[i] = s.Row(i).To
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations in a search", n)
	}
}
