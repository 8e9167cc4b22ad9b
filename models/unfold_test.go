package models_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

func TestUnfoldRefuses(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	plain := load(t, directory(t, "s2s-gru-plain"), "plain")
	kjv := loadKJV(t)
	long := make([]int32, 257)
	tests := []struct {
		name    string
		m       *models.Model
		in      models.Input
		p       models.Params
		code    models.Code
		field   string
		message string
	}{
		{"nothing", m, models.Input{}, models.Params{}, models.BadRequest, "input", "empty"},
		{"white space", m, models.Input{Text: " \n\t\u2003"}, models.Params{}, models.BadRequest, "input", "empty"},
		{"no ids", m, models.Input{IDs: []int32{}}, models.Params{}, models.BadRequest, "input", "empty"},
		{"no ids as text", plain, models.Input{Text: "  "}, models.Params{}, models.BadRequest, "input", "empty"},
		{"both", m, models.Input{Text: "a", IDs: []int32{4}}, models.Params{}, models.BadRequest, "input", "both text and ids"},
		{"unknown character", m, models.Input{Text: "café"}, models.Params{}, models.BadRequest, "input", `"é" at position 3 is not in the vocabulary`},
		{"unknown character in a later word", m, models.Input{Text: " ab  ab a7"}, models.Params{}, models.BadRequest, "input", `"7" at position 9`},
		{"invalid UTF-8", m, models.Input{Text: "ab\xff"}, models.Params{}, models.BadRequest, "input", `"\xff" at position 2 is not valid UTF-8`},
		{"long text", m, models.Input{Text: strings.Repeat("ab ", 200)}, models.Params{}, models.InputTooLong, "input", "400 tokens, at most 256 wanted"},
		{"1 MB", m, models.Input{Text: strings.Repeat("é", 1<<19)}, models.Params{}, models.InputTooLong, "input", "at most 256 wanted"},
		{"long ids", m, models.Input{IDs: long}, models.Params{}, models.InputTooLong, "input", "257 tokens, at most 256 wanted"},
		{"id too large", m, models.Input{IDs: []int32{4, 30}}, models.Params{}, models.BadRequest, "input", "token id 30 at position 1, 0 to 29 wanted"},
		{"negative id", plain, models.Input{IDs: []int32{-1}}, models.Params{}, models.BadRequest, "input", "token id -1 at position 0, 0 to 22 wanted"},
		{"id as text too large", plain, models.Input{Text: "3 23"}, models.Params{}, models.BadRequest, "input", `"23" at position 1 is not below 23`},
		{"word for id", plain, models.Input{Text: "hello"}, models.Params{}, models.BadRequest, "input", `"hello" at position 0 is not a token id`},
		{"max_tokens 0", m, models.Input{Text: "a"}, models.Params{MaxTokens: ptr(0)}, models.BadRequest, "max_tokens", "0, 1 to 10240 wanted"},
		{"max_tokens negative", plain, models.Input{Text: "3"}, models.Params{MaxTokens: ptr(-5)}, models.BadRequest, "max_tokens", "-5, 1 to 20 wanted"},
		{"max_tokens large", plain, models.Input{Text: "3"}, models.Params{MaxTokens: ptr(21)}, models.BadRequest, "max_tokens", "21, 1 to 20 wanted"},
		{"temperature negative", m, models.Input{Text: "a"}, models.Params{Temperature: ptr(-0.5)}, models.BadRequest, "temperature", "-0.5, 0 to 100 wanted"},
		{"temperature large", m, models.Input{Text: "a"}, models.Params{Temperature: ptr(100.5)}, models.BadRequest, "temperature", "100.5, 0 to 100 wanted"},
		{"temperature NaN", m, models.Input{Text: "a"}, models.Params{Temperature: ptr(math.NaN())}, models.BadRequest, "temperature", "NaN"},
		{"top_k 0", m, models.Input{Text: "a"}, models.Params{TopK: ptr(0)}, models.BadRequest, "top_k", "0, 1 to 2147483647 wanted"},
		{"top_p 0", m, models.Input{Text: "a"}, models.Params{TopP: ptr(0.0)}, models.BadRequest, "top_p", "0, more than 0 and at most 1 wanted"},
		{"top_p large", m, models.Input{Text: "a"}, models.Params{TopP: ptr(1.01)}, models.BadRequest, "top_p", "1.01"},
		{"top_p NaN", m, models.Input{Text: "a"}, models.Params{TopP: ptr(math.NaN())}, models.BadRequest, "top_p", "NaN"},
		{"stop empty", m, models.Input{Text: "a"}, models.Params{Stop: []string{"x", ""}}, models.BadRequest, "stop", "text 1 has 0 bytes, 1 to 128 wanted"},
		{"stops", m, models.Input{Text: "a"}, models.Params{Stop: make([]string, 17)}, models.BadRequest, "stop", "17 texts, at most 16 wanted"},
		{"beam_width", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(9)}, models.BadRequest, "beam_width", "9, 1 to 8 wanted"},
		{"beam_width 0", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(0)}, models.BadRequest, "beam_width", "0, 1 to 8 wanted"},
		{"n_best", m, models.Input{Text: "a"}, models.Params{NBest: ptr(2)}, models.BadRequest, "n_best", "2, 1 to 1 wanted"},
		{"n_best of a search", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(3), NBest: ptr(4)}, models.BadRequest, "n_best", "4, 1 to 3 wanted"},
		{"n_best 0", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(3), NBest: ptr(0)}, models.BadRequest, "n_best", "0, 1 to 3 wanted"},
		{"n_best of segments", m, models.Input{Text: "a b"}, models.Params{BeamWidth: ptr(3), NBest: ptr(2)}, models.UnsupportedParameter, "n_best", "2, at most 1 for an input of 2 segments"},
		{"logprobs", m, models.Input{Text: "a"}, models.Params{LogProbs: ptr(21)}, models.BadRequest, "logprobs", "21, 0 to 20 wanted"},
		{"logprobs negative", m, models.Input{Text: "a"}, models.Params{LogProbs: ptr(-1)}, models.BadRequest, "logprobs", "-1"},
		{"ramps", m, models.Input{Text: "a"}, models.Params{Ramps: true}, models.UnsupportedParameter, "ramps", "ramps"},
		{"search at a temperature", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), Temperature: ptr(1.0)}, models.UnsupportedParameter, "temperature", "beam_width"},
		{"search with top_k", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), TopK: ptr(1)}, models.UnsupportedParameter, "top_k", "beam_width"},
		{"search with top_p", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), TopP: ptr(1.0)}, models.UnsupportedParameter, "top_p", "beam_width"},
		{"search with a seed", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), Seed: ptr(uint64(1))}, models.UnsupportedParameter, "seed", "beam_width"},
		{"search with a stop text", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), Stop: []string{"x"}}, models.UnsupportedParameter, "stop", "beam_width"},
		{"search with logprobs", m, models.Input{Text: "a"}, models.Params{BeamWidth: ptr(2), LogProbs: ptr(1)}, models.UnsupportedParameter, "logprobs", "beam_width"},
		{"nothing to continue", kjv, models.Input{}, models.Params{}, models.BadRequest, "input", "empty"},
		{"invalid UTF-8 as bytes", kjv, models.Input{Text: "a\xff"}, models.Params{}, models.BadRequest, "input", `"\xff" at position 1 is not valid UTF-8`},
		{"long text of bytes", kjv, models.Input{Text: strings.Repeat("a", 1<<15+1)}, models.Params{}, models.InputTooLong, "input", "32769 tokens, at most 32768 wanted"},
		{"no byte", kjv, models.Input{IDs: []int32{256}}, models.Params{}, models.BadRequest, "input", "token id 256 at position 0, 0 to 255 wanted"},
		{"long continuation", kjv, models.Input{Text: "a"}, models.Params{MaxTokens: ptr(1025)}, models.BadRequest, "max_tokens", "1025, 1 to 1024 wanted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.m.Unfold(tt.in, tt.p)
			got, ok := errors.AsType[*models.InputError](err)
			if !ok {
				t.Fatalf("got %v, want an InputError", err)
			}
			if got.Code != tt.code || got.Field != tt.field || !strings.Contains(got.Message, tt.message) {
				t.Errorf("got %+v, want %s %s %s", *got, tt.code, tt.field, tt.message)
			}
		})
	}
}

