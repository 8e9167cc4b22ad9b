package decode_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// written is an output of a writer.
type written struct {
	tokens  []cellrt.Token
	chosen  []int32 // the end token included
	reason  cellrt.Reason
	logProb float64
	cut     int
}

// write writes an output over a world to its end.
func write(t *testing.T, w world, o decode.Options) written {
	t.Helper()
	var got written
	writer := decode.NewWriter(o, w.vocab)
	var f cellrt.Frontier
	for {
		f.Reset()
		token, next := writer.Take(w.output(got.chosen), &f)
		got.chosen = append(got.chosen, token)
		if next == decode.End {
			writer.Finish(cellrt.Stopped, &f)
			next = decode.Done
		}
		got.tokens = append(got.tokens, f.Tokens()...)
		reason, err := f.Done()
		if err != nil || (reason != 0) != (next == decode.Done) {
			t.Fatalf("next %v, reason %v, %v", next, reason, err)
		}
		if reason != 0 {
			got.reason, got.logProb, got.cut = reason, writer.LogProb(), writer.Cut()
			return got
		}
	}
}

func TestWriterGreedy(t *testing.T) {
	t.Parallel()
	w := world{seed: 11, vocab: 8, grain: 1e-3}
	for _, endToken := range []int32{-1, 0, 1, 2, 3, 4, 5, 6, 7} {
		o := decode.Options{MaxTokens: 9, EndToken: endToken}
		var want []int32
		reason, sum := cellrt.Length, 0.0
		for range o.MaxTokens {
			out := w.output(want)
			sum += float64(out.LogProb)
			if out.Token == endToken {
				reason = cellrt.Stopped
				break
			}
			want = append(want, out.Token)
		}
		got := write(t, w, o)
		if !slices.Equal(ids(got.tokens), want) || got.reason != reason || got.logProb != sum || got.cut != 0 {
			t.Errorf("end token %d: got %+v, want %v %v %v", endToken, got, want, reason, sum)
		}
	}
}

// TestWriterSamples shows that a seed decides the output and that each token
// carries the model's own log-probability.
func TestWriterSamples(t *testing.T) {
	t.Parallel()
	w := world{seed: 5, vocab: 20, grain: 1e-3}
	outputs := map[string]bool{}
	for seed := range uint64(20) {
		o := decode.Options{MaxTokens: 12, EndToken: -1, Sampling: decode.Sampling{Temperature: 1.3, TopK: 15, Seed: seed}}
		got, again := write(t, w, o), write(t, w, o)
		if !slices.Equal(got.chosen, again.chosen) || got.logProb != again.logProb {
			t.Fatalf("seed %d: %v, then %v", seed, got.chosen, again.chosen)
		}
		for i, tok := range got.tokens {
			if out := w.output(got.chosen[:i]); tok.LogProb != out.LogProbOf(tok.ID) {
				t.Errorf("token %d of %v has log-probability %v", i, got.chosen, tok.LogProb)
			}
		}
		outputs[string(append([]byte(nil), bytesOf(got.chosen)...))] = true
	}
	if len(outputs) < 19 {
		t.Errorf("20 seeds gave %d outputs", len(outputs))
	}
}

func bytesOf(ids []int32) []byte {
	var b []byte
	for _, id := range ids {
		b = append(b, byte(id))
	}
	return b
}

func TestWriterLogProbs(t *testing.T) {
	t.Parallel()
	w := world{seed: 6, vocab: 10, grain: 0.5} // with ties
	for _, n := range []int{1, 3, 10, 20} {
		got := write(t, w, decode.Options{MaxTokens: 200, EndToken: -1, LogProbs: n, Sampling: decode.Sampling{Temperature: 1}})
		for i, tok := range got.tokens {
			out := w.output(got.chosen[:i])
			order := make([]int32, w.vocab)
			for k := range order {
				order[k] = int32(k)
			}
			slices.SortStableFunc(order, func(a, b int32) int {
				switch {
				case out.Values[a] > out.Values[b]:
					return -1
				case out.Values[a] < out.Values[b]:
					return 1
				}
				return 0
			})
			if len(tok.Top) != min(n, w.vocab) {
				t.Fatalf("%d candidates, want %d", len(tok.Top), n)
			}
			for k, c := range tok.Top {
				if c.ID != order[k] || c.LogProb != out.LogProbOf(c.ID) {
					t.Fatalf("token %d: candidate %d is %v, want token %d", i, k, c, order[k])
				}
			}
		}
	}
}

