package main

import (
	"context"
	"fmt"
	"math"

	"github.com/cellmq/cellmq/models"
)

// text is a test text of a language model with the trainer's results.
type text struct {
	Input string `json:"input"`
	// SumLogProb is the log-probability of the input from its second token on.
	SumLogProb float64 `json:"sum_logprob"`
	// Greedy is the greedy continuation, of one token a byte.
	Greedy string `json:"greedy"`
}

// goldenText is a line of golden.jsonl.
type goldenText struct {
	Input        string  `json:"input"`
	MaxTokens    int     `json:"max_tokens"`
	Tokens       []int32 `json:"tokens"`
	Text         string  `json:"text"`
	FinishReason string  `json:"finish_reason"`
	InputLogProb float64 `json:"input_logprob"`
	Tolerance    float64 `json:"tolerance"`
}

// A worker runs the golden lines before it serves a model, so they are few,
// their inputs short, and their continuations the beginning of the trainer's.
const (
	goldenTexts  = 20
	goldenInput  = 40 // most bytes of an input
	goldenOutput = 16 // most bytes of a continuation
)

// continued is a model's result for a text.
type continued struct {
	text    string
	tokens  []int32
	logProb float64 // of the input
}

// testTexts measures the bits per byte of held-out text, read as one sequence,
// and compares continuations, and log-probabilities of their inputs, with the
// trainer's. The golden tolerance covers twice what rounding changed in any
// text.
func testTexts(ctx context.Context, m *models.Model, texts []text, heldOut string) (evaluation, error) {
	results := make([]continued, len(texts))
	err := runAll(ctx, m, len(texts), func(i int) (*models.Request, error) {
		most := len(texts[i].Greedy)
		return m.Unfold(models.Input{Text: texts[i].Input}, models.Params{MaxTokens: &most})
	}, func(i int, r *models.Request, out models.Output) {
		results[i].text = r.Text(out.Tokens, 0)
		for _, t := range out.Tokens {
			results[i].tokens = append(results[i].tokens, t.ID)
		}
	})
	if err != nil {
		return evaluation{}, err
	}
	bits := 0.0
	err = runAll(ctx, m, len(texts)+1, func(i int) (*models.Request, error) {
		if i == len(texts) {
			return m.UnfoldScore(models.Input{Text: heldOut})
		}
		return m.UnfoldScore(models.Input{Text: texts[i].Input})
	}, func(i int, r *models.Request, _ models.Output) {
		if i == len(texts) {
			bits = -r.LogProb() / math.Ln2 / float64(len(heldOut)-1)
		} else {
			results[i].logProb = r.LogProb()
		}
	})
	if err != nil {
		return evaluation{}, err
	}
	different, off := 0, 0.0
	for i, t := range texts {
		if results[i].text != t.Greedy {
			different++
		}
		off = max(off, math.Abs(results[i].logProb-t.SumLogProb))
	}
	e := evaluation{summary: fmt.Sprintf(
		"%.4f bits per byte  continuation differs from the trainer's: %d of %d  largest difference of a logprob: %.2g",
		bits, different, len(texts), off)}
	var same []int
	for i, t := range texts {
		if t.Greedy == results[i].text && len(t.Input) <= goldenInput {
			same = append(same, i)
		}
	}
	for k := range min(goldenTexts, len(same)) {
		i := same[k*len(same)/min(goldenTexts, len(same))]
		t, r := texts[i], results[i]
		n := min(goldenOutput, len(r.tokens))
		e.golden = append(e.golden, goldenText{
			Input: t.Input, MaxTokens: n, Tokens: r.tokens[:n], Text: r.text[:n],
			FinishReason: "length", InputLogProb: t.SumLogProb, Tolerance: tolerance(off),
		})
	}
	return e, nil
}
