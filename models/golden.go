package models

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/cellmq/cellmq/cellrt"
)

// Output is what a request's graph gave when it was run to its end.
type Output struct {
	// Tokens are the emitted tokens, in order.
	Tokens []cellrt.Token
	// Reason says why the output ended.
	Reason cellrt.Reason
}

// Run runs a request to its end. Whoever has a runtime provides it.
type Run func(ctx context.Context, r *Request) (Output, error)

// goldenCase is a line of golden.jsonl.
type goldenCase struct {
	// Input is text, InputIDs are token ids: one of them is set.
	Input    string  `json:"input"`
	InputIDs []int32 `json:"input_ids"`
	// Tokens are the ids of the output and Text their text.
	Tokens []int32 `json:"tokens"`
	Text   string  `json:"text"`
	// FinishReason is "stop" or "length".
	FinishReason string `json:"finish_reason"`
	// LogProb is the sum of the output's log-probabilities, end tokens
	// included; the model's may be off by Tolerance.
	LogProb   float64 `json:"logprob"`
	Tolerance float64 `json:"tolerance"`

	line int
}

// GoldenError says where a model's output is not the recorded one.
type GoldenError struct {
	// Model is the model's name.
	Model string
	// Line is the line of golden.jsonl, from 1.
	Line int
	// Field is what differs: "tokens", "text", "finish_reason" or "logprob".
	Field string
	// Got and Want are the model's and the recorded value.
	Got, Want string
}

// Error names the line, the field and both values.
func (e *GoldenError) Error() string {
	return fmt.Sprintf("model %s: golden.jsonl line %d: %s is %s, want %s", e.Model, e.Line, e.Field, e.Got, e.Want)
}

// VerifyGolden runs the model's golden inputs, one after the other, and
// returns a [*GoldenError] for the first line whose output is not the one
// recorded. A model without golden.jsonl passes.
func (m *Model) VerifyGolden(ctx context.Context, run Run) error {
	for _, c := range m.golden {
		if err := m.verify(ctx, run, c); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) verify(ctx context.Context, run Run, c goldenCase) error {
	r, err := m.Unfold(Input{Text: c.Input, IDs: c.InputIDs}, Params{})
	if err != nil {
		return fmt.Errorf("model %s: golden.jsonl line %d: %w", m.name, c.line, err)
	}
	out, err := run(ctx, r)
	if err != nil {
		return fmt.Errorf("model %s: run golden.jsonl line %d: %w", m.name, c.line, err)
	}
	differs := func(field string, got, want any) error {
		return &GoldenError{Model: m.name, Line: c.line, Field: field, Got: fmt.Sprint(got), Want: fmt.Sprint(want)}
	}
	ids := make([]int32, len(out.Tokens))
	for i, t := range out.Tokens {
		ids[i] = t.ID
	}
	text := string(m.NewText().Append(nil, out.Tokens...))
	switch {
	case !slices.Equal(ids, c.Tokens):
		return differs("tokens", ids, c.Tokens)
	case text != c.Text:
		return differs("text", text, c.Text)
	case finishReason(out.Reason) != c.FinishReason:
		return differs("finish_reason", finishReason(out.Reason), c.FinishReason)
	case math.IsNaN(r.LogProb()) || math.Abs(r.LogProb()-c.LogProb) > c.Tolerance:
		return differs("logprob", r.LogProb(), fmt.Sprintf("%v within %v", c.LogProb, c.Tolerance))
	}
	return nil
}

// finishReason returns a reason's name on the wire.
func finishReason(r cellrt.Reason) string {
	switch r {
	case cellrt.Stopped:
		return "stop"
	case cellrt.Length:
		return "length"
	default:
		return "none"
	}
}

// readGolden reads golden.jsonl, if there is one.
func readGolden(fsys fs.FS) ([]goldenCase, error) {
	if _, err := fs.Stat(fsys, goldenFile); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	b, err := readFile(fsys, goldenFile, maxGoldenBytes)
	if err != nil {
		return nil, err
	}
	var cases []goldenCase
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxGoldenBytes)
	for n := 1; lines.Scan(); n++ {
		c := goldenCase{line: n}
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return nil, &ConfigError{File: goldenFile, Field: fmt.Sprintf("line %d", n), Err: err}
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		return nil, &ConfigError{File: goldenFile, Err: err}
	}
	return cases, nil
}