// letters is a tokenizer of 26 letters.
func letters(t *testing.T) tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Config{Type: tokenizer.Bytes}, nil, 256)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// spell feeds a writer the letters of a text and returns what it emitted after
// each.
func spell(t *testing.T, w *decode.Writer, text string) (emitted []string, reason cellrt.Reason) {
	t.Helper()
	for i := range len(text) {
		var f cellrt.Frontier
		_, next := w.Take(cellrt.Output{Token: int32(text[i]), LogProb: -1}, &f)
		emitted = append(emitted, string(bytesOf(ids(f.Tokens()))))
		reason, _ = f.Done()
		if (next == decode.Done) != (reason != 0) || next == decode.Done && i < len(text)-1 {
			t.Fatalf("after %q: next %v, reason %v", text[:i+1], next, reason)
		}
	}
	return emitted, reason
}

func TestWriterStops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		stops      []string
		most       int
		emitted    []string
		reason     cellrt.Reason
		logProb    float64
	}{
		{"stop", "abxyz", []string{"xyz"}, 9, []string{"a", "b", "", "", ""}, cellrt.Stopped, -2},
		{"false alarm", "axyax", []string{"xyz"}, 9, []string{"a", "", "", "xya", ""}, 0, -4},
		{"bound while held", "axy", []string{"xyz"}, 3, []string{"a", "", "xy"}, cellrt.Length, -3},
		{"stop at the bound", "axyz", []string{"xyz"}, 4, []string{"a", "", "", ""}, cellrt.Stopped, -1},
		{"at once", "x", []string{"x"}, 9, []string{""}, cellrt.Stopped, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stops, err := tokenizer.NewStops(tt.stops)
			if err != nil {
				t.Fatal(err)
			}
			w := decode.NewWriter(decode.Options{MaxTokens: tt.most, EndToken: -1, Stops: stops, Tokenizer: letters(t)}, 256)
			emitted, reason := spell(t, w, tt.text)
			if !slices.Equal(emitted, tt.emitted) || reason != tt.reason || w.LogProb() != tt.logProb || w.Cut() != 0 {
				t.Errorf("got %q %v %v cut %d, want %q %v %v", emitted, reason, w.LogProb(), w.Cut(), tt.emitted, tt.reason, tt.logProb)
			}
		})
	}
}

// TestWriterReleasesAtTheEnd shows that what was held back comes with the end
// token.
func TestWriterReleasesAtTheEnd(t *testing.T) {
	t.Parallel()
	stops, err := tokenizer.NewStops([]string{"xyz"})
	if err != nil {
		t.Fatal(err)
	}
	w := decode.NewWriter(decode.Options{MaxTokens: 9, EndToken: 0, Stops: stops, Tokenizer: letters(t)}, 256)
	spell(t, w, "axy")
	var f cellrt.Frontier
	if _, next := w.Take(cellrt.Output{Token: 0, LogProb: -1}, &f); next != decode.End {
		t.Fatalf("next %v", next)
	}
	w.Finish(cellrt.Stopped, &f)
	if got := string(bytesOf(ids(f.Tokens()))); got != "xy" || w.LogProb() != -4 {
		t.Errorf("got %q %v", got, w.LogProb())
	}
}

func TestWriterFailsOnNaN(t *testing.T) {
	t.Parallel()
	w := decode.NewWriter(decode.Options{MaxTokens: 9, EndToken: 0, Sampling: decode.Sampling{Temperature: 1}}, 3)
	var f cellrt.Frontier
	_, next := w.Take(cellrt.Output{LogProb: float32(math.NaN()), Values: make([]float32, 3)}, &f)
	if _, err := f.Done(); next != decode.Done || !errors.Is(err, cellrt.ErrNumerical) || len(f.Tokens()) != 0 {
		t.Errorf("got %v, %v", next, err)
	}
}

func TestWriterBreaks(t *testing.T) {
	t.Parallel()
	w := decode.NewWriter(decode.Options{MaxTokens: 9, EndToken: 0}, 9)
	var f cellrt.Frontier
	w.Take(cellrt.Output{Token: 3}, &f)
	w.Break()
	w.Take(cellrt.Output{Token: 0}, &f) // the end token has no place for it
	w.Take(cellrt.Output{Token: 4}, &f)
	w.Take(cellrt.Output{Token: 5}, &f)
	var breaks []bool
	for _, tok := range f.Tokens() {
		breaks = append(breaks, tok.Break)
	}
	if !slices.Equal(breaks, []bool{false, true, false}) {
		t.Errorf("got %v", breaks)
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	stops, err := tokenizer.NewStops([]string{"aab", "bbbb"})
	if err != nil {
		t.Fatal(err)
	}
	tok := letters(t)
	for name, o := range map[string]decode.Options{
		"greedy": {},
		"stops":  {Stops: stops, Tokenizer: tok},
		"drawn":  {Sampling: decode.Sampling{Temperature: 1, TopP: 0.9}},
	} {
		o.MaxTokens, o.EndToken = 1<<30, -1
		w := decode.NewWriter(o, 256)
		out := cellrt.Output{Token: 'a', Values: make([]float32, 256)}
		var f cellrt.Frontier
		step := func() { f.Reset(); w.Take(out, &f) }
		for range 20 {
			step()
		}
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
