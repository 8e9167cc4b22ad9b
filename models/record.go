package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cellmq/cellmq/cellrt"
)

// Record runs inputs one after the other and writes a golden file of what the
// model gives, a line for each: its greedy output, or its label and logits, and
// what a language model says of the input. Such lines prove that a model gives
// the same elsewhere, not that it was exported right, so they are marked as
// self-made; they name the weights file, and are to be met to the bit. A
// maxTokens of 0 leaves the model's own, and is the only one for models that
// emit no tokens.
//
// The weights must be float32. What is wrong with an input is an [*InputError]
// behind its number, from 1. Nothing is written unless every input could be run
// and the file is one that [Load] reads.
func (m *Model) Record(ctx context.Context, run Run, inputs []Input, maxTokens int, w io.Writer) error {
	if m.Weights() != cellrt.F32 {
		return fmt.Errorf("model %s: record golden outputs with %s weights, %s wanted", m.name, m.Weights(), cellrt.F32)
	}
	if len(inputs) == 0 {
		return fmt.Errorf("model %s: record golden outputs: no input", m.name)
	}
	var file bytes.Buffer
	lines := json.NewEncoder(&file)
	lines.SetEscapeHTML(false)
	for i, in := range inputs {
		c, err := m.record(ctx, run, in, maxTokens)
		if err == nil {
			err = lines.Encode(c)
		}
		if err == nil && file.Len() > maxGoldenBytes {
			err = fmt.Errorf("the file has %d bytes, at most %d wanted", file.Len(), maxGoldenBytes)
		}
		if err != nil {
			return fmt.Errorf("model %s: record golden output %d: %w", m.name, i+1, err)
		}
	}
	if _, err := w.Write(file.Bytes()); err != nil {
		return fmt.Errorf("model %s: write golden outputs: %w", m.name, err)
	}
	return nil
}

// record returns the line of an input.
func (m *Model) record(ctx context.Context, run Run, in Input, maxTokens int) (goldenCase, error) {
	c := goldenCase{Input: in.Text, InputIDs: in.IDs, SelfMade: true, WeightsSHA256: &m.weightsSum}
	if maxTokens != 0 {
		c.MaxTokens = &maxTokens
	}
	r, err := m.Unfold(in, Params{MaxTokens: c.MaxTokens})
	if err != nil {
		return goldenCase{}, err
	}
	out, err := run(ctx, r)
	if err != nil {
		return goldenCase{}, err
	}
	if out.Reason != cellrt.Stopped && out.Reason != cellrt.Length {
		return goldenCase{}, errors.New("the output did not end by itself")
	}
	c.FinishReason = out.Reason.String()
	if o := r.Outcome(); o.Label != "" {
		c.Label, c.Logits = o.Label, o.Logits[len(o.Logits)-1]
		return c, nil
	}
	c.Tokens = make([]int32, len(out.Tokens))
	for i, t := range out.Tokens {
		c.Tokens[i] = t.ID
	}
	c.Text = r.Text(out.Tokens, 0)
	logProb := r.LogProb()
	c.LogProb = &logProb
	if _, scores := m.family.(*lmFamily); !scores {
		return c, nil
	}
	if r, err = m.UnfoldScore(in); err != nil {
		return goldenCase{}, err
	}
	if _, err := run(ctx, r); err != nil {
		return goldenCase{}, err
	}
	inputLogProb := r.LogProb()
	c.InputLogProb = &inputLogProb
	return c, nil
}
