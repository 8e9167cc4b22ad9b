package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/models"
)

// word is a test word with the trainer's result.
type word struct {
	Input        string     `json:"input"`
	Output       []string   `json:"output"`
	LogProb      float64    `json:"logprob"`
	FinishReason string     `json:"finish_reason"`
	References   [][]string `json:"references"`
}

// goldenWord is a line of golden.jsonl.
type goldenWord struct {
	Input        string  `json:"input"`
	Tokens       []int32 `json:"tokens"`
	Text         string  `json:"text"`
	FinishReason string  `json:"finish_reason"`
	LogProb      float64 `json:"logprob"`
	Tolerance    float64 `json:"tolerance"`
}

// spoken is a model's result for a word.
type spoken struct {
	text    []string
	tokens  []int32
	logProb float64
}

// testWords compares a model's outputs with the references and the trainer's.
// The golden tolerance covers twice what rounding changed in any word.
func testWords(ctx context.Context, m *models.Model, words []word) (evaluation, error) {
	results := make([]spoken, len(words))
	err := runAll(ctx, m, len(words), func(i int) (*models.Request, error) {
		return m.Unfold(models.Input{Text: words[i].Input}, models.Params{})
	}, func(i int, r *models.Request, out models.Output) {
		results[i] = spoken{text: strings.Fields(string(m.NewText().Append(nil, out.Tokens...))), logProb: r.LogProb()}
		for _, t := range out.Tokens {
			results[i].tokens = append(results[i].tokens, t.ID)
		}
	})
	if err != nil {
		return evaluation{}, err
	}
	wrong, different, off := 0, 0, 0.0
	for i, w := range words {
		r := results[i]
		if !slices.ContainsFunc(w.References, func(ref []string) bool { return slices.Equal(ref, r.text) }) {
			wrong++
		}
		if !slices.Equal(w.Output, r.text) {
			different++
			continue
		}
		off = max(off, math.Abs(r.logProb-w.LogProb))
	}
	e := evaluation{summary: fmt.Sprintf(
		"%d of %d words wrong (%.2f %%)  output differs from the trainer's: %d  largest difference of a logprob: %.2g",
		wrong, len(words), 100*float64(wrong)/float64(len(words)), different, off)}
	for i := 0; i < len(words); i += max(1, len(words)/goldenLines) {
		w, r := words[i], results[i]
		if !slices.Equal(w.Output, r.text) {
			continue
		}
		e.golden = append(e.golden, goldenWord{
			Input: w.Input, Tokens: r.tokens, Text: strings.Join(r.text, " "),
			FinishReason: w.FinishReason, LogProb: w.LogProb, Tolerance: tolerance(off),
		})
	}
	return e, nil
}

// tolerance returns what a golden value may be off when rounding the weights
// changed values by at most the given difference.
func tolerance(off float64) float64 { return max(1e-4, math.Ceil(2*off*1000)/1000) }