func TestUnfoldAccepts(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	plain := load(t, directory(t, "s2s-gru-plain"), "plain")
	kjv := loadKJV(t)
	greedy := models.Params{
		Temperature: ptr(0.0), TopK: ptr(5), TopP: ptr(0.5), Seed: ptr(uint64(1)),
		BeamWidth: ptr(1), NBest: ptr(1), LogProbs: ptr(0), Stop: []string{},
	}
	sampled := models.Params{
		Temperature: ptr(100.0), TopK: ptr(math.MaxInt32), TopP: ptr(1.0), LogProbs: ptr(20),
		Stop: slices.Repeat([]string{strings.Repeat("x", 128)}, 16),
	}
	tests := []struct {
		name        string
		m           *models.Model
		in          models.Input
		p           models.Params
		input, most int
	}{
		{"word", m, models.Input{Text: "hello"}, models.Params{}, 5, 40},
		{"greedy by name", m, models.Input{Text: "hello"}, greedy, 5, 40},
		{"sampled", m, models.Input{Text: "hello"}, sampled, 5, 40},
		{"searched", m, models.Input{Text: "hello"}, models.Params{BeamWidth: ptr(8), NBest: ptr(8)}, 5, 40},
		{"two words searched", m, models.Input{Text: "a b"}, models.Params{BeamWidth: ptr(8), NBest: ptr(1)}, 2, 80},
		{"continued", kjv, models.Input{Text: "In é"}, models.Params{}, 5, 128},
		{"continued far", kjv, models.Input{Text: "In"}, models.Params{MaxTokens: ptr(1024)}, 2, 1024},
		{"capitals", m, models.Input{Text: "HELLO"}, models.Params{}, 5, 40},
		{"two words", m, models.Input{Text: "cellular batching\n"}, models.Params{}, 16, 80},
		{"longest", m, models.Input{Text: strings.Repeat("abcd ", 64)}, models.Params{}, 256, 64 * 40},
		{"max_tokens", m, models.Input{Text: "a b"}, models.Params{MaxTokens: ptr(7)}, 2, 7},
		{"max_tokens beyond what the words can have", m, models.Input{Text: "a b"}, models.Params{MaxTokens: ptr(10240)}, 2, 80},
		{"ids never segment", m, models.Input{IDs: []int32{4, 5, 6}}, models.Params{}, 3, 40},
		{"ids as text", plain, models.Input{Text: "3 22 0\n"}, models.Params{}, 3, 20},
		{"the ceiling", plain, models.Input{Text: "3"}, models.Params{MaxTokens: ptr(20)}, 1, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := tt.m.Unfold(tt.in, tt.p)
			if err != nil {
				t.Fatal(err)
			}
			if r.InputTokens != tt.input || r.MaxTokens != tt.most || r.Model != tt.m {
				t.Errorf("got %d input tokens, at most %d, want %d and %d", r.InputTokens, r.MaxTokens, tt.input, tt.most)
			}
		})
	}
}

// TestUnfoldKeepsItsOwnIDs changes the caller's slice between unfolding and
// running.
func TestUnfoldKeepsItsOwnIDs(t *testing.T) {
	t.Parallel()
	m := load(t, directory(t, "s2s-gru-plain"), "plain")
	source := []int32{9, 4, 20, 18, 16, 20}
	req, err := m.Unfold(models.Input{IDs: source}, models.Params{})
	if err != nil {
		t.Fatal(err)
	}
	clear(source)
	out, err := serve(t, m, 1, cellrt.Config{}).Run(t.Context(), req)
	if err != nil || !slices.Equal(ids(out.Tokens), []int32{17}) {
		t.Errorf("got %v, %v, want [17]", ids(out.Tokens), err)
	}
}

func TestMaxTokensCutsTheOutput(t *testing.T) {
	t.Parallel()
	m := loadG2P(t)
	r := serve(t, m, 1, cellrt.Config{})
	for _, text := range []string{"matriarch", "matriarch matriarch"} {
		for _, most := range []int{1, 3, 8} {
			req, err := m.Unfold(models.Input{Text: text}, models.Params{MaxTokens: &most})
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.Run(t.Context(), req)
			if err != nil || len(out.Tokens) != most || out.Reason != cellrt.Length {
				t.Errorf("%s: %d tokens %s, %v, want %d length", text, len(out.Tokens), reason(out.Reason), err, most)
			}
		}
	}
}
